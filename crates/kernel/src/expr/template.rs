//! One template: parsed once, evaluated against a [`Scope`] without failing
//! in any other way than by a [`TemplateError`].
//!
//! What a template may say is decided in `scan`, what its filters do in `library`; JSON
//! with templates inside it is a [`TemplateValue`](super::TemplateValue).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use minijinja::{Environment, Error, ErrorKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use crate::reference;

use super::program::{Code, Program};
use super::scan::{CallKind, FUNCTIONS, ReadSite, Scanned, scan};
use super::{MAX_OUTPUT, MAX_SOURCE, Scope, TemplateError, library, value};

/// Bytes rendered text is first given budget for; most results are shorter.
const FIRST_ROOM: usize = 4 * 1024;

/// A template as written in a definition, for example `{{ ctx.page | int + 1 }}`.
///
/// Parsing compiles it once, to find what cannot be compiled; clones share the compiled form. Two templates are equal if their
/// sources are, and a template is serialised as its source.
#[derive(Clone)]
pub struct Template {
    inner: Arc<Compiled>,
}

struct Compiled {
    source: Arc<str>,
    scanned: Scanned,
    reads: BTreeSet<String>,
    roots: Vec<Root>,
    /// The paths that must have a value where the scope is strict.
    needs: Vec<String>,
    form: Form,
}

/// A function or a method that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCall {
    pub name: String,
    /// Where the name stands in the source.
    pub range: Range<usize>,
    /// `function` or `method`.
    pub what: &'static str,
    /// The names of those that exist.
    pub known: &'static [&'static str],
}

/// A top-level name that a template reads.
struct Root {
    name: Arc<str>,
    /// All that is read of its value; absent if the value itself is.
    keys: Option<Vec<String>>,
}

impl Root {
    fn value(&self, scope: &dyn Scope) -> Option<Arc<Json>> {
        match &self.keys {
            Some(keys) => scope.lookup_keys(&self.name, keys),
            None => scope.lookup(&self.name),
        }
    }
}

/// How a template is evaluated.
enum Form {
    /// No tags: the source is the text.
    Text,
    /// One plain dotted path, looked up without the engine.
    Path(Vec<String>),
    /// A template that the engine evaluates.
    Program(Program),
}

impl Template {
    /// Parses and compiles a template.
    pub fn parse(source: &str) -> Result<Template, TemplateError> {
        if source.len() > MAX_SOURCE {
            return Err(TemplateError::long_source(source));
        }
        let mut scanned =
            scan(source).map_err(|e| TemplateError::syntax(source, e.range, e.message))?;
        check_calls(source, &scanned)?;
        let form = caught(|| form_of(source, &scanned))
            .map_err(|e| TemplateError::of_engine(&e, source, &scanned))?;
        let reads = scanned.reads();
        let needs = match form {
            // A path is looked up as it is.
            Form::Path(_) => Vec::new(),
            Form::Text | Form::Program(_) => {
                scanned.needs().into_iter().map(str::to_owned).collect()
            }
        };
        scanned.sites = Vec::new();
        scanned.calls = Vec::new();
        Ok(Template {
            inner: Arc::new(Compiled {
                source: Arc::from(source),
                roots: roots(&reads),
                reads,
                needs,
                scanned,
                form,
            }),
        })
    }

    /// The template as written.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// The dotted paths this template may read, such as `ctx.page`. Names the template
    /// binds itself are left out; branches not taken are included.
    pub fn reads(&self) -> &BTreeSet<String> {
        &self.inner.reads
    }

    /// The places where the template reads its scope, in the order of the source. Read from the source again, because
    /// only those who check a definition ask.
    pub fn sites(&self) -> Vec<ReadSite> {
        scan(self.source()).map_or_else(|_| Vec::new(), |scanned| scanned.sites)
    }

    /// The first function or method that does not exist. Parsing accepts it, because a definition that is in a store may
    /// have it in a branch that is never taken.
    pub fn unknown_call(&self) -> Option<UnknownCall> {
        let scanned = scan(self.source()).ok()?;
        scanned.calls.into_iter().find_map(|call| {
            let (known, what): (&[&str], _) = match call.kind {
                CallKind::Filter | CallKind::Test => return None,
                CallKind::Function => (&FUNCTIONS, "function"),
                CallKind::Method => (library::METHODS, "method"),
            };
            let is_known = known.contains(&call.name.as_str());
            (!is_known).then(|| UnknownCall {
                range: call.at..call.at + call.name.len(),
                what,
                name: call.name,
                known,
            })
        })
    }

