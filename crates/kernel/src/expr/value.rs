//! JSON inside the Jinja engine and back out again.
//!
//! A container is handed to the engine as a [`JsonRef`], a shared root and a path into
//! it, so that reading `ctx.rows[3].id` copies one number and not the rows. What comes
//! out is turned into JSON or text under a size limit. No filters live here.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

use super::MAX_OUTPUT;
use crate::reference;

/// Deeper results are refused, because JSON readers recurse.
const MAX_DEPTH: usize = 100;
/// Longer texts are converted once per evaluation and shared after that.
const SHARED_TEXT: usize = 64;

/// Marks an error as [`super::TemplateErrorKind::TooLarge`] on its way through the engine.
pub(super) const TOO_LARGE: &str = "too large: ";

pub(super) fn too_large(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{TOO_LARGE}{what}"))
}

pub(super) fn result_too_large() -> Error {
    result_over(MAX_OUTPUT)
}

fn result_over(bytes: usize) -> Error {
    too_large(format_args!("the result is over {} KiB", bytes / 1024))
}

/// Who reads through a reference must not take what is kept elsewhere for absent.
pub(super) fn kept_elsewhere(what: impl std::fmt::Display) -> Error {
    type_error(format!(
        "{what} is too large for the log and kept as an artifact; name what is needed of it in \
         `output_select`, or read it in a task"
    ))
}

/// A strict scope has nothing at a path that the template needs.
pub(super) fn no_value(path: &str) -> Error {
    Error::new(
        ErrorKind::UndefinedError,
        format!("`{path}` has no value; write `{path} | default(…)` if it may be absent"),
    )
}

/// What a template makes in a strict scope is nothing.
pub(super) fn nothing_written() -> Error {
    Error::new(
        ErrorKind::UndefinedError,
        "the result has no value; add `| default(…)` if it may be absent",
    )
}

/// Null would be written into a text of a strict scope.
pub(super) fn null_written() -> Error {
    Error::new(
        ErrorKind::UndefinedError,
        "null has no text; add `| default(…, true)` for what stands there then, or `| tojson` for the word null",
    )
}

/// The name under which templates of a strict scope find that it is strict. No template can say it.
pub(super) const STRICT: &str = "\0strict";

pub(super) fn type_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

#[derive(Clone, Debug)]
enum Step {
    Key(Arc<str>),
    Index(usize),
}

/// Texts already converted, by where they lie in the (kept alive) JSON.
type Texts = Arc<Mutex<HashMap<usize, Value>>>;

/// A container inside a shared JSON value.
#[derive(Debug)]
pub(super) struct JsonRef {
    root: Arc<Json>,
    path: Vec<Step>,
    texts: Texts,
}

impl JsonRef {
    pub(super) fn json(&self) -> &Json {
        let mut at = &*self.root;
        for step in &self.path {
            let next = match step {
                Step::Key(key) => at.get(&**key),
                Step::Index(index) => at.get(*index),
            };
            at = next.unwrap_or(&Json::Null);
        }
        at
    }

    fn child(&self, step: impl FnOnce() -> Step, json: &Json) -> Value {
        self.value(json, || {
            let mut path = Vec::with_capacity(self.path.len() + 1);
            path.extend_from_slice(&self.path);
            path.push(step());
            path
        })
    }

    fn value(&self, json: &Json, path: impl FnOnce() -> Vec<Step>) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(b) => Value::from(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::from(n),
                (None, Some(n)) => Value::from(n),
                (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(s) if s.len() < SHARED_TEXT => Value::from(s.as_str()),
            Json::String(s) => match self.texts.lock() {
                Ok(mut texts) => texts
                    .entry(s.as_ptr() as usize)
                    .or_insert_with(|| Value::from(s.as_str()))
                    .clone(),
                Err(_) => Value::from(s.as_str()),
            },
            Json::Array(_) | Json::Object(_) => Value::from_object(JsonRef {
                root: Arc::clone(&self.root),
                path: path(),
                texts: Arc::clone(&self.texts),
            }),
        }
    }
}

