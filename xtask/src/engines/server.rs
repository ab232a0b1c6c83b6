//! The servers of engines outside: started on free ports with a file as their database, killed, and started again.

use super::conductor::ConductorServer;
use super::temporal::TemporalServer;
use anyhow::{Context, Result, bail};
use std::cell::RefCell;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A server that ends with its value.
#[derive(Debug)]
pub(super) enum OutsideServer {
    Temporal(TemporalServer),
    Conductor(ConductorServer),
}

/// What a Conductor server knows of a run.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: String,
    /// The tasks that the server keeps of it.
    pub(super) tasks: usize,
    /// How many workflows have driven the run.
    pub(super) drivers: usize,
}

impl OutsideServer {
    /// The name in events.
    pub(super) fn name(&self) -> &'static str {
        match self {
            OutsideServer::Temporal(_) => "temporal",
            OutsideServer::Conductor(_) => "conductor",
        }
    }

    /// What `--engine` names it.
    pub(super) fn engine(&self) -> String {
        match self {
            OutsideServer::Temporal(server) => server.engine(),
            OutsideServer::Conductor(server) => server.engine(),
        }
    }

    /// The port that it listens on.
    pub(super) fn port(&self) -> u16 {
        match self {
            OutsideServer::Temporal(server) => server.port,
            OutsideServer::Conductor(server) => server.port,
        }
    }

    /// Kills the server as a crash does.
    pub(super) fn kill(&self) -> Result<()> {
        match self {
            OutsideServer::Temporal(server) => server.kill(),
            OutsideServer::Conductor(server) => server.kill(),
        }
    }

    /// Starts the server again, with the same database and port.
    pub(super) fn again(&self) -> Result<()> {
        match self {
            OutsideServer::Temporal(server) => server.again(),
            OutsideServer::Conductor(server) => server.again(),
        }
    }

    /// The server must know the workflow of a run that has ended, and that it has ended.
    pub(super) fn must_have_ended(&self, id: &str) -> Result<()> {
        match self {
            OutsideServer::Temporal(server) => {
                server.ask(&["workflow", "describe", "-w", id]).map(drop)
            }
            OutsideServer::Conductor(server) => {
                let ended = server.status(id)?;
                if !matches!(&*ended.status, "COMPLETED" | "FAILED") || ended.drivers != 1 {
                    bail!("the workflow {id} of a run that has ended is {ended:?}");
                }
                Ok(())
            }
        }
    }

    /// The Temporal server, for what only Temporal has.
    pub(super) fn temporal(&self) -> Option<&TemporalServer> {
        match self {
            OutsideServer::Temporal(server) => Some(server),
            OutsideServer::Conductor(_) => None,
        }
    }
}

pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The process of a server.
#[derive(Debug, Default)]
pub(super) struct Started {
    child: RefCell<Option<Child>>,
}

impl Started {
    /// Starts the process; what it says is added to the file.
    pub(super) fn spawn(&self, mut command: Command, log: &Path) -> Result<()> {
        let log = File::options().create(true).append(true).open(log)?;
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("cannot start the server")?;
        *self.child.borrow_mut() = Some(child);
        Ok(())
    }

    pub(super) fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.child.borrow_mut().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Waits until the server answers.
    pub(super) fn wait(
        &self,
        name: &str,
        log: &Path,
        limit: Duration,
        answers: impl Fn() -> bool,
    ) -> Result<()> {
        let until = Instant::now() + limit;
        while !answers() {
            let ended = match &mut *self.child.borrow_mut() {
                Some(child) => child.try_wait()?,
                None => bail!("the {name} server was not started"),
            };
            if let Some(status) = ended {
                let log = fs::read_to_string(log).unwrap_or_default();
                bail!("the {name} server ended with {status}: {log}");
            }
            if Instant::now() > until {
                bail!("the {name} server does not answer");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}
