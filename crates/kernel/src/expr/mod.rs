//! Expressions: what stands between `{{` and `}}` in a definition.
//!
//! A [`Template`] is Jinja2 as its authors know it from Python, evaluated by a pure,
//! bounded function of a [`Scope`]: no clock, no randomness, no files, and an error
//! rather than a panic or an endless loop for any input. A [`TemplateValue`] is JSON
//! with templates in its strings.
//!
//! Where it differs from Jinja2, and why:
//!
//! * A string that is one `{{ … }}` (blanks around it aside) keeps the native type of
//!   its value, null included. Anything else renders to text.
//! * Undefined chains: any attribute of it is undefined. It prints as nothing, is null
//!   natively, is false, equals only undefined, contains nothing and iterates as empty.
//!   Arithmetic with it, and ordering it with `<`, is an error.
//! * Ordering two different kinds with `<` is an error, as in Python.
//! * Text prints `True`, `False`, `None` and `100.0` as Python does, but lists and
//!   mappings as compact JSON, and nothing is ever HTML-escaped.
//! * Repeating text or lists with `*` works for short literals only (`'-' * 40`); slices
//!   have no step; `if`, `for`, `set` and `raw` are the only statements.
//!
//! What must not live here: anything that knows of workflows, steps or events.

mod library;
mod scan;
mod value;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use minijinja::{Environment, Error, ErrorKind, Expression};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

/// Engine instructions one evaluation may execute.
pub const FUEL: u64 = 200_000;
/// Longest template source, in bytes.
pub const MAX_SOURCE: usize = 64 * 1024;
/// Largest result, in bytes of text or JSON.
pub const MAX_OUTPUT: usize = 1024 * 1024;
/// Bytes one evaluation may build on the way to its result.
pub const MAX_WORK: usize = 16 * 1024 * 1024;
/// Most numbers one `range()` may make.
pub const MAX_RANGE: usize = 100_000;

/// Whether a string has to be evaluated at all.
pub fn has_template(s: &str) -> bool {
    s.contains("{{") || s.contains("{%")
}

/// Where templates find their names.
///
/// Only the names a template mentions are looked up, once per evaluation, and what is
/// returned is shared with the evaluation rather than copied.
pub trait Scope {
    /// The value of a top-level name, or `None` if it is undefined.
    fn lookup(&self, name: &str) -> Option<Arc<Json>>;
}

impl<F: Fn(&str) -> Option<Arc<Json>>> Scope for F {
    fn lookup(&self, name: &str) -> Option<Arc<Json>> {
        self(name)
    }
}

/// What went wrong with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TemplateErrorKind {
    /// The source does not parse, or uses a statement, filter or test there is not.
    Syntax,
    /// Something needed a value and had none.
    Undefined,
    /// A value of the wrong kind.
    Type,
    /// The evaluation took too many steps.
    Fuel,
    /// The source, the result, or something on the way to it is too large.
    TooLarge,
    /// Anything else.
    Other,
}

/// Why a template could not be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TemplateError {
    /// What sort of error it is.
    pub kind: TemplateErrorKind,
    /// What is wrong, and where possible what to do about it.
    pub message: String,
    /// The line in the source, from 1.
    pub line: Option<usize>,
    /// The bytes of the source at fault.
    pub range: Option<Range<usize>>,
    /// The template, shortened.
    pub excerpt: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.kind {
            TemplateErrorKind::Syntax => "does not parse",
            TemplateErrorKind::Undefined => "needs a value that is not there",
            TemplateErrorKind::Type => "mixes kinds of values",
            TemplateErrorKind::Fuel => "takes too many steps; loop over less or move it to a step",
            TemplateErrorKind::TooLarge => "makes too much; move the work to a step",
            TemplateErrorKind::Other => "failed",
        };
        write!(f, "template `{}` {advice}: {}", self.excerpt, self.message)?;
        match self.line {
            Some(line) if line > 1 => write!(f, " (line {line})"),
            _ => Ok(()),
        }
    }
}