impl Object for JsonRef {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        match self.json() {
            Json::Array(_) => ObjectRepr::Seq,
            _ => ObjectRepr::Map,
        }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match self.json() {
            json if key.as_str().is_none() && reference::is_reference(json) => {
                self.get_value_by_str(&key.to_string())
            }
            Json::Array(items) => {
                let index = key.as_usize()?;
                Some(self.child(|| Step::Index(index), items.get(index)?))
            }
            _ => self.get_value_by_str(key.as_str()?),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let whole = self.json();
        match whole.as_object()?.get(key) {
            Some(json) => Some(self.child(|| Step::Key(Arc::from(key)), json)),
            None if reference::hides(whole, key) => Some(Value::from(kept_elsewhere(key))),
            None => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.json() {
            json if reference::is_reference(json) => {
                Enumerator::Values(vec![Value::from(kept_elsewhere("its items"))])
            }
            Json::Array(items) => Enumerator::Seq(items.len()),
            Json::Object(map) => {
                Enumerator::Values(map.keys().map(|k| Value::from(k.as_str())).collect())
            }
            _ => Enumerator::Empty,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        if let Some(count) = reference::count(self.json()) {
            return Some(count);
        }
        match self.json() {
            Json::Array(items) => Some(items.len()),
            Json::Object(map) => Some(map.len()),
            _ => Some(0),
        }
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<std::cmp::Ordering> {
        // Only equality is settled here: it saves converting two large values to find
        // that they are the same. Everything else is left to the engine.
        let other = other.downcast_ref::<Self>()?;
        (self.json() == other.json()).then_some(std::cmp::Ordering::Equal)
    }
}

/// The names a template reads, looked up before it runs.
#[derive(Debug)]
pub(super) struct ScopeRoots {
    names: Vec<(Arc<str>, JsonRef)>,
    strict: bool,
}

impl ScopeRoots {
    pub(super) fn new(
        names: impl Iterator<Item = (Arc<str>, Arc<Json>)>,
        strict: bool,
    ) -> ScopeRoots {
        let texts = Texts::default();
        let wrap = |root| JsonRef {
            root,
            path: Vec::new(),
            texts: Arc::clone(&texts),
        };
        ScopeRoots {
            names: names.map(|(name, root)| (name, wrap(root))).collect(),
            strict,
        }
    }
}

impl Object for ScopeRoots {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        if self.strict && key == STRICT {
            return Some(Value::from(true));
        }
        let (_, root) = self.names.iter().find(|(name, _)| &**name == key)?;
        Some(root.value(&root.root, Vec::new))
    }
}

/// Counts down the bytes a result may still take.
#[derive(Debug)]
pub(super) struct OutputBudget {
    left: usize,
    all: usize,
    /// Whether undefined is null in the result; otherwise it is an error.
    takes_undefined: bool,
}

impl OutputBudget {
    pub(super) fn new() -> OutputBudget {
        OutputBudget::of(MAX_OUTPUT)
    }

    pub(super) fn of(bytes: usize) -> OutputBudget {
        OutputBudget {
            left: bytes,
            all: bytes,
            takes_undefined: true,
        }
    }

    /// The same for a strict scope, where a result with something undefined in it is an error.
    pub(super) fn strict(mut self, strict: bool) -> OutputBudget {
        self.takes_undefined = !strict;
        self
    }

    fn take(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| result_over(self.all))?;
        Ok(())
    }
}

/// Copies JSON while counting its size.
pub(super) fn copy(json: &Json, budget: &mut OutputBudget, depth: usize) -> Result<Json, Error> {
    check_depth(depth)?;
    Ok(match json {
        Json::String(s) => {
            budget.take(s.len() + 2)?;
            json.clone()
        }
        Json::Array(items) => {
            budget.take(2)?;
            let mut out = Vec::new();
            for item in items {
                budget.take(1)?;
                out.push(copy(item, budget, depth + 1)?);
            }
            Json::Array(out)
        }
        Json::Object(map) => {
            budget.take(2)?;
            let mut out = serde_json::Map::new();
            for (key, value) in map {
                budget.take(key.len() + 4)?;
                out.insert(key.clone(), copy(value, budget, depth + 1)?);
            }
            Json::Object(out)
        }
        scalar => {
            budget.take(4)?;
            scalar.clone()
        }
    })
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_large(format_args!(
            "the result is nested more than {MAX_DEPTH} deep"
        )));
    }
    Ok(())
}

