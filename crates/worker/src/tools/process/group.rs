//! A process group that ends as one: when it is dropped, and when the worker dies.
//!
//! Its leader is a small shell that does nothing but hold the group's number, so that the number
//! cannot be reused while a signal may still be sent to it. The leader reads a pipe
//! whose other end is the worker's: when that closes, it kills the group.

use std::io;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

const LEADER: &str = "trap '' HUP INT QUIT TERM; read -r _; kill -s KILL 0";

/// A process group that the worker owns.
#[derive(Debug)]
pub(crate) struct Group {
    /// Reaped only after the group was killed: until then the system does not reuse the number.
    leader: Child,
    id: Pid,
}

impl Group {
    /// Starts a group that contains only its leader.
    pub(crate) fn new() -> io::Result<Group> {
        let leader = Command::new("sh")
            .args(["-c", LEADER])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let id = leader
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .ok_or_else(|| io::Error::other("the leader of the process group ended at once"))?;
        Ok(Group { leader, id })
    }

    /// What [`Command::process_group`] wants for a process that shall be in it.
    pub(crate) fn id(&self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Asks everything in it to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends everything in it.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Ends everything in it, and leaves no zombie.
    pub(crate) async fn end(mut self) {
        self.kill();
        // `wait` closes the leader's input, which would do as well; the signal is already under way.
        if let Err(error) = self.leader.wait().await {
            tracing::warn!(%error, "the leader of a process group could not be waited for");
        }
    }

    fn signal(&self, signal: Signal) {
        // Once the leader is reaped, the number may belong to another process.
        if self.leader.id().is_some() {
            // It fails only if nobody is left.
            let _ = kill_process_group(self.id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
