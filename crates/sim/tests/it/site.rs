//! Where a test's processes meet, and what must hold once they are gone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use stepwell_engine::store::Store;
use stepwell_sim::verdict;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{SqliteOptions, SqliteStore};

/// The program that is started.
pub(crate) const VICTIM: &str = env!("CARGO_BIN_EXE_stepwell-victim");

/// How long a process may take without a sign that it goes on.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a test's processes meet.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    pub(crate) store: String,
    schema: String,
    pub(crate) seed: u64,
}

impl Site {
    pub(crate) fn new(name: &str, store: Option<String>) -> Site {
        let seed = std::env::var("STEPWELL_SEED")
            .ok()
            .and_then(|it| it.parse().ok());
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = seed.unwrap_or_else(|| clock.unwrap().as_micros() as u64);
        println!("STEPWELL_SEED={seed}");
        let folder = std::env::temp_dir().join(format!("stepwell-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = format!("sqlite:{}", folder.join("kill.db").display());
        Site {
            store: store.unwrap_or(file),
            schema: format!("kill_{name}_{}", std::process::id()),
            folder,
            seed,
        }
    }

    pub(crate) fn witness(&self) -> PathBuf {
        self.folder.join("witness")
    }

    /// A process of its own, with what it says.
    pub(crate) fn spawn(&self, name: &str, more: &[&str], salt: u64) -> Victim {
        self.spawn_by(Command::new(VICTIM), name, more, salt)
    }

    /// The same, started by another program, which gets the victim and its arguments.
    pub(crate) fn spawn_by(
        &self,
        mut command: Command,
        name: &str,
        more: &[&str],
        salt: u64,
    ) -> Victim {
        let mut child = command
            .args(["--store", &self.store, "--schema", &self.schema])
            .args(["--name", name, "--seed", &(self.seed ^ salt).to_string()])
            .arg("--witness")
            .arg(self.witness())
            .args(more)
            // A backtrace that was asked for is no complaint.
            .env_remove("RUST_BACKTRACE")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (lines, complaints) = mpsc::channel();
        // Read all the time: a pipe that is full would stop it.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        Victim {
            child,
            says,
            complaints,
            witness: self.witness(),
        }
    }

    pub(crate) fn open(&self) -> Arc<dyn Store> {
        match self.store.strip_prefix("sqlite:") {
            Some(path) => {
                Arc::new(SqliteStore::open(Path::new(path), SqliteOptions::default()).unwrap())
            }
            None => {
                let options = PostgresOptions {
                    schema: self.schema.clone(),
                    ..PostgresOptions::default()
                };
                Arc::new(PostgresStore::connect(&self.store, options).unwrap())
            }
        }
    }
}

pub(crate) struct Victim {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
    complaints: Receiver<String>,
    /// The file that grows with the work of all processes.
    witness: PathBuf,
}

/// A test that fails leaves no process behind.
impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Victim {
    /// Waits until it says a word; false if it ended without.
    pub(crate) fn hears(&mut self, word: &str) -> bool {
        let mut line = String::new();
        while self.says.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if line.trim() == word {
                return true;
            }
            line.clear();
        }
        false
    }

    pub(crate) fn kill(mut self) {
        // SIGKILL.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Its files may grow from now on.
    pub(crate) fn unlimited(&self) {
        let pid = self.child.id().to_string();
        let raised = Command::new("prlimit")
            .args(["--fsize=unlimited", "--pid", &pid])
            .status();
        assert!(raised.unwrap().success());
    }

    /// Waits until it complains of something.
    pub(crate) fn complains_of(&mut self, what: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.complaints.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("no complaint of {what:?}: {error}"));
            if line.contains(what) {
                return;
            }
        }
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end and returns what it complained of.
    pub(crate) fn ends(self) -> String {
        self.ends_with().1
    }

    /// Waits for its end, and says how it ended as well.
    pub(crate) fn ends_with(mut self) -> (ExitStatus, String) {
        let mut complaint = String::new();
        let (mut until, mut done) = (Instant::now() + PATIENCE, 0);
        // The last line comes when it ends.
        loop {
            match self.complaints.recv_timeout(Duration::from_secs(1)) {
                Ok(line) => {
                    complaint.push_str(&line);
                    complaint.push('\n');
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // A slow machine takes longer; what counts is that work is done.
                    let now_done = fs::metadata(&self.witness).map_or(0, |it| it.len());
                    if std::mem::replace(&mut done, now_done) != now_done {
                        until = Instant::now() + PATIENCE;
                    }
                    assert!(Instant::now() < until, "the runs do not end:\n{complaint}");
                }
            }
        }
        (self.child.wait().unwrap(), complaint)
    }
}

/// What must hold once nobody works any more.
pub(crate) fn judge(site: &Site, started: usize) {
    let store = site.open();
    let verdict = verdict::judge(&*store, &site.witness(), started).unwrap();
    assert_eq!(verdict.violations(), Vec::<String>::new());
    assert!(verdict.effects >= started as u64, "something was done");
}

pub(crate) fn judge_or_tell(site: &Site, runs: usize, complaint: &str) {
    let seed = site.seed;
    println!("{complaint}");
    judge(site, runs);
    println!("seed {seed}: no violation");
    let _ = fs::remove_dir_all(&site.folder);
}

pub(crate) fn postgres() -> String {
    std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("these tests need PostgreSQL: run `cargo xtask test`, or set STEPWELL_TEST_POSTGRES to a server's address")
    })
}
