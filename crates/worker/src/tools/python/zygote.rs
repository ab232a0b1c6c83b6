//! The worker's side of the zygote: starting it, handing it calls, and ending them. The other side,
//! and what the two say to each other, is in `zygote.py`.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use stepwell_kernel::plan::ErrorClass;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;

use super::PythonOptions;
use crate::outcome::ToolError;
use crate::tools::process::{cannot_start, codes, piped};

/// What the interpreter is started with. The program itself would fill the list of processes.
const START: &str =
    "import os; exec(compile(os.environ.pop('STEPWELL_ZYGOTE'), 'stepwell', 'exec'))";

const PROGRAM: &str = concat!(include_str!("step.py"), "\n", include_str!("zygote.py"));

/// How long the zygote has for a kill before it is held for stuck.
const KILLING: Duration = Duration::from_secs(1);

/// An interpreter that calls are forked from. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Zygote {
    control: UnixStream,
    pid: Option<Pid>,
    alive: Arc<AtomicBool>,
}

/// A process for one call.
#[derive(Debug)]
pub(super) struct StartedCall {
    pub(super) process: PythonProcess,
    /// The request goes out and the answer comes in here.
    pub(super) channel: UnixStream,
    pub(super) stdout: Receiver,
    pub(super) stderr: Receiver,
}

/// The process of a call. The zygote kills its group when this is dropped.
#[derive(Debug)]
pub(super) struct PythonProcess {
    said: BufReader<OwnedReadHalf>,
    orders: OwnedWriteHalf,
    pid: Option<Pid>,
    zygote: Arc<Zygote>,
}

/// How a call's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PythonExit {
    Code(i32),
    Signal(i32),
    /// Unknown, because the zygote ended.
    Lost,
}

impl Zygote {
    /// Starts the interpreter that calls are forked from. Fails if the interpreter does not exist.
    pub(super) fn start(options: &PythonOptions) -> Result<Zygote, ToolError> {
        let interpreter = options.interpreter();
        let missing = || {
            ToolError::invalid(
                codes::PYTHON_NOT_FOUND,
                format!("there is no Python interpreter `{}`", interpreter.display()),
            )
        };
        if !options.is_there(&interpreter) {
            return Err(missing());
        }
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                return missing();
            }
            cannot_start("the Python interpreter", &error)
        };
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        let theirs = blocking(theirs).map_err(failed)?;
        // Who forks once gains nothing from it.
        let preload: &[String] = if options.warm { &options.preload } else { &[] };
        let mut child = Command::new(&interpreter)
            .arg("-c")
            .arg(START)
            .args(preload)
            .env_clear()
            .envs(options.process.inherited())
            .env("STEPWELL_ZYGOTE", PROGRAM)
            .stdin(theirs)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pid = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let alive = Arc::new(AtomicBool::new(true));
        let ended = Arc::clone(&alive);
        // The parent process reaps it when it ends.
        tokio::spawn(async move {
            drop(child.wait().await);
            ended.store(false, Ordering::Release);
        });
        Ok(Zygote {
            control,
            pid,
            alive,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// No call is given to it any more, and it ends.
    fn give_up(&self) {
        if self.alive.swap(false, Ordering::AcqRel)
            && let Some(pid) = self.pid
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Has it fork a process for one call.
    pub(super) async fn begin(self: Arc<Self>) -> Result<StartedCall, ToolError> {
        let failed = |error: io::Error| cannot_start("a Python process", &error);
        let (out, err) = (piped().map_err(failed)?, piped().map_err(failed)?);
        let (orders, their_orders) = UnixStream::pair().map_err(failed)?;
        let (channel, their_channel) = UnixStream::pair().map_err(failed)?;
        let theirs = [
            blocking(their_orders).map_err(failed)?,
            blocking(their_channel).map_err(failed)?,
            out.writer,
            err.writer,
        ];
        if self.send(&theirs).await.is_err() {
            return Err(self.lost());
        }
        // The other end is closed, and seen to be closed, only once no copy is left here.
        drop(theirs);
        let (said, orders) = orders.into_split();
        let mut process = PythonProcess {
            said: BufReader::new(said),
            orders,
            pid: None,
            zygote: self,
        };
        process.begun().await?;
        Ok(StartedCall {
            process,
            channel,
            stdout: out.reader,
            stderr: err.reader,
        })
    }

    async fn send(&self, fds: &[OwnedFd; 4]) -> io::Result<usize> {
        let send = || {
            let fds = fds.each_ref().map(AsFd::as_fd);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut rights = SendAncillaryBuffer::new(&mut space);
            rights.push(SendAncillaryMessage::ScmRights(&fds));
            let byte = [IoSlice::new(b"c")];
            Ok(sendmsg(
                &self.control,
                &byte,
                &mut rights,
                SendFlags::NOSIGNAL,
            )?)
        };
        self.control.async_io(Interest::WRITABLE, send).await
    }

    fn lost(&self) -> ToolError {
        self.give_up();
        ToolError::new(
            ErrorClass::Transient,
            codes::PYTHON_LOST,
            "the Python interpreter ended before it took the call; what it said is on the worker's standard error",
        )
    }
}

impl PythonProcess {
    /// The number of the process, which is also the number of its group.
    pub(super) fn pid(&self) -> Option<i32> {
        self.pid.map(|pid| pid.as_raw_nonzero().get())
    }

    async fn begun(&mut self) -> Result<(), ToolError> {
        let line = self.line().await;
        match line.split_once(' ') {
            Some(("pid", number)) => {
                self.pid = number.parse().ok().and_then(Pid::from_raw);
                Ok(())
            }
            Some(("fail", why)) => Err(cannot_start("a Python process", &io::Error::other(why))),
            _ => Err(self.zygote.lost()),
        }
    }

    /// Waits for its end. It may be dropped and called again.
    pub(super) async fn exit(&mut self) -> PythonExit {
        let line = self.line().await;
        match line
            .split_once(' ')
            .map(|(how, number)| (how, number.parse()))
        {
            Some(("exit", Ok(code))) => PythonExit::Code(code),
            Some(("signal", Ok(signal))) => PythonExit::Signal(signal),
            _ => {
                self.abandon();
                PythonExit::Lost
            }
        }
    }

    /// Ends its whole group: asks, waits, kills.
    pub(super) async fn end(&mut self, grace: Duration) -> PythonExit {
        for (order, patience) in [(b"T", grace), (b"K", KILLING)] {
            // If it cannot be said, nobody is there, and waiting tells.
            drop(self.orders.write_all(order).await);
            if let Ok(exit) = tokio::time::timeout(patience, self.exit()).await {
                return exit;
            }
        }
        self.abandon();
        PythonExit::Lost
    }

    /// The zygote is dead or stuck: what it can no longer end is ended here.
    fn abandon(&self) {
        self.zygote.give_up();
        if let Some(pid) = self.pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        // Lines are a few bytes and written at once, so none is cut by being dropped in between.
        match self.said.read_line(&mut line).await {
            Ok(_) => line.trim_end().to_owned(),
            Err(_) => String::new(),
        }
    }
}

/// Python expects descriptors that block.
fn blocking(stream: UnixStream) -> io::Result<OwnedFd> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream.into())
}
