//! Where the processes of one episode meet: a store of their own, the file with the marks of their work, and the
//! processes themselves.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use stepwell_engine::store::Store;
use stepwell_sim::verdict::{self, Verdict};
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{SqliteOptions, SqliteStore};

/// How long the last process may take to finish everything in peace.
const PEACE: Duration = Duration::from_secs(240);

/// A store, a witness file and a seed.
#[derive(Debug)]
pub(crate) struct Place {
    folder: PathBuf,
    /// The address that processes use; a proxy may be in between.
    store: String,
    /// The address for the judge.
    direct: String,
    schema: String,
    seed: u64,
    spawned: AtomicU64,
}

impl Place {
    /// A place on SQLite, or on PostgreSQL at these addresses: that of the processes and that of the judge.
    pub(crate) fn new(seed: u64, postgres: Option<(&str, &str)>) -> Result<Place> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "{}_{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(format!("stepwell-faults-{name}"));
        fs::create_dir_all(&folder)?;
        let file = format!("sqlite:{}", folder.join("kill.db").display());
        let (store, direct) = postgres.unwrap_or((&file, &file));
        Ok(Place {
            store: store.to_owned(),
            direct: direct.to_owned(),
            schema: format!("faults_{name}"),
            folder,
            seed,
            spawned: AtomicU64::new(0),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn witness(&self) -> PathBuf {
        self.folder.join("witness")
    }

    /// Starts a process of its own.
    pub(crate) fn spawn(&self, more: &[&str]) -> Result<Process> {
        self.spawn_on(&self.store, more)
    }

    fn spawn_on(&self, store: &str, more: &[&str]) -> Result<Process> {
        let number = self.spawned.fetch_add(1, Ordering::Relaxed);
        let program = std::env::current_exe()?.with_file_name("stepwell-victim");
        let complaints = self.folder.join(format!("stderr-{number}"));
        let mut child = Command::new(&program)
            .args(["--store", store, "--schema", &self.schema])
            .args(["--name", &format!("victim-{number}"), "--leash"])
            .args(["--seed", &(self.seed ^ number).to_string()])
            .arg("--witness")
            .arg(self.witness())
            .args(more)
            .env_remove("RUST_BACKTRACE")
            // An interrupt is for the program that counts.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&complaints)?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let says = child.stdout.take().context("it has no standard output")?;
        Ok(Process {
            child,
            says: BufReader::new(says),
            complaints,
        })
    }

    /// Finishes the work of `total` requests in peace, and judges.
    pub(crate) fn judge(&self, total: u64) -> Result<Verdict> {
        // Peace is no test of short sessions: this one has that of a server.
        let more = ["--runs", &total.to_string(), "--session-ms", "15000"];
        let mut last = self.spawn_on(&self.direct, &more)?;
        let until = Instant::now() + PEACE;
        let ended = loop {
            match last.child.try_wait()? {
                Some(status) => break Some(status),
                None if Instant::now() > until => break None,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let said = last.complaints();
        if ended.is_none() {
            last.kill()?;
        }
        let store = self.open()?;
        let mut verdict = verdict::judge(&*store, &self.witness(), usize::try_from(total)?)?;
        match ended {
            Some(status) if status.success() => {}
            Some(status) => verdict
                .stuck
                .push(format!("the last process ended with {status}: {said}")),
            None => verdict
                .stuck
                .push(format!("the last process did not end: {said}")),
        }
        Ok(verdict)
    }

    fn open(&self) -> Result<Arc<dyn Store>> {
        if let Some(path) = self.direct.strip_prefix("sqlite:") {
            let store = SqliteStore::open(Path::new(path), SqliteOptions::default())?;
            return Ok(Arc::new(store));
        }
        let options = PostgresOptions {
            schema: self.schema.clone(),
            ..PostgresOptions::default()
        };
        Ok(Arc::new(PostgresStore::connect(&self.direct, options)?))
    }

    /// Deletes the files, unless something is wrong: then they are kept, and their place is said.
    pub(crate) fn clean(self, verdict: &Verdict) {
        if verdict.violations().is_empty() {
            // A folder that cannot be deleted harms nobody.
            let _ = fs::remove_dir_all(&self.folder);
        } else {
            println!("kept for inspection: {}", self.folder.display());
        }
    }
}

/// A process of a place. It ends with the program that started it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    says: BufReader<ChildStdout>,
    complaints: PathBuf,
}

impl Process {
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

    /// Kills it like `kill -9`. A process that had ended by itself before is an error.
    pub(crate) fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "a process ended by itself with {status}: {}",
                self.complaints()
            );
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn complaints(&self) -> String {
        fs::read_to_string(&self.complaints).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Where something went wrong nobody else ends it; one that has ended needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
