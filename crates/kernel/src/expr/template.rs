//! One template: compiled when it is parsed, evaluated against a [`Scope`] without failing
//! in any other way than by a [`TemplateError`].
//!
//! What a template may say is decided in `scan`, what its filters do in `library`; JSON
//! with templates inside it is a [`TemplateValue`](super::TemplateValue).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use minijinja::{Environment, Error, ErrorKind, Expression};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use crate::reference;

use super::scan::{Scanned, scan};
use super::{MAX_OUTPUT, MAX_SOURCE, Scope, TemplateError, library, value};

/// Bytes rendered text is first given budget for; most results are shorter.
const FIRST_ROOM: usize = 4 * 1024;

/// A template as written in a definition, for example `{{ ctx.page | int + 1 }}`.
///
/// Parsing compiles it; clones share the compiled form. Two templates are equal if their
/// sources are, and a template is serialised as its source.
#[derive(Clone)]
pub struct Template {
    inner: Arc<Compiled>,
}

struct Compiled {
    source: Arc<str>,
    scanned: Scanned,
    roots: Vec<Arc<str>>,
    code: Code,
}

enum Code {
    /// No tags: the source is the text.
    Text,
    /// One plain dotted path, looked up without the engine.
    Path(Vec<String>),
    /// One expression.
    Expression(Box<Expression<'static, 'static>>),
    /// Text and tags, kept in an environment of its own under the name `""`.
    Document(Box<Environment<'static>>),
}

impl Template {
    /// Parses and compiles a template.
    pub fn parse(source: &str) -> Result<Template, TemplateError> {
        if source.len() > MAX_SOURCE {
            return Err(TemplateError::long_source(source));
        }
        let scanned =
            scan(source).map_err(|e| TemplateError::syntax(source, e.range, e.message))?;
        check_calls(source, &scanned)?;
        let code = caught(|| compile(source, &scanned))
            .map_err(|e| TemplateError::of_engine(&e, source, &scanned))?;
        Ok(Template {
            inner: Arc::new(Compiled {
                source: Arc::from(source),
                roots: roots(&scanned.reads),
                scanned,
                code,
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
        &self.inner.scanned.reads
    }

    /// The top-level names among [`Template::reads`].
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        self.inner.roots.iter().map(|r| &**r)
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
        matches!(self.inner.code, Code::Text)
    }

    /// The value: native if the template is one `{{ … }}`, text otherwise.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Json, TemplateError> {
        self.evaluate_within(scope, MAX_OUTPUT)
    }

    /// The same, where a value that is only handed on may have this many bytes.
    pub fn evaluate_within(&self, scope: &dyn Scope, bytes: usize) -> Result<Json, TemplateError> {
        let compiled = &*self.inner;
        let mut budget = value::OutputBudget::of(bytes);
        caught(|| match &compiled.code {
            Code::Text => Ok(Json::String(compiled.source.to_string())),
            Code::Path(path) => {
                let root = scope.lookup(&path[0]);
                let json = walk(root.as_deref(), &path[1..])?;
                value::copy(json.unwrap_or(&Json::Null), &mut budget, 0)
            }
            Code::Expression(expression) => {
                let result = expression.eval(self.context(scope))?;
                value::to_json(&result, &mut value::OutputBudget::new(), 0)
            }
            Code::Document(env) => self.render(env, scope).map(Json::String),
        })
        .map_err(|e| self.error(e))
    }

    /// Whether the value is true: by Jinja's rule for a native value; text is false if it
    /// is empty or says `false`, `0`, `none` or `null`.
    pub fn truthy(&self, scope: &dyn Scope) -> Result<bool, TemplateError> {
        let compiled = &*self.inner;
        caught(|| match &compiled.code {
            Code::Text => Ok(text_is_true(&compiled.source)),
            Code::Path(path) => {
                let root = scope.lookup(&path[0]);
                let json = walk(root.as_deref(), &path[1..])?;
                Ok(json.is_some_and(json_is_true))
            }
            Code::Expression(expression) => Ok(expression.eval(self.context(scope))?.is_true()),
            Code::Document(env) => Ok(text_is_true(&self.render(env, scope)?)),
        })
        .map_err(|e| self.error(e))
    }

    fn context(&self, scope: &dyn Scope) -> minijinja::Value {
        let names = self.inner.roots.iter();
        minijinja::Value::from_object(value::ScopeRoots::new(
            names.filter_map(|name| Some((Arc::clone(name), scope.lookup(name)?))),
        ))
    }

    /// Renders into a slice, which is what bounds it: text between tags passes no filter
    /// that could count it. Evaluation is pure, so what does not fit may be done again.
    fn render(&self, env: &Environment<'static>, scope: &dyn Scope) -> Result<String, Error> {
        let template = env.get_template("")?;
        let context = self.context(scope);
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
        let (known, what) = if call.is_test {
            (library::knows_test(&call.name), "test")
        } else {
            (library::knows_filter(&call.name), "filter")
        };
        if !known {
            let range = call.at..call.at + call.name.len();
            let message = format!("there is no {what} `{}`", call.name);
            return Err(TemplateError::syntax(source, range, message));
        }
    }
    Ok(())
}

/// The first parts of the paths, each once.
fn roots(reads: &BTreeSet<String>) -> Vec<Arc<str>> {
    let mut roots: Vec<Arc<str>> = Vec::new();
    for path in reads {
        let root = path.split('.').next().unwrap_or(path);
        if !roots.iter().any(|r| &**r == root) {
            roots.push(Arc::from(root));
        }
    }
    roots
}

fn compile(source: &str, scanned: &Scanned) -> Result<Code, Error> {
    if !scanned.has_tags {
        return Ok(Code::Text);
    }
    if let Some(path) = &scanned.path {
        return Ok(Code::Path(path.clone()));
    }
    let guarded = scanned.guarded(source);
    let shared = library::environment();
    if scanned.whole.is_some() {
        let expression = shared.compile_expression_owned(guarded)?;
        return Ok(Code::Expression(Box::new(expression)));
    }
    let mut own = shared.clone();
    own.add_template_owned("", guarded)?;
    Ok(Code::Document(Box::new(own)))
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