    /// The top-level names among [`Template::reads`].
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        self.inner.roots.iter().map(|root| &*root.name)
    }

    /// Whether a top-level name is read.
    pub fn reads_root(&self, root: &str) -> bool {
        self.roots().any(|r| r == root)
    }

    /// Whether any of these top-level names is read.
    pub fn reads_any_root(&self, roots: &[&str]) -> bool {
        self.roots().any(|r| roots.contains(&r))
    }

    /// The path, if the template is nothing but one plain dotted path.
    pub fn as_path(&self) -> Option<&[String]> {
        self.inner.scanned.path.as_deref()
    }

    /// Whether there is nothing to evaluate.
    pub fn is_static(&self) -> bool {
        matches!(self.inner.form, Form::Text)
    }

    /// The value: native if the template is one `{{ … }}`, text otherwise.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Json, TemplateError> {
        self.evaluate_within(scope, MAX_OUTPUT)
    }

    /// The same, where a value that is only handed on may have this many bytes.
    pub fn evaluate_within(&self, scope: &dyn Scope, bytes: usize) -> Result<Json, TemplateError> {
        let compiled = &*self.inner;
        let mut budget = value::OutputBudget::of(bytes);
        let strict = scope.is_strict();
        caught(|| {
            if strict {
                self.check_needs(scope)?;
            }
            match &compiled.form {
                Form::Text => Ok(Json::String(compiled.source.to_string())),
                Form::Path(path) => {
                    let root = of_path(scope, path);
                    match walk(root.as_deref(), &path[1..])? {
                        None if strict => Err(value::no_value(&path.join("."))),
                        json => value::copy(json.unwrap_or(&Json::Null), &mut budget, 0),
                    }
                }
                Form::Program(program) => match &*self.code(program)? {
                    Code::Expression(expression) => {
                        let result = expression.eval(self.context(scope, strict))?;
                        let mut budget = value::OutputBudget::new().strict(strict);
                        value::to_json(&result, &mut budget, 0)
                    }
                    Code::Document(env) => self
                        .render(env, self.context(scope, strict))
                        .map(Json::String),
                },
            }
        })
        .map_err(|e| self.error(e))
    }

    /// Looks for what the template cannot do without.
    fn check_needs(&self, scope: &dyn Scope) -> Result<(), Error> {
        for need in &self.inner.needs {
            let path: Vec<String> = need.split('.').map(str::to_owned).collect();
            let root = of_path(scope, &path);
            // What is kept elsewhere is there; the evaluation says how to read it.
            if let Ok(None) = walk(root.as_deref(), &path[1..]) {
                return Err(value::no_value(need));
            }
        }
        Ok(())
    }

    /// Whether the value is true: by Jinja's rule for a native value; text is false if it
    /// is empty or says `false`, `0`, `none` or `null`. A condition may ask for what has no value, also where the scope
    /// is strict.
    pub fn truthy(&self, scope: &dyn Scope) -> Result<bool, TemplateError> {
        let compiled = &*self.inner;
        caught(|| match &compiled.form {
            Form::Text => Ok(text_is_true(&compiled.source)),
            Form::Path(path) => {
                let root = of_path(scope, path);
                let json = walk(root.as_deref(), &path[1..])?;
                Ok(json.is_some_and(json_is_true))
            }
            Form::Program(program) => match &*self.code(program)? {
                Code::Expression(expression) => {
                    Ok(expression.eval(self.context(scope, false))?.is_true())
                }
                Code::Document(env) => {
                    Ok(text_is_true(&self.render(env, self.context(scope, false))?))
                }
            },
        })
        .map_err(|e| self.error(e))
    }

    fn code(&self, program: &Program) -> Result<Arc<Code>, Error> {
        program.code(|| self.inner.scanned.guarded(self.source()))
    }

    fn context(&self, scope: &dyn Scope, strict: bool) -> minijinja::Value {
        let roots = self.inner.roots.iter();
        minijinja::Value::from_object(value::ScopeRoots::new(
            roots.filter_map(|root| Some((Arc::clone(&root.name), root.value(scope)?))),
            strict,
        ))
    }

    /// Renders into a slice, which is what bounds it: text between tags passes no filter
    /// that could count it. Evaluation is pure, so what does not fit may be done again.
    fn render(
        &self,
        env: &Environment<'static>,
        context: minijinja::Value,
    ) -> Result<String, Error> {
        let template = env.get_template("")?;
        for size in [FIRST_ROOM, MAX_OUTPUT] {
            let mut bytes = vec![0; size];
            let mut budget = bytes.as_mut_slice();
            match template.render_captured_to(context.clone(), &mut budget) {
                Ok(_) => {
                    let length = size - budget.len();
                    return Ok(String::from_utf8_lossy(&bytes[..length]).into_owned());
                }
                Err(error) if error.kind() == ErrorKind::WriteFailure => {}
                Err(error) => return Err(error),
            }
        }
        Err(value::result_too_large())
    }

    fn error(&self, error: Error) -> TemplateError {
        TemplateError::of_engine(&error, self.source(), &self.inner.scanned)
    }
}