fn excerpt(source: &str) -> String {
    let line = source.trim().replace(['\n', '\r'], " ");
    match line.char_indices().nth(119) {
        Some((cut, _)) if line[cut..].chars().nth(1).is_some() => format!("{}…", &line[..cut]),
        _ => line,
    }
}

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
    scanned: scan::Scanned,
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
            return Err(TemplateError {
                kind: TemplateErrorKind::TooLarge,
                message: format!("the source is over {} KiB", MAX_SOURCE / 1024),
                line: None,
                range: None,
                excerpt: excerpt(source.get(..256).unwrap_or_default()),
            });
        }
        let scanned = scan::scan(source).map_err(|e| TemplateError {
            kind: TemplateErrorKind::Syntax,
            message: e.message,
            line: Some(line_of(source, e.range.start)),
            range: Some(e.range),
            excerpt: excerpt(source),
        })?;
        // The engine would only notice when the branch is taken, perhaps days later.
        let unknown = |name: &&(String, usize, bool)| !library::knows(&name.0, name.2);
        if let Some((name, at, test)) = scanned.calls.iter().find(unknown) {
            let what = if *test { "test" } else { "filter" };
            return Err(TemplateError {
                kind: TemplateErrorKind::Syntax,
                message: format!("there is no {what} `{name}`"),
                line: Some(line_of(source, *at)),
                range: Some(*at..at + name.len()),
                excerpt: excerpt(source),
            });
        }
        let code = caught(|| compile(source, &scanned))
            .map_err(|e| describe(e, source, &scanned, code_start(&scanned)))?;
        let mut roots: Vec<Arc<str>> = Vec::new();
        for path in &scanned.reads {
            let root = path.split('.').next().unwrap_or(path);
            if !roots.iter().any(|r| &**r == root) {
                roots.push(Arc::from(root));
            }
        }
        Ok(Template {
            inner: Arc::new(Compiled {
                source: Arc::from(source),
                scanned,
                roots,
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
        let compiled = &*self.inner;
        caught(|| match &compiled.code {
            Code::Text => Ok(Json::String(compiled.source.to_string())),
            Code::Path(path) => {
                let root = scope.lookup(&path[0]);
                match root.as_deref().and_then(|root| walk(root, &path[1..])) {
                    Some(json) => value::copy(json, &mut value::Room::new(), 0),
                    None => Ok(Json::Null),
                }
            }
            Code::Expression(expression) => {
                let result = expression.eval(self.context(scope))?;
                value::to_json(&result, &mut value::Room::new(), 0)
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
                let json = root.as_deref().and_then(|root| walk(root, &path[1..]));
                Ok(json.is_some_and(json_is_true))
            }
            Code::Expression(expression) => Ok(expression.eval(self.context(scope))?.is_true()),
            Code::Document(env) => Ok(text_is_true(&self.render(env, scope)?)),
        })
        .map_err(|e| self.error(e))
    }

    fn context(&self, scope: &dyn Scope) -> minijinja::Value {
        let names = self.inner.roots.iter();
        minijinja::Value::from_object(value::Roots::new(
            names.filter_map(|name| Some((Arc::clone(name), scope.lookup(name)?))),
        ))
    }

    fn render(&self, env: &Environment<'static>, scope: &dyn Scope) -> Result<String, Error> {
        let mut out = Output::default();
        let template = env.get_template("")?;
        match template.render_captured_to(self.context(scope), &mut out) {
            Err(_) if out.full => Err(value::too_large(format_args!(
                "the result is over {} KiB",
                MAX_OUTPUT / 1024
            ))),
            Err(error) => Err(error),
            Ok(_) => Ok(String::from_utf8(out.bytes)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())),
        }
    }

    fn error(&self, error: Error) -> TemplateError {
        let compiled = &*self.inner;
        let start = code_start(&compiled.scanned);
        describe(error, &compiled.source, &compiled.scanned, start)
    }
}

/// Collects rendered text up to the limit.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    full: bool,
}

