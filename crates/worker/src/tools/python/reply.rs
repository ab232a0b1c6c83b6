//! What the interpreter answered, and what that means for the task.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::zygote::PythonExit;
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{StopReason, TaskContext};
use crate::tools::process::{class_of_signal, codes, signal_name};

/// An answer holds more than the result: notes, or a traceback with room for the longest secret.
const BESIDE: usize = 4 << 20;

/// The longest message and traceback that are kept, in bytes.
pub(super) const LONGEST_TEXT: usize = 16 << 10;

/// What came from the process.
#[derive(Debug)]
pub(super) enum Received {
    Nothing,
    Reply(PythonReply),
    /// Something that is no answer.
    Rubbish(String),
}

/// As `step.py` writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PythonReply {
    Value {
        value: Json,
        notes: Vec<String>,
    },
    Exit {
        code: i64,
    },
    Refused {
        message: String,
    },
    Exception {
        exception: String,
        message: String,
        line: Option<u64>,
        traceback: String,
        class: String,
    },
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct PythonCallEnd {
    pub(super) exit: PythonExit,
    pub(super) stop: Option<StopReason>,
    pub(super) pid: Option<i32>,
    pub(super) answer: Received,
}

/// Sends the request and waits for the answer. The code can reach this channel too, so nothing that
/// comes is trusted.
/// The channel is closed at the end, so that nobody waits to write what nobody reads.
pub(super) async fn exchange(mut channel: UnixStream, request: &[u8], limit: usize) -> Received {
    let size = (request.len() as u64).to_be_bytes();
    if channel.write_all(&size).await.is_err() || channel.write_all(request).await.is_err() {
        return Received::Nothing;
    }
    let Ok(size) = channel.read_u64().await else {
        return Received::Nothing;
    };
    if size > (limit + BESIDE) as u64 {
        return Received::Rubbish(format!("it announces {size} bytes"));
    }
    let mut answer = Vec::new();
    if channel.take(size).read_to_end(&mut answer).await.is_err() {
        return Received::Nothing;
    }
    match serde_json::from_slice(&answer) {
        Ok(answer) => Received::Reply(answer),
        Err(error) => Received::Rubbish(error.to_string()),
    }
}

/// What a call's end means.
pub(super) fn outcome(ended: PythonCallEnd, cx: &TaskContext) -> TaskOutcome {
    let PythonCallEnd {
        exit,
        stop,
        pid,
        answer,
    } = ended;
    let bare = json!({ "pid": pid });
    if let Some(stop) = stop {
        return TaskOutcome::failed(stop.error()).with("py", bare);
    }
    match answer {
        Received::Reply(answer) => answered(answer, pid, cx),
        Received::Rubbish(why) => TaskOutcome::failed(ToolError::invalid(
            codes::PYTHON_RESULT,
            format!("the result cannot be read: {why}"),
        ))
        .with("py", bare),
        Received::Nothing => unanswered(&exit, pid),
    }
}

fn answered(answer: PythonReply, pid: Option<i32>, cx: &TaskContext) -> TaskOutcome {
    match answer {
        PythonReply::Value { value, notes } => {
            for note in &notes {
                cx.log.note(&format!("result: {note}"));
            }
            TaskOutcome::ok(value).with("py", json!({ "pid": pid, "notes": notes }))
        }
        PythonReply::Exit { code: 0 } => {
            TaskOutcome::ok(Json::Null).with("py", json!({ "pid": pid }))
        }
        PythonReply::Exit { code } => TaskOutcome::failed(ToolError::new(
            ErrorClass::Unknown,
            codes::PYTHON_EXIT,
            format!("the code ended with sys.exit({code})"),
        ))
        .with("py", json!({ "pid": pid, "exit_code": code })),
        PythonReply::Refused { message } => {
            TaskOutcome::failed(ToolError::invalid(codes::PYTHON_RESULT, message))
                .with("py", json!({ "pid": pid }))
        }
        PythonReply::Exception {
            exception,
            message,
            line,
            traceback,
            class,
        } => {
            let message = head(&message, cx);
            let traceback = tail(&traceback, cx);
            let place = line.map_or(String::new(), |line| format!(" (line {line} of the code)"));
            let text = match message.as_str() {
                "" => format!("{exception}{place}"),
                message => format!("{exception}: {message}{place}"),
            };
            TaskOutcome::failed(ToolError::new(
                class_named(&class),
                code_of(&exception),
                text,
            ))
            .with(
                "py",
                json!({ "exception": exception, "traceback": traceback, "line": line, "pid": pid }),
            )
        }
    }
}

/// The beginning of a text, without secrets.
fn head(text: &str, cx: &TaskContext) -> String {
    let end = text.floor_char_boundary(LONGEST_TEXT);
    let clean = cx.redactor.window(text.as_bytes(), 0..end);
    String::from_utf8_lossy(&clean).into_owned()
}

/// The end of a text, without secrets.
fn tail(text: &str, cx: &TaskContext) -> String {
    let start = text.ceil_char_boundary(text.len().saturating_sub(LONGEST_TEXT));
    let clean = cx.redactor.window(text.as_bytes(), start..text.len());
    String::from_utf8_lossy(&clean).into_owned()
}

fn unanswered(exit: &PythonExit, pid: Option<i32>) -> TaskOutcome {
    let error = match exit {
        PythonExit::Code(code) => ToolError::new(
            ErrorClass::Unknown,
            codes::PYTHON_EXIT,
            format!("the interpreter ended with exit code {code} before the code gave a result"),
        ),
        PythonExit::Signal(signal) => ToolError::new(
            class_of_signal(*signal),
            codes::PYTHON_EXIT,
            format!("the interpreter was ended by {}", signal_name(*signal)),
        ),
        PythonExit::Lost => ToolError::new(
            ErrorClass::Transient,
            codes::PYTHON_LOST,
            "the interpreter that runs the calls went away, and this call with it",
        ),
    };
    let (code, signal) = match exit {
        PythonExit::Code(code) => (Some(code), None),
        PythonExit::Signal(signal) => (None, Some(signal)),
        PythonExit::Lost => (None, None),
    };
    TaskOutcome::failed(error).with(
        "py",
        json!({ "pid": pid, "exit_code": code, "signal": signal }),
    )
}

fn class_named(name: &str) -> ErrorClass {
    match name {
        "timeout" => ErrorClass::Timeout,
        "transport" => ErrorClass::Transport,
        "validation" => ErrorClass::Validation,
        _ => ErrorClass::Unknown,
    }
}

/// A class may be named with any text; a code may not.
fn code_of(exception: &str) -> String {
    let usable = !exception.is_empty()
        && exception.len() <= 64
        && exception
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_');
    if usable {
        format!("PY_{exception}")
    } else {
        codes::PY_EXCEPTION.to_owned()
    }
}
