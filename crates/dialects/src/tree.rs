//! A definition as a tree whose nodes remember where they stood.
//!
//! Here: the nodes, the limits, and [`parse`]. Not here: what any key means;
//! that is for the front-ends, through [`crate::reader`].
//!
//! The tree is finished data: aliases are copied out, merge keys are merged,
//! keys are unique text, numbers are finite. A tree is never deeper than
//! [`MAX_DEPTH`], so code may walk it recursively.

use serde_json::Value as Json;

use crate::problem::Problem;
use crate::source::{Source, Span};
use crate::words;

/// How deep mappings and lists may nest.
pub const MAX_DEPTH: usize = 64;

/// How many values a definition may hold once its aliases are copied out.
pub const MAX_NODES: usize = 200_000;

/// The longest single text, in bytes.
pub const MAX_SCALAR_BYTES: usize = 1024 * 1024;

/// How many bytes of text aliases may copy in all. Counting values is not
/// enough: a few thousand aliases of one long text would fill the memory.
pub const MAX_COPIED_BYTES: usize = 16 * 1024 * 1024;

/// A value and where it stood. For a value copied by an alias, the span of
/// the alias; for what is inside of it, the spans of the original.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The place of the value in the source.
    pub span: Span,
    pub value: Value,
}

/// What a node can be.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: `null`, `~` or no value at all.
    Null,
    Bool(bool),
    /// A whole number that fits 64 bits.
    Int(i64),
    /// Any other number; always finite.
    Float(f64),
    Str(String),
    Seq(Vec<Node>),
    /// A mapping, in source order; keys are unique.
    Map(Vec<MapEntry>),
}

/// One `key: value` of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct MapEntry {
    /// The key, as it was written.
    pub key: String,
    /// The place of the key in the source.
    pub key_span: Span,
    pub node: Node,
}

/// Parses YAML 1.2, and with it JSON.
///
/// ```
/// use stepwell_dialects::{Source, tree};
/// let source = Source::from_bytes("a.yaml", b"name: build\nretries: 3\n").expect("UTF-8");
/// let node = tree::parse(&source).expect("valid");
/// assert_eq!(node.get("retries").and_then(tree::Node::as_int), Some(3));
/// ```
///
/// # Errors
/// Every problem found, in source order, with a `SOURCE_…` code. A syntax
/// error or an exceeded limit ends the reading; other problems do not.
pub fn parse(source: &Source) -> Result<Node, Vec<Problem>> {
    crate::parse::parse(source)
}

impl Node {
    /// The value of a key, if this is a mapping that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        let entries = self.as_map()?;
        let entry = entries.iter().find(|entry| entry.key == key)?;
        Some(&entry.node)
    }

    /// The entries, if this is a mapping.
    #[must_use]
    pub fn as_map(&self) -> Option<&[MapEntry]> {
        if let Value::Map(entries) = &self.value {
            Some(entries)
        } else {
            None
        }
    }

    /// The items, if this is a list.
    #[must_use]
    pub fn as_seq(&self) -> Option<&[Node]> {
        if let Value::Seq(items) = &self.value {
            Some(items)
        } else {
            None
        }
    }

    /// The text, if this is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::Str(text) = &self.value {
            Some(text)
        } else {
            None
        }
    }

    /// The number, if this is a whole number.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        if let Value::Int(int) = &self.value {
            Some(*int)
        } else {
            None
        }
    }

    /// The truth value, if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = &self.value {
            Some(*value)
        } else {
            None
        }
    }

    /// Whether there is nothing here.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// What was found here, for a message: "a list", "the number 5".
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Int(int) => format!("the number {int}"),
            Value::Float(float) => format!("the number {float:?}"),
            Value::Str(text) => format!("the text {}", words::quote(text)),
            Value::Seq(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// The value as JSON. Positions are lost.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(int) => Json::from(*int),
            Value::Float(float) => Json::from(*float),
            Value::Str(text) => Json::from(text.as_str()),
            Value::Seq(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.node.to_json()))
                .collect(),
        }
    }
}
