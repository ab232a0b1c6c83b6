//! A Temporal server of a task: started on free ports with a file as its database, killed, and started again.

use anyhow::{Context, Result, bail};
use std::cell::RefCell;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to start.
const START: Duration = Duration::from_secs(60);

/// A server that ends with its value.
#[derive(Debug)]
pub(super) struct TemporalServer {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    child: RefCell<Child>,
}

impl TemporalServer {
    pub(super) fn start(program: &Path, folder: &Path) -> Result<TemporalServer> {
        fs::create_dir_all(folder)?;
        let port = free_port()?;
        let child = spawn(program, folder, port)?;
        let server = TemporalServer {
            program: program.to_owned(),
            folder: folder.to_owned(),
            port,
            child: RefCell::new(child),
        };
        server.wait()?;
        Ok(server)
    }

    /// What `--engine` names it.
    pub(super) fn engine(&self) -> String {
        format!("temporal://127.0.0.1:{}/default", self.port)
    }

    /// Kills the server as a crash does.
    pub(super) fn kill(&self) -> Result<()> {
        let mut child = self.child.borrow_mut();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Starts the server again, with the same database and port.
    pub(super) fn again(&self) -> Result<()> {
        *self.child.borrow_mut() = spawn(&self.program, &self.folder, self.port)?;
        self.wait()
    }

    /// What the server's own command says.
    pub(super) fn ask(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(args)
            .args(["--address", &format!("127.0.0.1:{}", self.port)])
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

    fn wait(&self) -> Result<()> {
        let until = Instant::now() + START;
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok()
                && self
                    .ask(&["operator", "namespace", "describe", "default"])
                    .is_ok()
            {
                return Ok(());
            }
            if let Some(status) = self.child.borrow_mut().try_wait()? {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("the Temporal server ended with {status}: {log}");
            }
            if Instant::now() > until {
                bail!("the Temporal server does not answer");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for TemporalServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn spawn(program: &Path, folder: &Path, port: u16) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))?;
    let database = folder.join("temporal.db");
    let (http, metrics) = (free_port()?.to_string(), free_port()?.to_string());
    Command::new(program)
        .args([
            "server",
            "start-dev",
            "--headless",
            "--ip",
            "127.0.0.1",
            "--log-level",
            "error",
        ])
        .args([
            "--port",
            &port.to_string(),
            "--http-port",
            &http,
            "--metrics-port",
            &metrics,
        ])
        .args(["--db-filename", &database.to_string_lossy()])
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start the Temporal server")
}
