//! What went wrong on a server, in the words of a task: the class by the SQLSTATE, the statement by
//! its number and first words. No parameter and no password gets into it.

use serde_json::{Map, Value as Json};
use stepwell_kernel::plan::ErrorClass;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition};

use super::pool::Unconnected;
use crate::outcome::{TaskOutcome, ToolError, denied_host};
use crate::tools::sql::codes;
use crate::tools::sql::params::{Params, Rewritten};
use crate::tools::sql::{SqlStatement, details};
use stepwell_pg::ConnectError;

/// The statement that an error belongs to.
pub(super) struct ErrorContext<'a> {
    pub(super) number: usize,
    pub(super) statement: &'a SqlStatement,
    pub(super) sent: Option<&'a Rewritten>,
    pub(super) params: &'a Params,
}

/// The outcome of a statement that failed: class and code from the SQLSTATE, and the line in the task.
pub(super) fn of_statement(error: &Error, place: &ErrorContext<'_>) -> TaskOutcome {
    let mut told = details(place.number, &place.statement.shown);
    let shown = format!("statement {} ({})", place.number, place.statement.shown);
    let Some(server) = error.as_db_error() else {
        let error = lost(error, &format!("during {shown}"));
        return TaskOutcome::failed(error).with("pg", Json::Object(told));
    };
    let line = place.sent.and_then(|sent| line(server, sent, place));
    if let Some(line) = line {
        told.insert("line".into(), line.into());
    }
    told.extend(fields(server));
    let at = line.map_or_else(String::new, |line| format!(", line {line}"));
    let said = place.params.hidden_in(server.message());
    let error = of_server(server, format!("{shown}{at}: {said}"));
    TaskOutcome::failed(error).with("pg", Json::Object(told))
}

/// A commit that failed. If its answer is lost, its result is not known.
pub(super) fn of_commit(error: &Error) -> TaskOutcome {
    match error.as_db_error() {
        Some(server) => {
            let error = of_server(server, format!("at the commit: {}", server.message()));
            TaskOutcome::failed(error).with("pg", Json::Object(fields(server)))
        }
        None => in_doubt(TaskOutcome::failed(lost(error, "while it committed"))),
    }
}

/// Without a transaction around it, what a lost connection was doing may be done or not; to do it
/// again could do it twice.
pub(super) fn in_doubt(mut failed: TaskOutcome) -> TaskOutcome {
    let lost = failed.error.as_mut();
    if let Some(error) = lost.filter(|error| error.class == ErrorClass::Transport) {
        error.message += "; it is not known whether the changes were kept";
        error.retryable = Some(false);
    }
    failed
}

/// A connection that could not be made.
pub(super) fn of_connecting(why: &Unconnected, place: &str) -> TaskOutcome {
    let error = match why {
        Unconnected::Connecting(ConnectError::Driver(error)) => error,
        Unconnected::Connecting(error @ ConnectError::WrongKind(_)) => {
            let message = format!("cannot connect to {place}: {error}");
            return TaskOutcome::failed(unreachable(message));
        }
        Unconnected::Connecting(ConnectError::Timeout(time)) | Unconnected::Slow(time) => {
            let message = format!("{place} does not answer within {time:?}");
            return TaskOutcome::failed(unreachable(message));
        }
        Unconnected::Unknown(why) => {
            let message = format!("cannot connect to {place}: {why}");
            return TaskOutcome::failed(unreachable(message));
        }
        Unconnected::Denied(denied) => return TaskOutcome::failed(denied_host(denied)),
    };
    match error.as_db_error() {
        Some(server) => {
            let message = format!("{place} refuses: {}", server.message());
            let error = of_server(server, message);
            TaskOutcome::failed(error).with("pg", Json::Object(fields(server)))
        }
        None => {
            let why = chain(error);
            // The driver itself refuses to go on without a password that it was not given.
            let auth = why.contains("authentication error") || why.contains("password missing");
            let mut told = unreachable(format!("cannot connect to {place}: {why}"));
            if auth {
                told.class = ErrorClass::Auth;
            }
            TaskOutcome::failed(told)
        }
    }
}

fn lost(error: &Error, when: &str) -> ToolError {
    unreachable(format!("the connection was lost {when}: {}", chain(error)))
}

fn unreachable(message: String) -> ToolError {
    ToolError::new(ErrorClass::Transport, codes::PG_UNREACHABLE, message)
}

/// An error with what caused it; the driver's own text leaves that out.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

fn of_server(server: &DbError, mut message: String) -> ToolError {
    if let Some(hint) = server.hint() {
        message = format!("{message} ({hint})");
    }
    let state = server.code().code();
    ToolError::new(class(state), codes::sqlstate(state), message)
}

fn fields(server: &DbError) -> Map<String, Json> {
    let state = server.code().code();
    let fields = [
        ("code", Some(state)),
        ("sqlstate", Some(state)),
        ("severity", Some(server.severity())),
        ("detail", server.detail()),
        ("hint", server.hint()),
        ("constraint", server.constraint()),
        ("schema", server.schema()),
        ("table", server.table()),
        ("column", server.column()),
    ];
    let given = fields.into_iter();
    let given = given.filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    given.collect()
}

/// The line in the command that the server points at.
fn line(server: &DbError, sent: &Rewritten, place: &ErrorContext<'_>) -> Option<usize> {
    let ErrorPosition::Original(character) = server.position()? else {
        return None;
    };
    let character = usize::try_from(*character).ok()?.checked_sub(1)?;
    Some(place.statement.line + sent.line(&place.statement.text, character))
}

fn class(state: &str) -> ErrorClass {
    match state {
        "57014" => ErrorClass::Timeout,
        "42501" => ErrorClass::Auth,
        "40001" | "40P01" | "55P03" => ErrorClass::Transient,
        "57P01" | "57P02" | "57P03" | "53300" => ErrorClass::Transport,
        _ => match state.get(..2).unwrap_or_default() {
            "08" => ErrorClass::Transport,
            "53" | "58" => ErrorClass::Transient,
            "28" => ErrorClass::Auth,
            "23" => ErrorClass::Conflict,
            "22" | "42" | "3D" | "3F" | "0A" | "25" | "26" | "34" => ErrorClass::Validation,
            _ => ErrorClass::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_apart_by_what_helps() {
        for (state, expected) in [
            ("08006", ErrorClass::Transport),
            ("57P01", ErrorClass::Transport),
            ("53300", ErrorClass::Transport),
            ("40001", ErrorClass::Transient),
            ("40P01", ErrorClass::Transient),
            ("53200", ErrorClass::Transient),
            ("28P01", ErrorClass::Auth),
            ("42501", ErrorClass::Auth),
            ("23505", ErrorClass::Conflict),
            ("42601", ErrorClass::Validation),
            ("22P02", ErrorClass::Validation),
            ("XX000", ErrorClass::Unknown),
        ] {
            assert_eq!(class(state), expected, "{state}");
        }
    }
}
