//! JSON with templates inside it, such as the arguments of a step.
//!
//! How one template is parsed and evaluated is in `template.rs`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use super::{MAX_OUTPUT, Scope, Template, TemplateError, has_template};

/// Values nested deeper than this are kept as they are rather than recursed into.
const MAX_VALUE_DEPTH: usize = 128;

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

impl TemplateValue {
    /// Finds and parses the templates in a JSON value.
    pub fn parse(json: &Json) -> Result<TemplateValue, TemplateValueError> {
        let node = Node::parse(json, &mut String::new(), 0)?;
        Ok(TemplateValue { node })
    }

    /// The JSON with every template replaced by its value.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Json, TemplateError> {
        self.evaluate_within(scope, MAX_OUTPUT)
    }

    /// The same, where a value that is only handed on may have this many bytes.
    pub fn evaluate_within(&self, scope: &dyn Scope, bytes: usize) -> Result<Json, TemplateError> {
        self.node.evaluate(scope, bytes)
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
            Node::Static(_) | Node::List(_) | Node::Map(_) => None,
        }
    }

    /// The keys of the mapping, if the value is one.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let (fixed, mixed) = match &self.node {
            Node::Static(Json::Object(map)) => (Some(map), None),
            Node::Map(nodes) => (None, Some(nodes)),
            Node::Static(_) | Node::Template(_) | Node::List(_) => (None, None),
        };
        let fixed = fixed.into_iter().flatten().map(|(key, _)| key.as_str());
        fixed.chain(mixed.into_iter().flatten().map(|(key, _)| key.as_str()))
    }

    /// The JSON as written.
    pub fn to_json(&self) -> Json {
        self.node.to_json()
    }
}

impl Node {
    /// `at` is the JSON pointer to the value, and is the same again afterwards.
    fn parse(json: &Json, at: &mut String, depth: usize) -> Result<Node, TemplateValueError> {
        let node = match json {
            Json::String(text) if has_template(text) => {
                let pointed = |error| TemplateValueError {
                    pointer: at.clone(),
                    error,
                };
                Node::Template(Template::parse(text).map_err(pointed)?)
            }
            Json::Array(items) if depth < MAX_VALUE_DEPTH => {
                let mut nodes = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    nodes.push(Node::parse_child(item, &i.to_string(), at, depth)?);
                }
                Node::List(nodes)
            }
            Json::Object(map) if depth < MAX_VALUE_DEPTH => {
                let mut nodes = Vec::with_capacity(map.len());
                for (key, item) in map {
                    let step = key.replace('~', "~0").replace('/', "~1");
                    nodes.push((key.clone(), Node::parse_child(item, &step, at, depth)?));
                }
                Node::Map(nodes)
            }
            _ => Node::Static(Json::Null),
        };
        Ok(if node.has_template() {
            node
        } else {
            Node::Static(json.clone())
        })
    }

    fn parse_child(
        json: &Json,
        step: &str,
        at: &mut String,
        depth: usize,
    ) -> Result<Node, TemplateValueError> {
        let here = at.len();
        at.push('/');
        at.push_str(step);
        let node = Node::parse(json, at, depth + 1)?;
        at.truncate(here);
        Ok(node)
    }

    /// Whether anything directly below has one; what has none is `Static` already.
    fn has_template(&self) -> bool {
        let is_static = |node: &Node| matches!(node, Node::Static(_));
        match self {
            Node::Static(_) => false,
            Node::Template(_) => true,
            Node::List(nodes) => !nodes.iter().all(is_static),
            Node::Map(nodes) => !nodes.iter().all(|(_, node)| is_static(node)),
        }
    }

    fn evaluate(&self, scope: &dyn Scope, bytes: usize) -> Result<Json, TemplateError> {
        Ok(match self {
            Node::Static(json) => json.clone(),
            Node::Template(template) => template.evaluate_within(scope, bytes)?,
            Node::List(nodes) => {
                let items = nodes.iter().map(|n| n.evaluate(scope, bytes));
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            Node::Map(nodes) => {
                let pairs = nodes
                    .iter()
                    .map(|(k, n)| Ok((k.clone(), n.evaluate(scope, bytes)?)));
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
            Node::Map(nodes) => {
                let pairs = nodes.iter().map(|(k, n)| (k.clone(), n.to_json()));
                Json::Object(pairs.collect())
            }
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