/// The engine would only notice an unknown filter when the branch is taken, perhaps days
/// later.
fn check_calls(source: &str, scanned: &Scanned) -> Result<(), TemplateError> {
    for call in &scanned.calls {
        let (known, what) = match call.kind {
            CallKind::Test => (library::knows_test(&call.name), "test"),
            CallKind::Filter => (library::knows_filter(&call.name), "filter"),
            CallKind::Function | CallKind::Method => continue,
        };
        if !known {
            let range = call.at..call.at + call.name.len();
            let message = format!("there is no {what} `{}`", call.name);
            return Err(TemplateError::syntax(source, range, message));
        }
    }
    Ok(())
}

/// The first parts of the paths, each once, with the parts that follow them.
fn roots(reads: &BTreeSet<String>) -> Vec<Root> {
    let mut roots: Vec<Root> = Vec::new();
    for path in reads {
        let mut parts = path.split('.');
        let name = parts.next().unwrap_or(path);
        let key = parts.next();
        let known = roots.iter_mut().find(|root| &*root.name == name);
        match (known, key) {
            (Some(root), Some(key)) => {
                if let Some(keys) = root
                    .keys
                    .as_mut()
                    .filter(|keys| !keys.iter().any(|it| it == key))
                {
                    keys.push(key.to_owned());
                }
            }
            (Some(root), None) => root.keys = None,
            (None, key) => roots.push(Root {
                name: Arc::from(name),
                keys: key.map(|key| vec![key.to_owned()]),
            }),
        }
    }
    roots
}

/// The value that a plain path begins at.
fn of_path(scope: &dyn Scope, path: &[String]) -> Option<Arc<Json>> {
    match path {
        [name] => scope.lookup(name),
        [name, key, ..] => scope.lookup_keys(name, std::slice::from_ref(key)),
        [] => None,
    }
}

fn form_of(source: &str, scanned: &Scanned) -> Result<Form, Error> {
    if !scanned.has_tags {
        return Ok(Form::Text);
    }
    if let Some(path) = &scanned.path {
        return Ok(Form::Path(path.clone()));
    }
    Program::compile(scanned.guarded(source), scanned.whole.is_some()).map(Form::Program)
}

/// The engine is not meant to panic. If it does all the same, one workflow has a bad
/// template; it must not take the others down with it.
fn caught<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::EvalBlock,
            "the template engine gave up; simplify the expression",
        ))
    })
}

fn walk<'j>(json: Option<&'j Json>, path: &[String]) -> Result<Option<&'j Json>, Error> {
    let Some(mut at) = json else {
        return Ok(None);
    };
    for key in path {
        at = match at.get(key.as_str()) {
            Some(below) => below,
            None if reference::hides(at, key) => return Err(value::kept_elsewhere(key)),
            None => return Ok(None),
        };
    }
    Ok(Some(at))
}

fn json_is_true(json: &Json) -> bool {
    match json {
        Json::Null => false,
        Json::Bool(b) => *b,
        Json::Number(n) => n.as_f64() != Some(0.0),
        Json::String(s) => !s.is_empty(),
        Json::Array(items) => !items.is_empty(),
        Json::Object(map) => !map.is_empty(),
    }
}

fn text_is_true(text: &str) -> bool {
    let text = text.trim();
    let no = ["", "false", "0", "none", "null"];
    !no.iter().any(|no| text.eq_ignore_ascii_case(no))
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.source()).finish()
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Template) -> bool {
        self.source() == other.source()
    }
}

impl Eq for Template {}

impl Hash for Template {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source().hash(state);
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())
    }
}

impl std::str::FromStr for Template {
    type Err = TemplateError;
    fn from_str(source: &str) -> Result<Template, TemplateError> {
        Template::parse(source)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.source())
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Template, D::Error> {
        let source = String::deserialize(deserializer)?;
        Template::parse(&source).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Text with Jinja expressions, such as `{{ ctx.page }}`"
        })
    }
}
