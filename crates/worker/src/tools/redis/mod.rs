//! The tool `redis`: sends commands to a Redis or Valkey server, one after the other, as a pipeline, or as
//! a transaction. A task has a connection of its own, which ends with the task. How a server is reached is in
//! `connection.rs`, how values are read and shown in `values.rs`.

mod connection;
mod values;

use ::redis::{ServerError, Value};
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;

use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{TaskContext, Tool, ToolCall, ToolFuture};
use connection::{Address, Connection};
use values::Command;

/// The server cannot be reached, or was lost.
const REDIS_UNREACHABLE: &str = "REDIS_UNREACHABLE";
/// The replies are larger than a result may be.
const REDIS_TOO_LARGE: &str = "REDIS_TOO_LARGE";
/// The server refused a command with an error that has no usable name. Otherwise the code is `REDIS_` and
/// that name.
const REDIS_ERROR: &str = "REDIS_ERROR";

/// Sends commands to Redis servers.
#[derive(Debug, Default)]
pub struct Redis;

impl Tool for Redis {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let work = work(call, cx);
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

async fn work(call: &ToolCall, cx: &TaskContext) -> Result<TaskOutcome, TaskOutcome> {
    let commands = values::commands(call.fields.get("commands"))?;
    let flag = |name: &str| Ok::<_, ToolError>(call.flag(name)?.unwrap_or_default());
    let mode = match (flag("transaction")?, flag("pipeline")?) {
        (true, _) => Mode::Transaction,
        (false, true) => Mode::Pipeline,
        (false, false) => Mode::InOrder,
    };
    let address = Address::read(call)?;
    let mut connection = Connection::open(&address, cx.limits.result_bytes).await?;
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
    match executed {
        Value::Array(replies) => match first_error(commands, &replies) {
            Some(failed) => Err(failed),
            None => Ok(replies),
        },
        Value::ServerError(error) => Err(refused(&error, commands.len(), &end)),
        other => Ok(vec![other]),
    }
}

/// The failure of the first command that the server refused.
fn first_error(commands: &[Command], replies: &[Value]) -> Option<TaskOutcome> {
    let numbered = commands.iter().zip(replies).enumerate();
    let mut errors = numbered.filter_map(|(at, (command, reply))| match reply {
        Value::ServerError(error) => Some(refused(error, at, command)),
        _ => None,
    });
    errors.next()
}

/// The result of a task: the reply to the last command as `value`, all replies as `values`.
fn result(replies: &[Value], limit: usize) -> TaskOutcome {
    let mut budget = limit;
    let values: Option<Vec<Json>> = replies
        .iter()
        .map(|reply| values::to_json(reply, &mut budget))
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
    let detail = error.details().unwrap_or("no reason given");
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
