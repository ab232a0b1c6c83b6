//! The process `duckdb`: started, fed, read within bounds, and killed with all that it started.

use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use stepwell_kernel::plan::ErrorClass;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::DuckdbOptions;
use super::script::Script;
use crate::outcome::ToolError;
use crate::tool::{TaskContext, TaskLimits};
use crate::tools::process::{ProcessOptions, who_calls};
use crate::tools::sql::codes;

/// Number of bytes that are read from standard error; the error comes first.
const SAID: usize = 64 << 10;

/// A running process. Dropping it kills its process group.
pub(super) struct DuckdbProcess {
    child: Child,
    group: Option<Pid>,
}

/// The result of a process that has ended.
pub(super) struct DuckdbExit {
    pub(super) output: String,
    pub(super) success: bool,
    /// The output was larger than the limit for results; it is cut.
    pub(super) too_large: bool,
    errors: String,
}

impl DuckdbExit {
    /// What went wrong, without the part of the statement that the program repeats: it has values.
    pub(super) fn said(&self) -> &str {
        let said = self.errors.split("\n\nLINE ").next().unwrap_or_default();
        let said = said.split("\nLINE ").next().unwrap_or_default().trim();
        match said {
            "" => "the program ended before the statement did; is a quote or bracket left open?",
            said => said,
        }
    }
}

impl Drop for DuckdbProcess {
    fn drop(&mut self) {
        kill(self.group);
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // If nobody is left in it, that is what was wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

impl DuckdbProcess {
    pub(super) fn start(
        options: &DuckdbOptions,
        database: &str,
        cx: &TaskContext,
    ) -> Result<DuckdbProcess, ToolError> {
        let mut command = Command::new(&options.program);
        command
            .args(["-json", "-bail", "-batch", "-init", "/dev/null"])
            .arg(database)
            // SQL can read variables, and those of this process may be secrets.
            .env_clear()
            .envs(ProcessOptions::default().inherited())
            .envs(who_calls(cx))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = &options.directory {
            command.current_dir(directory);
        }
        let child = command.spawn().map_err(|error| missing(options, &error))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(DuckdbProcess {
            group: id.and_then(Pid::from_raw),
            child,
        })
    }

    /// Kills it, and waits until its hold on the database is gone.
    pub(super) async fn end(mut self, grace: Duration) {
        kill(self.group);
        let _ = tokio::time::timeout(grace, self.child.wait()).await;
    }

    /// Feeds it and waits until it is over.
    pub(super) async fn run(
        &mut self,
        script: &Script,
        limits: TaskLimits,
    ) -> Result<DuckdbExit, ToolError> {
        let stdin = self.child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // It may end before it has read everything; what it said then tells why.
                let _ = stdin.write_all(script.text.as_bytes()).await;
            }
        };
        // The program writes a little between rows too.
        let most = limits.result_bytes.saturating_add(script.text.len() + SAID);
        let group = self.group;
        let stdout = self.child.stdout.take();
        let output = async {
            let output = bounded(stdout, most).await;
            if output.len() > most {
                kill(group);
            }
            output
        };
        let errors = bounded(self.child.stderr.take(), SAID);
        let ((), output, errors) = tokio::join!(feed, output, errors);
        let status = self.child.wait().await.map_err(|error| {
            let message = format!("the program cannot be waited for: {error}");
            ToolError::new(ErrorClass::Unknown, codes::DUCKDB_ERROR, message)
        })?;
        Ok(DuckdbExit {
            output: String::from_utf8_lossy(&output).into_owned(),
            success: status.success(),
            too_large: output.len() > most,
            errors: String::from_utf8_lossy(&errors).into_owned(),
        })
    }
}

/// Reads up to one byte more than `most`, and closes the pipe.
async fn bounded(pipe: Option<impl AsyncRead + Unpin>, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What came before it broke is still worth reading.
        let _ = pipe.take(most as u64 + 1).read_to_end(&mut bytes).await;
    }
    bytes
}

fn missing(options: &DuckdbOptions, error: &std::io::Error) -> ToolError {
    let program = options.program.display();
    let message = if error.kind() == ErrorKind::NotFound {
        format!(
            "the program {program} is not there; install it (`pip install duckdb-cli`, \
             `brew install duckdb`, or from duckdb.org) and put it into PATH"
        )
    } else {
        format!("the program {program} cannot be started: {error}")
    };
    ToolError::invalid(codes::DUCKDB_MISSING, message)
}