impl std::io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT {
            self.full = true;
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn code_start(scanned: &scan::Scanned) -> usize {
    scanned.whole.as_ref().map_or(0, |whole| whole.start)
}

fn compile(source: &str, scanned: &scan::Scanned) -> Result<Code, Error> {
    let shared = library::environment();
    if !scanned.has_tags {
        return Ok(Code::Text);
    }
    if let Some(path) = &scanned.path {
        return Ok(Code::Path(path.clone()));
    }
    if let Some(whole) = &scanned.whole {
        let guarded = scanned.guarded(source, whole.clone());
        let expression = shared.compile_expression_owned(guarded)?;
        return Ok(Code::Expression(Box::new(expression)));
    }
    let mut own = shared.clone();
    own.add_template_owned("", scanned.guarded(source, 0..source.len()))?;
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

fn describe(error: Error, source: &str, scanned: &scan::Scanned, start: usize) -> TemplateError {
    use ErrorKind as E;
    let detail = match error.detail() {
        Some(detail) => Cow::Borrowed(detail),
        None => Cow::Owned(error.kind().to_string()),
    };
    let (kind, message) = match error.kind() {
        _ if detail.starts_with(value::TOO_LARGE) => (
            TemplateErrorKind::TooLarge,
            Cow::Borrowed(&detail[value::TOO_LARGE.len()..]),
        ),
        E::SyntaxError | E::UnknownFilter | E::UnknownTest | E::UnknownFunction => {
            (TemplateErrorKind::Syntax, detail)
        }
        E::UndefinedError => (TemplateErrorKind::Undefined, detail),
        // The engine only says so in words.
        E::InvalidOperation | E::UnknownMethod if detail.contains("undefined") => {
            (TemplateErrorKind::Undefined, detail)
        }
        E::InvalidOperation
        | E::UnknownMethod
        | E::NonPrimitive
        | E::NonKey
        | E::CannotUnpack
        | E::MissingArgument
        | E::TooManyArguments => (TemplateErrorKind::Type, detail),
        E::OutOfFuel => (
            TemplateErrorKind::Fuel,
            Cow::Owned(format!("more than {FUEL} instructions")),
        ),
        _ => (TemplateErrorKind::Other, detail),
    };
    let range = error.range().map(|range| {
        let from = scanned
            .original_offset(range.start, start)
            .min(source.len());
        let to = scanned
            .original_offset(range.end, start)
            .clamp(from, source.len());
        // The error came from a guard, which has no place of its own: point at its tag.
        if from == to {
            tag_around(source, from)
        } else {
            from..to
        }
    });
    TemplateError {
        kind,
        message: message.into_owned(),
        line: match &range {
            Some(range) => Some(line_of(source, range.start)),
            None => error.line(),
        },
        range,
        excerpt: excerpt(source),
    }
}

fn tag_around(source: &str, at: usize) -> Range<usize> {
    let before = source.get(..at).unwrap_or_default();
    let open = before.rfind("{{").max(before.rfind("{%")).unwrap_or(at);
    let after = source.get(at..).unwrap_or_default();
    let close = [after.find("}}"), after.find("%}")];
    let close = close
        .into_iter()
        .flatten()
        .min()
        .map_or(at, |end| at + end + 2);
    open..close
}

fn line_of(source: &str, offset: usize) -> usize {
    let before = source.as_bytes().iter().take(offset);
    1 + before.filter(|b| **b == b'\n').count()
}

fn walk<'j>(json: &'j Json, path: &[String]) -> Option<&'j Json> {
    path.iter().try_fold(json, |at, key| at.get(key.as_str()))
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

/// JSON with templates inside its strings, at any depth. Keys are never templates.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateValue {
    node: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// No template anywhere below.
    Static(Json),
    Template(Template),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// A template that does not parse, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {}: {error}", if pointer.is_empty() { "the top" } else { pointer })]
pub struct TemplateValueError {
    /// A JSON pointer to the string.
    pub pointer: String,
    /// What is wrong with it.
    #[source]
    pub error: TemplateError,
}

/// Values nested deeper than this are kept as they are rather than recursed into.
const MAX_VALUE_DEPTH: usize = 128;

impl TemplateValue {
    /// Finds and parses the templates in a JSON value.
    pub fn parse(json: &Json) -> Result<TemplateValue, TemplateValueError> {
        let node = Node::parse(json, &mut String::new(), 0)?;
        Ok(TemplateValue { node })
    }

    /// The JSON with every template replaced by its value.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Json, TemplateError> {
        self.node.evaluate(scope)
    }

