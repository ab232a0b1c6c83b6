//! Where a test's processes meet, and what must hold once they are gone.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use stepwell_engine::chunk;
use stepwell_engine::store::{RunFilter, RunSummary, Store};
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::plan::Plan;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{SqliteOptions, SqliteStore};

/// The program that is started.
pub(crate) const VICTIM: &str = env!("CARGO_BIN_EXE_stepwell-victim");

/// How long the last process may take to end all runs.
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
        let until = Instant::now() + PATIENCE;
        let mut complaint = String::new();
        // The last line comes when it ends.
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.complaints.recv_timeout(left) {
                Ok(line) => {
                    complaint.push_str(&line);
                    complaint.push('\n');
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    panic!("the runs do not end:\n{complaint}");
                }
            }
        }
        (self.child.wait().unwrap(), complaint)
    }
}

pub(crate) fn all_runs(store: &dyn Store) -> Vec<RunSummary> {
    let filter = RunFilter {
        limit: 100_000,
        ..RunFilter::default()
    };
    store.list(&filter).unwrap()
}

/// The events of a run, after its chunks were checked.
fn events(store: &dyn Store, run: &RunSummary) -> Vec<Event> {
    let mut events = Vec::new();
    for chunk in store.chunks(run.run, 0, usize::MAX).unwrap() {
        assert_eq!(
            chunk.first,
            events.len() as u64 + 1,
            "{}: a gap",
            run.run_id
        );
        events.extend(chunk::decode(chunk.first, chunk.codec, &chunk.body).unwrap());
        assert_eq!(
            chunk.last,
            events.len() as u64,
            "{}: a short chunk",
            run.run_id
        );
    }
    events
}

/// What must hold once nobody works any more.
pub(crate) fn judge(site: &Site, started: usize) {
    let store = site.open();
    let runs = all_runs(&*store);
    let tops = runs
        .iter()
        .filter(|run| run.plan_id != "chain" || run.run_id.contains('-'));
    assert_eq!(tops.count(), started, "one run for each request");
    let health = store.check().unwrap();
    assert_eq!(health.problems, Vec::<String>::new());
    let mut known: HashMap<(String, String, u32), u32> = HashMap::new();
    for run in &runs {
        assert!(
            run.head.ended_at.is_some(),
            "{} has not ended: {run:?}",
            run.run_id
        );
        let wanted = match run.plan_id.as_str() {
            "saga" => "FAILED",
            _ => "COMPLETED",
        };
        assert_eq!(run.head.status, wanted, "{} ({})", run.run_id, run.plan_id);
        let plan = plan_of(&*store, run);
        let mut completed: HashMap<String, u32> = HashMap::new();
        for event in events(&*store, run) {
            let id = event.body.step().map(|at| plan.step_id(at));
            let id = id.unwrap_or_default();
            match event.body {
                Body::StepStarted { execution, .. }
                | Body::StepExecutionStarted { execution, .. } => {
                    *known
                        .entry((run.run_id.clone(), format!("step {id}"), execution))
                        .or_default() += 1;
                }
                Body::UndoStarted { execution, .. } => {
                    *known
                        .entry((run.run_id.clone(), format!("undo {id}"), execution))
                        .or_default() += 1;
                }
                Body::StepCompleted { .. } => *completed.entry(id).or_default() += 1,
                _ => {}
            }
        }
        assert!(
            completed.values().all(|times| *times == 1),
            "{}: {completed:?}",
            run.run_id
        );
    }
    assert!(
        known.values().all(|times| *times == 1),
        "an execution was claimed twice"
    );
    let mut marks = 0;
    for line in fs::read_to_string(site.witness())
        .unwrap_or_default()
        .lines()
    {
        let [run, kind, step, execution] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("a broken mark: {line:?}");
        };
        let key = (
            run.to_owned(),
            format!("{kind} {step}"),
            execution.parse().unwrap(),
        );
        let left = known
            .get_mut(&key)
            .unwrap_or_else(|| panic!("the log does not know {line:?}"));
        assert!(*left > 0, "{line:?} happened twice");
        *left -= 1;
        marks += 1;
    }
    assert!(marks >= started, "something was done");
}

fn plan_of(store: &dyn Store, run: &RunSummary) -> Plan {
    let stored = store.load(run.run).unwrap().unwrap();
    let row = store.plan(stored.plan).unwrap().unwrap();
    Plan::new(serde_json::from_str(&row.net).unwrap()).unwrap()
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
