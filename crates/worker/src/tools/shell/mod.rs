//! `shell`: commands, one after the other, until one fails. All of a task's commands share a process
//! group, and nothing in it outlives the task.

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tokio::process::Command;
use tokio::time::Instant;

use super::process::{
    Capture, Group, Piped, ProcessOptions, cannot_start, class_of_signal, codes, environment,
    piped, signal_name, while_reading,
};
use crate::outcome::{TaskOutcome, ToolError};
use crate::step_log::Stream;
use crate::tool::{StopReason, TaskContext, Tool, ToolCall, ToolFuture, kind_of};

/// How much of standard error is in a message.
const SHOWN: usize = 2048;

/// Larger arguments are not put into the environment: some of it must be left for the rest.
const LARGEST_ARGS: usize = 64 * 1024;

/// Has the text of a command that contains a secret.
const COMMAND: &str = "STEPWELL_COMMAND";

/// Runs the text in [`COMMAND`], without handing it on to the programs that the command starts.
const EVALUATE: &str = r#"eval "unset STEPWELL_COMMAND; $STEPWELL_COMMAND""#;

/// Runs commands with a shell.
#[derive(Debug)]
pub struct Shell {
    options: ProcessOptions,
    shell: PathBuf,
}

impl Shell {
    /// With bash where it is there, since that is what scripts are written for, else with sh.
    #[must_use]
    pub fn new(options: ProcessOptions) -> Shell {
        let shell = on_path("bash").unwrap_or_else(|| PathBuf::from("sh"));
        Shell { options, shell }
    }

    /// With this shell instead. It must take `-c`.
    #[must_use]
    pub fn with_shell(self, shell: PathBuf) -> Shell {
        Shell { shell, ..self }
    }

    async fn commands(&self, call: &ToolCall, cx: &TaskContext) -> Result<TaskOutcome, ToolError> {
        let mut work = ShellWork::new(self, call, cx)?;
        let mut out = Capture::new(Stream::Out, cx);
        let mut err = Capture::new(Stream::Err, cx);
        let pipe = || piped().map_err(|error| cannot_start("a pipe", &error));
        let (Piped { reader, writer }, errors) = (pipe()?, pipe()?);
        let (stdout, stderr) = (out.read(reader), err.read(errors.reader));
        let output = async {
            tokio::join!(stdout, stderr);
        };
        let ended = while_reading(work.run(writer, errors.writer), output).await;
        out.finish();
        err.finish();
        Ok(outcome(ended, work.done, &out, &err))
    }
}

impl Tool for Shell {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move {
            self.commands(call, cx)
                .await
                .unwrap_or_else(TaskOutcome::from)
        })
    }
}

/// How the commands ended.
enum ShellEnd {
    /// With the last one's status. It failed, or it is the last of all.
    Exited {
        status: ExitStatus,
        pid: u32,
    },
    Stopped(StopReason),
    Failed(ToolError),
}

/// The commands of one call.
struct ShellWork<'a> {
    cx: &'a TaskContext,
    shell: &'a Path,
    commands: Vec<&'a str>,
    directory: PathBuf,
    env: std::collections::BTreeMap<String, String>,
    /// The result of each command so far.
    done: Vec<Json>,
}

impl<'a> ShellWork<'a> {
    fn new(
        shell: &'a Shell,
        call: &'a ToolCall,
        cx: &'a TaskContext,
    ) -> Result<ShellWork<'a>, ToolError> {
        let mut env = environment(&shell.options, call, cx)?;
        let args = Json::Object(call.args.clone()).to_string();
        if args.len() <= LARGEST_ARGS {
            env.entry("STEPWELL_ARGS".into()).or_insert(args);
        }
        Ok(ShellWork {
            cx,
            shell: &shell.shell,
            commands: commands(call)?,
            directory: shell.options.directory(call)?,
            env,
            done: Vec::new(),
        })
    }

    async fn run(&mut self, stdout: OwnedFd, stderr: OwnedFd) -> ShellEnd {
        let group = match Group::new() {
            Ok(group) => group,
            Err(error) => return ShellEnd::Failed(cannot_start("`sh`", &error)),
        };
        let ended = self.each(&group, &stdout, &stderr).await;
        group.end().await;
        ended
    }

    async fn each(&mut self, group: &Group, stdout: &OwnedFd, stderr: &OwnedFd) -> ShellEnd {
        let mut last = None;
        for command in std::mem::take(&mut self.commands) {
            if self.cx.cancelled.is_cancelled() {
                return ShellEnd::Stopped(StopReason::Cancelled);
            }
            let began = Instant::now();
            let ended = self.one(command, group, stdout, stderr).await;
            let ShellEnd::Exited { status, .. } = &ended else {
                return ended;
            };
            let status = *status;
            self.done.push(json!({
                "exit_code": exit_code(status),
                "duration_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            }));
            if !status.success() {
                return ended;
            }
            last = Some(ended);
        }
        last.unwrap_or_else(|| {
            ShellEnd::Failed(ToolError::invalid("TOOL_FIELD", "`cmds` is empty"))
        })
    }

    async fn one(
        &self,
        command: &str,
        group: &Group,
        stdout: &OwnedFd,
        stderr: &OwnedFd,
    ) -> ShellEnd {
        // The command line of a process can be read by every user of the machine, its environment cannot.
        let is_secret = self.cx.redactor.finds(command);
        let (text, hidden) = match is_secret {
            true => (EVALUATE, Some((COMMAND, command))),
            false => (command, None),
        };
        let spawned = (|| {
            Command::new(self.shell)
                .args(["-c", text])
                .env_clear()
                .envs(&self.env)
                .envs(hidden)
                .current_dir(&self.directory)
                .stdin(Stdio::null())
                .stdout(stdout.try_clone()?)
                .stderr(stderr.try_clone()?)
                .process_group(group.id())
                .spawn()
        })();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return ShellEnd::Failed(ToolError::invalid(
                    codes::SHELL_NOT_FOUND,
                    format!("the shell is not there: {}", self.shell.display()),
                ));
            }
            Err(error) => return ShellEnd::Failed(cannot_start("the command", &error)),
        };
        let pid = child.id().unwrap_or_default();
        tokio::select! {
            biased;
            status = child.wait() => match status {
                Ok(status) => ShellEnd::Exited { status, pid },
                Err(error) => ShellEnd::Failed(cannot_start("the command", &error)),
            },
            stop = self.cx.stopped() => {
                group.terminate();
                match tokio::time::timeout(self.cx.limits.grace, child.wait()).await {
                    // It was asked to end and brought its work to an end instead. After a timeout that is too late.
                    Ok(Ok(status)) if status.success() && stop == StopReason::Cancelled => {
                        ShellEnd::Exited { status, pid }
                    }
                    Ok(_) => ShellEnd::Stopped(stop),
                    Err(_) => {
                        group.kill();
                        drop(child.wait().await);
                        ShellEnd::Stopped(stop)
                    }
                }
            }
        }
    }
}

