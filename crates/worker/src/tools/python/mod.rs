//! `python`: a step's code, run in a process of its own that is forked from an interpreter which is
//! already there. What happens inside the interpreter is in `step.py` and `zygote.py`.

mod reply;
mod request;
#[cfg(test)]
mod tests;
mod zygote;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::process::{Capture, ProcessOptions, while_reading};
use crate::outcome::{TaskOutcome, ToolError};
use crate::step_log::Stream;
use crate::tool::{TaskContext, Tool, ToolCall, ToolFuture};
use reply::{PythonCallEnd, outcome};
use zygote::{PythonExit, StartedCall, Zygote};

/// How Python is run.
#[derive(Clone, Debug)]
pub struct PythonOptions {
    /// Where programs run and what they see of the worker.
    pub process: ProcessOptions,
    /// The interpreter, or the directory of a virtual environment.
    pub python: PathBuf,
    /// Whether calls are forked from one interpreter, or each starts its own.
    pub warm: bool,
    /// Modules that are imported before the first warm call, so that no call pays for them. None
    /// that starts threads: a fork does not take them along.
    pub preload: Vec<String>,
    /// How much memory a call may map; no limit if absent.
    pub memory_bytes: Option<u64>,
}

impl Default for PythonOptions {
    fn default() -> PythonOptions {
        PythonOptions {
            process: ProcessOptions::default(),
            python: PathBuf::from("python3"),
            warm: true,
            preload: vec!["asyncio".into()],
            memory_bytes: None,
        }
    }
}

impl PythonOptions {
    fn interpreter(&self) -> PathBuf {
        let in_venv = self.python.join("bin/python");
        if in_venv.is_file() {
            in_venv
        } else {
            self.python.clone()
        }
    }

    fn is_there(&self, interpreter: &Path) -> bool {
        // A bare name is looked for on the path.
        interpreter.components().count() == 1 || interpreter.is_file()
    }
}

/// The tool `python`: runs Python code in a process for each call.
#[derive(Debug)]
pub struct Python {
    options: PythonOptions,
    /// The interpreter that calls are forked from, while there is one.
    zygote: Mutex<Option<Arc<Zygote>>>,
}

impl Python {
    /// Nothing is started before the first call.
    #[must_use]
    pub fn new(options: PythonOptions) -> Python {
        Python {
            options,
            zygote: Mutex::new(None),
        }
    }

    /// With the interpreter or the virtual environment that `STEPWELL_PYTHON` names, else the one in
    /// `PATH`.
    pub(super) fn from_env() -> Python {
        let mut options = PythonOptions::default();
        if let Some(path) = std::env::var_os("STEPWELL_PYTHON").filter(|it| !it.is_empty()) {
            options.python = path.into();
        }
        Python::new(options)
    }

    async fn step(&self, call: &ToolCall, cx: &TaskContext) -> Result<TaskOutcome, ToolError> {
        let request = request::encode(&self.options, call, cx)?;
        let StartedCall {
            mut process,
            channel,
            stdout,
            stderr,
        } = tokio::select! {
            begun = self.begin() => begun?,
            stop = cx.stopped() => return Ok(TaskOutcome::failed(stop.error())),
        };
        let mut out = Capture::new(Stream::Out, cx);
        let mut err = Capture::new(Stream::Err, cx);
        let mut answer = reply::Received::Nothing;
        let (exit, stop) = {
            let talk = async {
                answer = reply::exchange(channel, &request, cx.limits.result_bytes).await;
            };
            let output = async {
                tokio::join!(talk, out.read(stdout), err.read(stderr));
            };
            while_reading(supervise(&mut process, cx), output).await
        };
        out.finish();
        err.finish();
        Ok(outcome(
            PythonCallEnd {
                exit,
                stop,
                pid: process.pid(),
                answer,
            },
            cx,
        ))
    }

    /// A process for one call. It has not seen any of the call yet, so that a second try is safe.
    async fn begin(&self) -> Result<StartedCall, ToolError> {
        if !self.options.warm {
            return Arc::new(Zygote::start(&self.options)?).begin().await;
        }
        let zygote = self.living(None).await?;
        match Arc::clone(&zygote).begin().await {
            Ok(begun) => Ok(begun),
            Err(_) if !zygote.is_alive() => self.living(Some(&zygote)).await?.begin().await,
            Err(error) => Err(error),
        }
    }

    /// The interpreter that is there, or a new one if it is not, or is `dead`.
    async fn living(&self, dead: Option<&Arc<Zygote>>) -> Result<Arc<Zygote>, ToolError> {
        let mut kept = self.zygote.lock().await;
        if let Some(zygote) = kept.as_ref()
            && zygote.is_alive()
            && dead.is_none_or(|dead| !Arc::ptr_eq(dead, zygote))
        {
            return Ok(Arc::clone(zygote));
        }
        let zygote = Arc::new(Zygote::start(&self.options)?);
        *kept = Some(Arc::clone(&zygote));
        Ok(zygote)
    }
}

impl Tool for Python {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move { self.step(call, cx).await.unwrap_or_else(TaskOutcome::from) })
    }
}

/// Waits for the process, and ends it when the task must end.
async fn supervise(
    process: &mut zygote::PythonProcess,
    cx: &TaskContext,
) -> (PythonExit, Option<crate::tool::StopReason>) {
    let stop = tokio::select! {
        biased;
        exit = process.exit() => return (exit, None),
        stop = cx.stopped() => stop,
    };
    (process.end(cx.limits.grace).await, Some(stop))
}
