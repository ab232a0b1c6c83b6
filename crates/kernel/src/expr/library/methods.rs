//! Python's methods on text and mappings, such as `ctx.get('x', 1)`.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use super::collections::pairs;
use super::is_missing;
use super::meter::{charge, charge_value, text_out};
use super::text::{join_items, replace, strip};
use crate::expr::value::{to_text, type_error};

/// Every method of any value; the last two are of `loop`.
pub(in crate::expr) const METHODS: &[&str] = &[
    "lower",
    "upper",
    "title",
    "capitalize",
    "strip",
    "lstrip",
    "rstrip",
    "startswith",
    "endswith",
    "replace",
    "split",
    "splitlines",
    "join",
    "find",
    "count",
    "isdigit",
    "get",
    "items",
    "keys",
    "values",
    "cycle",
    "changed",
];

/// Called by the engine for a method that the value itself does not have.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    charge(state, 1)?;
    let called = match (value.as_str(), value.kind()) {
        (Some(text), _) => text_method(state, value, text, name, args)?,
        // On undefined too, so that `ctx.missing.get('x')` chains like `ctx.missing.x`.
        (None, ValueKind::Map | ValueKind::Undefined) => map_method(state, value, name, args)?,
        _ => None,
    };
    called.ok_or_else(|| {
        Error::new(
            ErrorKind::UnknownMethod,
            format!("a {} has no method `{name}`", value.kind()),
        )
    })
}

/// `None` if there is no such method.
fn text_method(
    state: &mut State<'_, '_>,
    value: &Value,
    text: &str,
    name: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let need = |i: usize| match args.get(i) {
        Some(arg) => to_text(arg),
        None => Err(Error::new(
            ErrorKind::MissingArgument,
            format!("`{name}` needs more arguments"),
        )),
    };
    let out = match name {
        "lower" => text_out(state, text.to_lowercase())?,
        "upper" => text_out(state, text.to_uppercase())?,
        "title" | "capitalize" => state.apply_filter(name, std::slice::from_ref(value))?,
        "strip" => strip(state, text, args.first(), true, true)?,
        "lstrip" => strip(state, text, args.first(), true, false)?,
        "rstrip" => strip(state, text, args.first(), false, true)?,
        "startswith" => Value::from(text.starts_with(&need(0)?)),
        "endswith" => Value::from(text.ends_with(&need(0)?)),
        "replace" => {
            let count = args.get(2).and_then(Value::as_usize);
            replace(state, text, &need(0)?, &need(1)?, count)?
        }
        "split" => split(state, text, args)?,
        "splitlines" => {
            charge(state, text.len().saturating_mul(25))?;
            text.lines().map(Value::from).collect()
        }
        "join" => match args.first() {
            Some(items) => join_items(state, items, text, None)?,
            None => Value::from(need(0)?),
        },
        "find" => match text.find(&need(0)?) {
            Some(at) => Value::from(text[..at].chars().count()),
            None => Value::from(-1),
        },
        "count" => Value::from(text.matches(&need(0)?).count()),
        "isdigit" => Value::from(!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())),
        _ => return Ok(None),
    };
    Ok(Some(out))
}

fn split(state: &mut State<'_, '_>, text: &str, args: &[Value]) -> Result<Value, Error> {
    charge(state, text.len().saturating_mul(25))?;
    let Some(by) = args.first().filter(|by| !is_missing(by)) else {
        return Ok(text.split_whitespace().map(Value::from).collect());
    };
    let by = to_text(by)?;
    if by.is_empty() {
        return Err(type_error("cannot split by an empty text"));
    }
    let most = args.get(1).and_then(Value::as_usize);
    let most = most.map_or(usize::MAX, |n| n.saturating_add(1));
    Ok(text.splitn(most, &by).map(Value::from).collect())
}

/// `None` if there is no such method. Undefined has no keys.
fn map_method(
    state: &mut State<'_, '_>,
    map: &Value,
    name: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let out = match name {
        "get" => {
            let found = match args.first() {
                Some(key) if !map.is_undefined() => map.get_item(key)?,
                _ => Value::UNDEFINED,
            };
            if found.is_undefined() {
                args.get(1).cloned().unwrap_or_else(|| Value::from(()))
            } else {
                found
            }
        }
        "items" => {
            charge_value(state, map)?;
            pairs(map)?
        }
        "keys" => {
            charge_value(state, map)?;
            map.try_iter()?.collect()
        }
        "values" => {
            charge_value(state, map)?;
            let values = map.try_iter()?.map(|key| map.get_item(&key));
            values.collect::<Result<Value, _>>()?
        }
        _ => return Ok(None),
    };
    Ok(Some(out))
}
