//! The processes of a benchmark: a server in a folder of its own, and others, which all end with their values.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};

/// How long a process may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with its value.
#[derive(Debug)]
pub(super) struct BenchProcess(pub(super) Child);

impl Drop for BenchProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl BenchProcess {
    /// The CPU time that the process has used so far; zero on systems without `/proc`.
    pub(super) fn cpu(&self) -> Duration {
        super::resource_usage::cpu_of(self.0.id())
    }
}

/// A server that is measured.
#[derive(Debug)]
pub(super) struct BenchServer {
    process: BenchProcess,
    /// The address of the server, as http://HOST:PORT.
    pub(super) url: String,
}

impl BenchServer {
    /// Starts `stepwell serve` in a folder, on a port that is free; the store is a new SQLite file if none is named.
    pub(super) fn start(
        folder: &Path,
        store: Option<&str>,
        options: &[&str],
    ) -> Result<BenchServer> {
        let program = std::env::current_exe().context("this program cannot be started again")?;
        let store = match store {
            Some(store) => store.to_owned(),
            None => format!("sqlite:{}", folder.join("bench.db").display()),
        };
        let mut server = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &store])
            .args(options)
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()?;
        let err = server.stderr.take();
        let process = BenchProcess(server);
        let url = address(err.context("the server has no output")?)?;
        Ok(BenchServer { process, url })
    }

    /// The CPU time that the server has used so far; zero on systems without `/proc`.
    pub(super) fn cpu(&self) -> Duration {
        self.process.cpu()
    }

    /// The resident memory of the server in bytes; zero on systems without `/proc`.
    pub(super) fn resident(&self) -> u64 {
        super::resource_usage::resident_of(&self.process.0.id().to_string())
    }

    /// How many files and connections the server has open; zero on systems without `/proc`.
    pub(super) fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.0.id());
        fs::read_dir(folder).map_or(0, Iterator::count)
    }
}

/// A folder of its own for a measurement, which is deleted afterwards.
pub(super) fn in_new_folder<T>(measure: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let folder = std::env::temp_dir().join(format!("stepwell-bench-{}", uuid::Uuid::now_v7()));
    fs::create_dir_all(&folder)?;
    let measured = measure(&folder);
    fs::remove_dir_all(&folder)?;
    measured
}

/// The address that a server says it serves on.
fn address(err: ChildStderr) -> Result<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(err).lines().map_while(Result::ok) {
            match line.split_once("serving on ") {
                // Nobody waits a second time.
                Some((_, url)) => drop(tell.send(url.trim().to_owned())),
                None => tracing::warn!("the server says: {line}"),
            }
        }
    });
    told.recv_timeout(PATIENCE)
        .context("the server did not start in time")
}