/// What the call says is to be run.
fn commands(call: &ToolCall) -> Result<Vec<&str>, ToolError> {
    let wrong = |found: &Json| {
        ToolError::invalid(
            "TOOL_FIELD",
            format!(
                "`cmds` must be a list of texts, there is {}",
                kind_of(found)
            ),
        )
    };
    let text = |command: &'_ Json| -> Result<_, ToolError> {
        let text = command.as_str().ok_or_else(|| wrong(command))?;
        if text.contains('\0') {
            let message = "a command holds a zero byte";
            return Err(ToolError::invalid("TOOL_FIELD", message));
        }
        Ok(())
    };
    let listed: &[Json] = match call.fields.get("cmds") {
        Some(Json::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    listed.iter().try_for_each(text)?;
    Ok(listed.iter().filter_map(Json::as_str).collect())
}

fn outcome(ended: ShellEnd, done: Vec<Json>, out: &Capture, err: &Capture) -> TaskOutcome {
    let mut result = Map::new();
    let stdout = out.text();
    if out.left_out() == 0
        && let Ok(data) = serde_json::from_str(&stdout)
    {
        result.insert("data".into(), data);
    }
    let (status, pid) = match &ended {
        ShellEnd::Exited { status, pid } => (Some(*status), Some(*pid)),
        ShellEnd::Stopped(_) | ShellEnd::Failed(_) => (None, None),
    };
    let code = status.map(exit_code);
    result.insert("stdout".into(), stdout.into());
    result.insert("stderr".into(), err.text().into());
    result.insert("exit_code".into(), json!(code));
    result.insert("commands".into(), done.into());
    let error = match ended {
        ShellEnd::Exited { status, .. } => failure(status, err),
        ShellEnd::Stopped(stop) => Some(stop.error()),
        ShellEnd::Failed(error) => Some(error),
    };
    let details = json!({
        "exit_code": code,
        "signal": status.and_then(|status| status.signal()),
        "pid": pid,
    });
    TaskOutcome {
        result: result.into(),
        error,
        ..TaskOutcome::default()
    }
    .with("sh", details)
}

/// As shells count: a signal is 128 and its number.
fn exit_code(status: ExitStatus) -> i32 {
    let signalled = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signalled).unwrap_or(-1)
}

fn failure(status: ExitStatus, err: &Capture) -> Option<ToolError> {
    if status.success() {
        return None;
    }
    let code = exit_code(status);
    let said = err.last(SHOWN);
    let said = if said.is_empty() {
        said
    } else {
        format!(": {said}")
    };
    if let 126 | 127 = code {
        let what = if code == 126 { "run" } else { "found" };
        return Some(ToolError::invalid(
            codes::SHELL_NOT_FOUND,
            format!("a command could not be {what} (exit code {code}){said}"),
        ));
    }
    // A script reports the signal that ended its last command as its own exit code.
    let signal = status.signal().or((code == 137).then_some(9));
    Some(match signal {
        Some(signal) => ToolError::new(
            class_of_signal(signal),
            codes::SHELL_EXIT,
            format!("the command was ended by {}{said}", signal_name(signal)),
        ),
        None => ToolError::new(
            ErrorClass::Unknown,
            codes::SHELL_EXIT,
            format!("the command ended with exit code {code}{said}"),
        ),
    })
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