/// The native JSON of an engine value; undefined becomes null, unless the scope is strict.
pub(super) fn to_json(
    value: &Value,
    budget: &mut OutputBudget,
    depth: usize,
) -> Result<Json, Error> {
    check_depth(depth)?;
    if let Some(json) = value.downcast_object_ref::<JsonRef>() {
        return copy(json.json(), budget, depth);
    }
    Ok(match value.kind() {
        ValueKind::Undefined if !budget.takes_undefined => return Err(nothing_written()),
        ValueKind::Undefined | ValueKind::None => {
            budget.take(4)?;
            Json::Null
        }
        ValueKind::Bool => {
            budget.take(4)?;
            Json::Bool(value.is_true())
        }
        ValueKind::Number => {
            budget.take(4)?;
            Json::Number(to_number(value)?)
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            budget.take(text.len() + 2)?;
            Json::String(text.to_owned())
        }
        ValueKind::Seq | ValueKind::Iterable => {
            budget.take(2)?;
            let mut out = Vec::new();
            for item in value.try_iter()?.checked() {
                budget.take(1)?;
                out.push(to_json(&item?, budget, depth + 1)?);
            }
            Json::Array(out)
        }
        ValueKind::Map => {
            budget.take(2)?;
            let mut out = serde_json::Map::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                let name = match key.as_str() {
                    Some(name) => name.to_owned(),
                    None => to_text(&key)?,
                };
                budget.take(name.len() + 4)?;
                let item = value.get_item(&key)?;
                out.insert(name, to_json(&item, budget, depth + 1)?);
            }
            Json::Object(out)
        }
        other => return Err(type_error(format!("a {other} cannot be a result"))),
    })
}

fn to_number(value: &Value) -> Result<serde_json::Number, Error> {
    if value.is_integer() {
        if let Some(n) = value.as_i64() {
            return Ok(n.into());
        }
        return u64::try_from(value.clone()).map(Into::into).map_err(|_| {
            type_error("the number does not fit 64 bits; use a float or smaller numbers")
        });
    }
    let float = f64::try_from(value.clone())?;
    serde_json::Number::from_f64(float)
        .ok_or_else(|| type_error("the number is infinite or not a number"))
}

/// How a value prints inside text: as Python prints it, except that lists and mappings
/// are compact JSON.
pub(super) fn to_text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut out = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool if value.is_true() => out.push_str("True"),
        ValueKind::Bool => out.push_str("False"),
        ValueKind::Number if value.is_integer() => {
            let _ = write!(out, "{value}");
        }
        ValueKind::Number => {
            let float = f64::try_from(value.clone())?;
            if !float.is_finite() {
                return Err(type_error("the number is infinite or not a number"));
            }
            // Debug, unlike Display, keeps the `.0` of 100.0, as Python does.
            let _ = write!(out, "{float:?}");
        }
        _ => return json_text(value),
    }
    Ok(out)
}

/// The value as JSON text without spaces; an error if the text would be too large.
fn json_text(value: &Value) -> Result<String, Error> {
    let json = to_json(value, &mut OutputBudget::new(), 0)?;
    Ok(json.to_string())
}
