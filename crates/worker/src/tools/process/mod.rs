//! What all tools share that run a program: where it runs, what it sees, how its output is kept and
//! how it is ended. What is run, and what its end means, is the tool's own.

mod capture;
pub(crate) mod codes;
mod environment;
mod group;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use stepwell_kernel::plan::ErrorClass;

use crate::outcome::ToolError;
use crate::tool::ToolCall;

pub(crate) use capture::{Capture, Piped, piped};
pub(crate) use environment::{environment, who_calls};
pub(crate) use group::Group;

/// How long output is still read after the program's end: only a process that left the group can
/// hold it open that long.
const DRAIN: Duration = Duration::from_millis(500);

/// Where programs run and what they see of the worker.
#[derive(Clone, Debug, Default)]
pub struct ProcessOptions {
    /// What `cwd` is relative to; the worker's own directory if absent.
    pub directory: Option<PathBuf>,
    /// Variables of the worker's environment that are handed on beside the usual ones.
    pub pass: Vec<String>,
}

impl ProcessOptions {
    /// The directory that a task runs in.
    pub(crate) fn directory(&self, call: &ToolCall) -> Result<PathBuf, ToolError> {
        let base = self.directory.clone().unwrap_or_else(|| PathBuf::from("."));
        let wanted = match call.text("cwd")? {
            Some(cwd) => base.join(cwd),
            None => base,
        };
        // Absolute, since the program that changes into it may stand somewhere else.
        std::path::absolute(&wanted)
            .ok()
            .filter(|path| path.is_dir())
            .ok_or_else(|| {
                ToolError::invalid(
                    codes::PROCESS_CWD,
                    format!(
                        "there is no directory `{}`; create it, or correct `cwd`",
                        wanted.display()
                    ),
                )
            })
    }
}

/// Waits for `main` while `output` is read, and then for what is left of the output.
pub(crate) async fn while_reading<T>(
    main: impl Future<Output = T>,
    output: impl Future<Output = ()>,
) -> T {
    let mut main = pin!(main);
    let mut output = pin!(output);
    tokio::select! {
        done = &mut main => {
            // A process that left the group may write without end; the task does not wait for it.
            drop(tokio::time::timeout(DRAIN, output).await);
            done
        }
        () = &mut output => main.await,
    }
}

/// The machine had no room for one more process, or the like.
pub(crate) fn cannot_start(what: &str, error: &io::Error) -> ToolError {
    if error.kind() == io::ErrorKind::ArgumentListTooLong {
        return ToolError::invalid(
            codes::PROCESS_START,
            format!("{what} is too long to be started; put it into a file, or hand on less"),
        );
    }
    ToolError::new(
        ErrorClass::Transient,
        codes::PROCESS_START,
        format!("{what} could not be started: {error}"),
    )
}

/// A signal's name, for messages.
pub(crate) fn signal_name(signal: i32) -> String {
    match signal {
        1 => "SIGHUP".into(),
        2 => "SIGINT".into(),
        4 => "SIGILL".into(),
        6 => "SIGABRT".into(),
        8 => "SIGFPE".into(),
        9 => "SIGKILL".into(),
        11 => "SIGSEGV".into(),
        13 => "SIGPIPE".into(),
        15 => "SIGTERM".into(),
        other => format!("signal {other}"),
    }
}

/// SIGKILL comes from outside, most often since memory ran out: elsewhere or later it may go well.
/// Every other signal the program brought upon itself.
pub(crate) fn class_of_signal(signal: i32) -> ErrorClass {
    match signal {
        9 => ErrorClass::Transient,
        _ => ErrorClass::Unknown,
    }
}
