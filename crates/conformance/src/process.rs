//! A process of the binary: its output goes to files, so that it can be read while the process runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::scenario::Blow;

/// How often a process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// A running or ended process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    exit: Option<i64>,
    /// Whether it works on a run.
    pub(crate) is_work: bool,
}

impl Process {
    /// Starts a command; `name` distinguishes its files in `folder`.
    pub(crate) fn start(
        mut command: Command,
        stdin: &str,
        folder: &Path,
        name: &str,
    ) -> Result<Process, String> {
        let file = |end: &str| folder.join(format!("{name}.{end}"));
        let (out, err, input) = (file("out"), file("err"), file("in"));
        let open = || -> std::io::Result<(File, File, File)> {
            fs::write(&input, stdin)?;
            Ok((
                File::open(&input)?,
                File::create(&out)?,
                File::create(&err)?,
            ))
        };
        let (stdin, stdout, stderr) =
            open().map_err(|error| format!("cannot write the files of a process: {error}"))?;
        let child = command
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout))
            .stderr(Stdio::from(stderr))
            .spawn()
            .map_err(|error| format!("cannot start the binary: {error}"))?;
        Ok(Process {
            child,
            out,
            err,
            exit: None,
            is_work: false,
        })
    }

    pub(crate) fn out(&self) -> String {
        read(&self.out)
    }

    pub(crate) fn err(&self) -> String {
        read(&self.err)
    }

    /// The exit code, or 128 and the number of the signal that ended it. Absent while it runs.
    pub(crate) fn exit(&mut self) -> Option<i64> {
        if self.exit.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            use std::os::unix::process::ExitStatusExt as _;
            let code = status.code().or_else(|| Some(128 + status.signal()?));
            self.exit = code.map(i64::from);
        }
        self.exit
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<i64, String> {
        let begin = Instant::now();
        loop {
            if let Some(code) = self.exit() {
                return Ok(code);
            }
            if begin.elapsed() > limit {
                return Err(format!("the command did not end within {limit:?}"));
            }
            std::thread::sleep(POLL);
        }
    }

    pub(crate) fn strike(&mut self, blow: Blow) -> Result<(), String> {
        if let Some(code) = self.exit() {
            return Err(format!(
                "the process has ended already, with exit code {code}; its error output: {}",
                self.err().trim_end()
            ));
        }
        let signal = match blow {
            Blow::Kill => Signal::KILL,
            Blow::Freeze => Signal::STOP,
            Blow::Thaw => Signal::CONT,
            Blow::Terminate => Signal::TERM,
            Blow::Interrupt => Signal::INT,
        };
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).map_err(|error| format!("cannot signal the process: {error}"))?;
        if blow == Blow::Kill {
            self.wait(Duration::from_secs(10))?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit().is_none() {
            // SIGKILL also ends a process that stands still.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
