//! The tool `redis`: sends commands to a Redis or Valkey server, one after the other, as a pipeline, or as
//! a transaction. A task has a connection of its own, which ends with the task. How a server is reached is in
//! `connection.rs`.

mod connection;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ::redis::{Cmd, ServerError, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json, json};
use stepwell_kernel::plan::ErrorClass;

use crate::file_rules::FileRules;
use crate::hosts::HostRules;
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{TaskContext, Tool, ToolCall, ToolFuture, kind_of, list_or_one};
use connection::{Address, Connection};

/// The server cannot be reached, or was lost.
const REDIS_UNREACHABLE: &str = "REDIS_UNREACHABLE";
/// The replies are larger than a result may be.
const REDIS_TOO_LARGE: &str = "REDIS_TOO_LARGE";
/// The server refused a command with an error that has no usable name. Otherwise the code is `REDIS_` and
/// that name.
const REDIS_ERROR: &str = "REDIS_ERROR";

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

/// Sends commands to Redis servers.
#[derive(Debug, Default)]
pub struct Redis {
    /// Which servers may be connected to.
    pub hosts: Arc<HostRules>,
    /// Which files may be certificates.
    pub files: FileRules,
}

impl Tool for Redis {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let work = self.work(call, cx);
            tokio::select! {
                biased;
                // Dropping the work closes its connection, which ends a command that blocks.
                stop = cx.stopped() => stop.error().into(),
                outcome = work => outcome.unwrap_or_else(|failed| failed),
            }
        })
    }
}

/// How the commands of a task are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Each is sent after the reply to the one before. The first error ends the task.
    InOrder,
    /// All are sent at once. Every command is executed, also after an error.
    Pipeline,
    /// All are sent at once, between MULTI and EXEC.
    Transaction,
}

impl Redis {
    async fn work(&self, call: &ToolCall, cx: &TaskContext) -> Result<TaskOutcome, TaskOutcome> {
        let commands = read_commands(call.fields.get("commands"))?;
        let flag = |name: &str| Ok::<_, ToolError>(call.flag(name)?.unwrap_or_default());
        let mode = match (flag("transaction")?, flag("pipeline")?) {
            (true, _) => Mode::Transaction,
            (false, true) => Mode::Pipeline,
            (false, false) => Mode::InOrder,
        };
        let address = Address::read(call, &self.files)?;
        let mut connection =
            Connection::open(&address, &self.hosts, cx.limits.result_bytes).await?;
        let replies = match mode {
            Mode::InOrder => in_order(&mut connection, &commands).await?,
            Mode::Pipeline => {
                let sent: Vec<&Command> = commands.iter().collect();
                let replies = connection.send(&sent).await.map_err(in_doubt)?;
                match first_error(&commands, &replies) {
                    Some(failed) => return Err(failed),
                    None => replies,
                }
            }
            Mode::Transaction => transaction(&mut connection, &commands).await?,
        };
        Ok(result(&replies, cx.limits.result_bytes))
    }
}

async fn in_order(
    connection: &mut Connection,
    commands: &[Command],
) -> Result<Vec<Value>, TaskOutcome> {
    let mut replies = Vec::with_capacity(commands.len());
    for (at, command) in commands.iter().enumerate() {
        let reply = connection.send(&[command]).await.map_err(in_doubt)?;
        for reply in reply {
            if let Value::ServerError(error) = &reply {
                return Err(refused(error, at, command));
            }
            replies.push(reply);
        }
    }
    Ok(replies)
}

async fn transaction(
    connection: &mut Connection,
    commands: &[Command],
) -> Result<Vec<Value>, TaskOutcome> {
    let (begin, end) = (Command::bare("MULTI"), Command::bare("EXEC"));
    let mut sent = vec![&begin];
    sent.extend(commands);
    sent.push(&end);
    let mut replies = connection.send(&sent).await.map_err(in_doubt)?;
    let executed = replies.pop().unwrap_or_default();
    // What a command is refused for when it is queued says more than EXECABORT.
    if let Some(failed) = first_error(commands, replies.get(1..).unwrap_or_default()) {
        return Err(failed);
    }
    if let Value::ServerError(error) = &executed {
        return Err(refused(error, commands.len(), &end));
    }
    // EXEC answers with a list, or with nil.
    let Value::Array(replies) = executed else {
        return Ok(vec![executed]);
    };
    match first_error(commands, &replies) {
        Some(failed) => Err(failed),
        None => Ok(replies),
    }
}

/// The failure of the first command that the server refused.
fn first_error(commands: &[Command], replies: &[Value]) -> Option<TaskOutcome> {
    let numbered = commands.iter().zip(replies).enumerate();
    for (at, (command, reply)) in numbered {
        if let Value::ServerError(error) = reply {
            return Some(refused(error, at, command));
        }
    }
    None
}

