//! Commands as a task writes them, and replies as JSON. Not here: sending anything.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redis::{Cmd, Value};
use serde_json::{Map, Number, Value as Json, json};

use crate::outcome::ToolError;
use crate::tool::kind_of;

/// Bytes that are not text are written so, in arguments and in results.
const BASE64: &str = "base64";

/// Commands whose replies never end.
const ENDLESS: [&str; 6] = [
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "MONITOR",
    "SYNC",
    "PSYNC",
];

/// Most commands that a task may have.
const MAX_COMMANDS: usize = 10_000;

/// One command.
#[derive(Debug)]
pub(super) struct Command {
    /// Its first word in capitals, for messages.
    pub(super) name: String,
    cmd: Cmd,
}

impl Command {
    /// A command without arguments.
    pub(super) fn bare(name: &str) -> Command {
        Command::of(vec![name.to_owned()])
    }

    /// A command and its arguments, which are text.
    pub(super) fn of(words: Vec<String>) -> Command {
        Command::new(words.into_iter().map(String::into_bytes).collect())
    }

    fn new(words: Vec<Vec<u8>>) -> Command {
        let first = words.first().map(Vec::as_slice).unwrap_or_default();
        let name = String::from_utf8_lossy(first).to_ascii_uppercase();
        let mut cmd = Cmd::new();
        for word in &words {
            cmd.arg(word.as_slice());
        }
        Command { name, cmd }
    }

    /// As the server reads it.
    pub(super) fn packed(&self) -> Vec<u8> {
        self.cmd.get_packed_command()
    }
}

fn field(message: impl Into<String>) -> ToolError {
    ToolError::invalid("TOOL_FIELD", message)
}

/// The commands of a task: a text is one command; each item of a list is one.
pub(super) fn commands(given: Option<&Json>) -> Result<Vec<Command>, ToolError> {
    let items = match given.unwrap_or(&Json::Null) {
        Json::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    if items.is_empty() || items.len() > MAX_COMMANDS {
        return Err(field(format!(
            "`commands` must have from 1 to {MAX_COMMANDS} commands, it has {}",
            items.len()
        )));
    }
    let numbered = items.iter().enumerate();
    numbered.map(|(at, item)| command(item, at + 1)).collect()
}

fn command(item: &Json, number: usize) -> Result<Command, ToolError> {
    let words: Vec<Vec<u8>> = match item {
        Json::String(text) => {
            let words = shlex::split(text)
                .ok_or_else(|| field(format!("command {number} has a quote that is not closed")))?;
            words.into_iter().map(String::into_bytes).collect()
        }
        Json::Array(words) => words
            .iter()
            .map(|word| argument(word, number))
            .collect::<Result<_, _>>()?,
        other => {
            return Err(field(format!(
                "command {number} must be a text or a list of arguments, it is {}",
                kind_of(other)
            )));
        }
    };
    if words.first().is_none_or(Vec::is_empty) {
        return Err(field(format!("command {number} is empty")));
    }
    let command = Command::new(words);
    if ENDLESS.contains(&command.name.as_str()) {
        return Err(field(format!(
            "{} never ends its reply, so a task cannot use it; read a stream with XREAD BLOCK instead",
            command.name
        )));
    }
    Ok(command)
}

fn argument(word: &Json, number: usize) -> Result<Vec<u8>, ToolError> {
    match word {
        Json::String(text) => Ok(text.clone().into_bytes()),
        Json::Number(value) => Ok(value.to_string().into_bytes()),
        Json::Bool(flag) => Ok(flag.to_string().into_bytes()),
        Json::Object(map) if map.len() == 1 && map.contains_key(BASE64) => {
            let text = map.get(BASE64).and_then(Json::as_str).unwrap_or_default();
            STANDARD.decode(text).map_err(|error| {
                field(format!(
                    "an argument of command {number} is not valid base64: {error}"
                ))
            })
        }
        other => Err(field(format!(
            "an argument of command {number} must be text, a number or a boolean, it is {}; \
             write a value that has parts as JSON with the filter tojson",
            kind_of(other)
        ))),
    }
}

/// A reply as JSON; none if there is no budget for it.
pub(super) fn to_json(value: &Value, budget: &mut usize) -> Option<Json> {
    *budget = budget.checked_sub(4)?;
    Some(match value {
        Value::Nil => Json::Null,
        Value::Int(number) => json!(number),
        Value::Okay => json!("OK"),
        Value::Boolean(flag) => json!(flag),
        Value::Double(number) => {
            let number = Number::from_f64(*number).map(Json::Number);
            number.unwrap_or_else(|| json!(value_text(value)))
        }
        Value::BulkString(bytes) => bytes_json(bytes, budget)?,
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            bytes_json(text.as_bytes(), budget)?
        }
        Value::BigNumber(digits) => bytes_json(digits, budget)?,
        Value::Array(items) | Value::Set(items) | Value::Push { data: items, .. } => {
            let items = items.iter().map(|item| to_json(item, budget));
            Json::Array(items.collect::<Option<_>>()?)
        }
        Value::Map(pairs) => map_json(pairs, budget)?,
        Value::Attribute { data, .. } => to_json(data, budget)?,
        Value::ServerError(error) => {
            json!({ "error": error.code(), "message": error.details() })
        }
        // A kind of reply that this version does not know; the library says that there may be some.
        other => json!(format!("{other:?}")),
    })
}

/// `inf`, `-inf` and `nan`, which JSON does not have.
fn value_text(value: &Value) -> String {
    match value {
        Value::Double(number) => number.to_string().to_lowercase(),
        other => format!("{other:?}"),
    }
}

fn bytes_json(bytes: &[u8], budget: &mut usize) -> Option<Json> {
    *budget = budget.checked_sub(bytes.len())?;
    Some(match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ BASE64: STANDARD.encode(bytes) }),
    })
}

/// A mapping if all keys are text, and each is there once; else a list of pairs.
fn map_json(pairs: &[(Value, Value)], budget: &mut usize) -> Option<Json> {
    let mut map = Map::new();
    let mut list = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let (key, value) = (to_json(key, budget)?, to_json(value, budget)?);
        if let Json::String(key) = &key {
            map.insert(key.clone(), value.clone());
        }
        list.push(json!([key, value]));
    }
    Some(match map.len() == pairs.len() {
        true => Json::Object(map),
        false => Json::Array(list),
    })
}
