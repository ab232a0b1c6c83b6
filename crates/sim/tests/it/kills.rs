//! Real processes that are really killed, on both databases, and what must hold afterwards: every run
//! has ended, no event is lost or doubled, and no side effect happened that the log does not know.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepwell_engine::chunk;
use stepwell_engine::store::{RunFilter, RunSummary, Store};
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::plan::Plan;
use stepwell_sim::Rng;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{SqliteOptions, SqliteStore};

/// How long the last process may take to end all runs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a test's processes meet.
struct Site {
    folder: PathBuf,
    store: String,
    schema: String,
    seed: u64,
}

impl Site {
    fn new(name: &str, store: Option<String>) -> Site {
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

    fn witness(&self) -> PathBuf {
        self.folder.join("witness")
    }

    /// A process of its own, with what it says.
    fn spawn(&self, name: &str, more: &[&str], salt: u64) -> Victim {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell-victim"))
            .args(["--store", &self.store, "--schema", &self.schema])
            .args(["--name", name, "--seed", &(self.seed ^ salt).to_string()])
            .arg("--witness")
            .arg(self.witness())
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Victim { child, says }
    }

    fn open(&self) -> Arc<dyn Store> {
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

struct Victim {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Victim {
    /// Waits until it says a word; false if it ended without.
    fn hears(&mut self, word: &str) -> bool {
        let mut line = String::new();
        while self.says.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if line.trim() == word {
                return true;
            }
            line.clear();
        }
        false
    }

    fn kill(mut self) {
        // SIGKILL.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end and returns what it complained of.
    fn ends(mut self) -> String {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if begin.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("the runs do not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut complaint = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut complaint).unwrap();
        complaint
    }
}

fn all_runs(store: &dyn Store) -> Vec<RunSummary> {
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
fn judge(site: &Site, started: usize) {
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

fn kills() -> u32 {
    let asked = std::env::var("STEPWELL_KILLS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(100)
}

/// One process at a time, killed at random instants until it gets through.
fn killed_again_and_again(site: &Site, runs: u32) {
    let mut rng = Rng::new(site.seed);
    let count = runs.to_string();
    for round in 0..kills() {
        // New runs each time, so that there is always something to interrupt.
        let first = (round * runs).to_string();
        let more = ["--first", &first, "--runs", &count, "--stay"];
        let mut victim = site.spawn("victim", &more, u64::from(round));
        if rng.one_in(3) {
            // While it starts.
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
        } else if victim.hears("ready") {
            std::thread::sleep(Duration::from_micros(rng.below(200_000)));
        }
        victim.kill();
    }
    // What was never started is started now; what was started is not started again.
    let total = runs * kills();
    let last = site.spawn("victim", &["--runs", &total.to_string()], u64::MAX);
    let complaint = last.ends();
    judge_or_tell(site, total as usize, &complaint);
}

fn judge_or_tell(site: &Site, runs: usize, complaint: &str) {
    let seed = site.seed;
    println!("{complaint}");
    judge(site, runs);
    println!("seed {seed}: all is well");
    let _ = fs::remove_dir_all(&site.folder);
}

fn postgres() -> String {
    std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("these tests need PostgreSQL: run `cargo xtask test`, or set STEPWELL_TEST_POSTGRES to a server's address")
    })
}

#[test]
fn nothing_is_lost_or_doubled_when_the_process_is_killed_on_sqlite() {
    killed_again_and_again(&Site::new("sqlite", None), 20);
}

#[test]
fn nothing_is_lost_or_doubled_when_the_process_is_killed_on_postgres() {
    killed_again_and_again(&Site::new("pg", Some(postgres())), 20);
}

/// Two servers and four workers on one PostgreSQL: frozen past their sessions, thawed, killed, replaced.
#[test]
fn servers_and_workers_may_freeze_and_die_in_turn() {
    let site = Site::new("many", Some(postgres()));
    let mut rng = Rng::new(site.seed);
    let mut begun = 0;
    let names = [
        "server-a", "server-b", "worker-a", "worker-b", "worker-c", "worker-d",
    ];
    let mut start = |index: usize, salt: u64| {
        let role = match index {
            0 | 1 => "server",
            _ => "worker",
        };
        let first = begun.to_string();
        begun += 60;
        let more = [
            "--role",
            role,
            "--first",
            &first,
            "--runs",
            "60",
            "--stay",
            "--session-ms",
            "600",
        ];
        site.spawn(names[index], &more, salt)
    };
    let mut all: Vec<Victim> = (0..names.len())
        .map(|index| start(index, index as u64))
        .collect();
    let length = std::env::var("STEPWELL_CHAOS_SECONDS")
        .ok()
        .and_then(|it| it.parse().ok());
    let until = Instant::now() + Duration::from_secs(length.unwrap_or(25));
    let mut salt = 100;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_micros(rng.between(50_000, 400_000)));
        let index = rng.place(all.len());
        if rng.one_in(2) {
            // A partition: it does nothing for longer than its session lives, then goes on as if nothing
            // had happened.
            all[index].signal("-STOP");
            std::thread::sleep(Duration::from_micros(rng.between(100_000, 1_500_000)));
            all[index].signal("-CONT");
        } else {
            salt += 1;
            let fresh = start(index, salt);
            std::mem::replace(&mut all[index], fresh).kill();
        }
    }
    let all_of_them = begun.to_string();
    let last = site.spawn("last", &["--runs", &all_of_them, "--session-ms", "5000"], 7);
    let complaint = last.ends();
    for victim in all {
        victim.kill();
    }
    judge_or_tell(&site, begun, &complaint);
}