/// The result of a task: the reply to the last command as `value`, all replies as `values`.
fn result(replies: &[Value], limit: usize) -> TaskOutcome {
    let mut budget = limit;
    let values: Option<Vec<Json>> = replies
        .iter()
        .map(|reply| to_json(reply, &mut budget))
        .collect();
    let Some(values) = values else {
        return too_large(limit).into();
    };
    let value = values.last().cloned().unwrap_or_default();
    TaskOutcome::ok(json!({ "value": value, "values": values }))
}

fn too_large(limit: usize) -> ToolError {
    let message = format!(
        "the replies are larger than the {limit} bytes that a result may have; \
         ask for less, for example with SCAN, LRANGE or COUNT"
    );
    ToolError::invalid(REDIS_TOO_LARGE, message)
}

/// The server answered with something that is no reply, or that is nested too deep.
fn unreadable(error: &redis::RedisError) -> ToolError {
    let why = error.detail().unwrap_or(error.category());
    let message = format!("the reply of the Redis server cannot be read: {why}");
    ToolError::invalid(REDIS_ERROR, message)
}

/// The connection was lost after a command was sent.
fn in_doubt(mut error: ToolError) -> ToolError {
    if error.code == REDIS_UNREACHABLE {
        error.retryable = Some(false);
        error.message = format!(
            "{}; it is unknown whether the server executed the commands",
            error.message
        );
    }
    error
}

/// The server refused a command. Arguments may be secrets, so only the command's name is shown.
fn refused(error: &ServerError, at: usize, command: &Command) -> TaskOutcome {
    let code = error.code();
    let number = at + 1;
    let name = &command.name;
    let detail = command.without_arguments(error.details().unwrap_or("no reason given"));
    let message = format!("command {number} ({name}): {code} {detail}");
    let details = json!({ "command": number, "name": name, "code": code });
    TaskOutcome::failed(of_server(error, message)).with("redis", details)
}

/// The error of a task by what the server said.
fn of_server(error: &ServerError, message: String) -> ToolError {
    let code = error.code();
    let usable =
        !code.is_empty() && code.len() <= 32 && code.bytes().all(|it| it.is_ascii_uppercase());
    let detail = error.details().unwrap_or_default();
    let class = match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => ErrorClass::Auth,
        "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY"
        | "NOREPLICAS" | "MISCONF" | "OOM" | "UNBLOCKED" => ErrorClass::Transient,
        "BUSYGROUP" | "BUSYKEY" => ErrorClass::Conflict,
        "ERR" if detail.contains("max number of clients") => ErrorClass::Transient,
        "ERR" if detail.contains("password") || detail.contains("AUTH") => ErrorClass::Auth,
        _ => ErrorClass::Validation,
    };
    match usable {
        true => ToolError::new(class, format!("REDIS_{code}"), message),
        false => ToolError::new(class, REDIS_ERROR, message),
    }
}

/// One Redis command with its arguments.
#[derive(Debug)]
struct Command {
    /// The first word in capitals, for messages.
    name: String,
    cmd: Cmd,
}

impl Command {
    /// What the server said, without the arguments that it repeats.
    fn without_arguments(&self, said: &str) -> String {
        // `unknown command 'X', with args beginning with: 'a' 'b'`
        let said = said.split(", with args beginning with").next();
        let mut said = said.unwrap_or_default().to_owned();
        for argument in self.cmd.args_iter().skip(1) {
            if let redis::Arg::Simple(bytes) = argument
                && bytes.len() > 2
            {
                said = said.replace(&*String::from_utf8_lossy(bytes), "…");
            }
        }
        said
    }

    /// A command without arguments.
    fn bare(name: &str) -> Command {
        Command::of(vec![name.to_owned()])
    }

    /// A command and its arguments, which are text.
    fn of(words: Vec<String>) -> Command {
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
    fn packed(&self) -> Vec<u8> {
        self.cmd.get_packed_command()
    }
}

fn field(message: impl Into<String>) -> ToolError {
    ToolError::invalid("TOOL_FIELD", message)
}

/// The commands of a task: a text is one command; each item of a list is one.
fn read_commands(given: Option<&Json>) -> Result<Vec<Command>, ToolError> {
    let items = list_or_one(given.unwrap_or(&Json::Null));
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
        other @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_)) => {
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
        other @ (Json::Null | Json::Array(_) | Json::Object(_)) => Err(field(format!(
            "an argument of command {number} must be text, a number or a boolean, it is {}; \
             write a value that has parts as JSON with the filter tojson",
            kind_of(other)
        ))),
    }
}

/// A reply as JSON; none if there is no budget for it.
fn to_json(value: &Value, budget: &mut usize) -> Option<Json> {
    *budget = budget.checked_sub(4)?;
    Some(match value {
        Value::Nil => Json::Null,
        Value::Int(number) => json!(number),
        Value::Okay => json!("OK"),
        Value::Boolean(flag) => json!(flag),
        // JSON does not have `inf`, `-inf` and `nan`.
        Value::Double(number) => Number::from_f64(*number)
            .map_or_else(|| json!(number.to_string().to_lowercase()), Json::Number),
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