    /// Whether there is nothing to evaluate.
    pub fn is_static(&self) -> bool {
        matches!(self.node, Node::Static(_))
    }

    /// The dotted paths all its templates may read.
    pub fn reads(&self) -> BTreeSet<String> {
        let mut out = BTreeSet::new();
        self.node
            .visit(&mut |t| out.extend(t.reads().iter().cloned()));
        out
    }

    /// Whether any template reads any of these top-level names.
    pub fn reads_any_root(&self, roots: &[&str]) -> bool {
        let mut found = false;
        self.node.visit(&mut |t| found |= t.reads_any_root(roots));
        found
    }

    /// The template, if the whole value is one string with a template in it.
    pub fn as_template(&self) -> Option<&Template> {
        match &self.node {
            Node::Template(template) => Some(template),
            _ => None,
        }
    }

    /// The JSON as written.
    pub fn to_json(&self) -> Json {
        self.node.to_json()
    }
}

impl Node {
    fn parse(json: &Json, at: &mut String, depth: usize) -> Result<Node, TemplateValueError> {
        let is_static = |node: &Node| matches!(node, Node::Static(_));
        let here = at.len();
        let node = match json {
            Json::String(text) if has_template(text) => match Template::parse(text) {
                Ok(template) => Node::Template(template),
                Err(error) => {
                    return Err(TemplateValueError {
                        pointer: at.clone(),
                        error,
                    });
                }
            },
            Json::Array(items) if depth < MAX_VALUE_DEPTH => {
                let mut nodes = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    at.push_str(&format!("/{i}"));
                    nodes.push(Node::parse(item, at, depth + 1)?);
                    at.truncate(here);
                }
                if nodes.iter().all(is_static) {
                    Node::Static(json.clone())
                } else {
                    Node::List(nodes)
                }
            }
            Json::Object(map) if depth < MAX_VALUE_DEPTH => {
                let mut nodes = Vec::with_capacity(map.len());
                for (key, item) in map {
                    at.push('/');
                    at.push_str(&key.replace('~', "~0").replace('/', "~1"));
                    nodes.push((key.clone(), Node::parse(item, at, depth + 1)?));
                    at.truncate(here);
                }
                if nodes.iter().all(|(_, node)| is_static(node)) {
                    Node::Static(json.clone())
                } else {
                    Node::Map(nodes)
                }
            }
            _ => Node::Static(json.clone()),
        };
        Ok(node)
    }

    fn evaluate(&self, scope: &dyn Scope) -> Result<Json, TemplateError> {
        Ok(match self {
            Node::Static(json) => json.clone(),
            Node::Template(template) => template.evaluate(scope)?,
            Node::List(nodes) => Json::Array(
                nodes
                    .iter()
                    .map(|n| n.evaluate(scope))
                    .collect::<Result<_, _>>()?,
            ),
            Node::Map(nodes) => {
                let pairs = nodes
                    .iter()
                    .map(|(k, n)| Ok((k.clone(), n.evaluate(scope)?)));
                Json::Object(pairs.collect::<Result<_, TemplateError>>()?)
            }
        })
    }

    fn visit(&self, see: &mut dyn FnMut(&Template)) {
        match self {
            Node::Static(_) => {}
            Node::Template(template) => see(template),
            Node::List(nodes) => nodes.iter().for_each(|n| n.visit(see)),
            Node::Map(nodes) => nodes.iter().for_each(|(_, n)| n.visit(see)),
        }
    }

    fn to_json(&self) -> Json {
        match self {
            Node::Static(json) => json.clone(),
            Node::Template(template) => Json::String(template.source().to_owned()),
            Node::List(nodes) => Json::Array(nodes.iter().map(Node::to_json).collect()),
            Node::Map(nodes) => Json::Object(
                nodes
                    .iter()
                    .map(|(k, n)| (k.clone(), n.to_json()))
                    .collect(),
            ),
        }
    }
}

impl Serialize for TemplateValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TemplateValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TemplateValue, D::Error> {
        let json = Json::deserialize(deserializer)?;
        TemplateValue::parse(&json).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for TemplateValue {
    fn schema_name() -> Cow<'static, str> {
        "TemplateValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Any JSON; strings may hold Jinja expressions" })
    }
}
