//! A folder that only one test has, with a store in it; processes that run there; and a witness.
//!
//! The witness stands before the shell: it writes a line when a command begins and one when it has
//! ended, and holds those that a test wants held. So every shell task of every definition is seen from
//! outside of the engine, and the definition need not know.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::call::Call;

/// How long anything may take that happens by itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the witness has seen of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WitnessLine {
    /// Whether the command `began` or `ended`.
    pub(crate) what: String,
    pub(crate) pid: u32,
    pub(crate) run: String,
    pub(crate) step: String,
    pub(crate) execution: u32,
    pub(crate) attempt: u32,
    pub(crate) fence: u64,
    pub(crate) key: String,
}

/// A folder that only one test has.
pub(crate) struct TestSite {
    pub(crate) folder: PathBuf,
    env: Vec<(String, String)>,
}

impl TestSite {
    /// An empty one; its runs are in the SQLite file where they are by default.
    pub(crate) fn new(name: &str) -> TestSite {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("e2e")
            .join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("held")).unwrap();
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        let site = TestSite {
            folder,
            env: Vec::new(),
        };
        site.witness();
        site
    }

    /// One whose runs are in a schema of the server that `cargo xtask test` starts. Tests never skip.
    pub(crate) fn on_postgres(name: &str) -> TestSite {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
            panic!(
                "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, or `cargo xtask postgres \
                 -- cargo test -p stepwell`, which start a PostgreSQL"
            )
        });
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap().as_millis() % 1_000_000_000;
        let sign = if url.contains('?') { '&' } else { '?' };
        let (id, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let url = format!("{url}{sign}schema=e2e_{now}_{id}_{count}");
        TestSite::new(name).with("STEPWELL_STORE", &url)
    }

    /// With a variable in the environment of the processes.
    pub(crate) fn with(mut self, name: &str, value: &str) -> TestSite {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The value of a variable in the environment of the processes.
    pub(crate) fn variable(&self, name: &str) -> &str {
        let found = self.env.iter().rfind(|(it, _)| it == name);
        &found.unwrap().1
    }

    /// The same folder, with another way to the store.
    pub(crate) fn line_to(&self, url: &str) -> TestSite {
        let mut env = self.env.clone();
        env.push(("STEPWELL_STORE".to_owned(), url.to_owned()));
        TestSite {
            folder: self.folder.clone(),
            env,
        }
    }

    fn witness(&self) {
        let real = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];
        let real = real.iter().find(|it| Path::new(it).exists()).unwrap();
        let folder = self.folder.display();
        // Python may be a script for a shell too, which is nobody's task.
        let text = format!(
            r#"#!/bin/sh
PATH="${{PATH#{folder}/bin:}}"
[ "$1" = -c ] && [ -n "$STEPWELL_STEP_ID" ] || exec {real} "$@"
say() {{ echo "$1 $$ $STEPWELL_RUN_ID $STEPWELL_STEP_ID $STEPWELL_EXECUTION $STEPWELL_ATTEMPT $STEPWELL_FENCE $STEPWELL_IDEMPOTENCY_KEY" >> '{folder}/witness'; }}
say began
if [ -p "{folder}/held/$STEPWELL_STEP_ID" ]; then
  read -r _ < "{folder}/held/$STEPWELL_STEP_ID"
fi
{real} "$@"
code=$?
say ended
exit $code
"#
        );
        let path = self.folder.join("bin/bash");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// A file beside the store.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.folder.join(name), text).unwrap();
        name.to_owned()
    }

    /// What a file says that a step has written.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Makes a step stand still once it has begun.
    pub(crate) fn hold(&self, step: &str) {
        let path = self.folder.join("held").join(step);
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }

    /// Steps that begin from now on go through.
    pub(crate) fn hold_no_more(&self, step: &str) {
        std::fs::remove_file(self.folder.join("held").join(step)).unwrap();
    }

    /// Lets a step go on that stands still.
    pub(crate) fn release(&self, step: &str) {
        // Opening it waits for the step.
        let mut gate = self.gate(step);
        self.hold_no_more(step);
        gate.write_all(b"go\n").unwrap();
    }

    /// The step that stands still does so for longer; those that begin from now on go through.
    pub(crate) fn park(&self, step: &str) {
        let held = self.folder.join("held");
        std::fs::rename(held.join(step), held.join("parked")).unwrap();
    }

    /// Lets the parked step go on.
    pub(crate) fn release_parked(&self) {
        self.release("parked");
    }

    fn gate(&self, step: &str) -> File {
        let path = self.folder.join("held").join(step);
        OpenOptions::new().write(true).open(path).unwrap()
    }

    /// All that the witness has seen, in its order.
    pub(crate) fn seen(&self) -> Vec<WitnessLine> {
        let text = self.read("witness");
        let line = |line: &str| {
            let words: Vec<&str> = line.splitn(8, ' ').collect();
            let [what, pid, run, step, execution, attempt, fence, key] = words[..] else {
                panic!("a torn line: {line:?}");
            };
            WitnessLine {
                what: what.to_owned(),
                pid: pid.parse().unwrap(),
                run: run.to_owned(),
                step: step.to_owned(),
                execution: execution.parse().unwrap(),
                attempt: attempt.parse().unwrap(),
                fence: fence.parse().unwrap(),
                key: key.to_owned(),
            }
        };
        text.lines().map(line).collect()
    }

    /// How often a step has begun, and ended.
    pub(crate) fn times(&self, step: &str) -> (usize, usize) {
        let seen = self.seen();
        let count = |what: &str| {
            let is = |it: &&WitnessLine| it.what == what && it.step == step;
            seen.iter().filter(is).count()
        };
        (count("began"), count("ended"))
    }

    /// Waits until a step has begun so many times, and gives its process.
    pub(crate) fn begun(&self, step: &str, times: usize) -> u32 {
        soon(&format!("{step} begins"), || self.times(step).0 >= times);
        let is = |it: &&WitnessLine| it.what == "began" && it.step == step;
        self.seen().iter().rfind(is).unwrap().pid
    }

    fn command(&self, args: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.folder.join("bin").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_stepwell"));
        command
            .args(args)
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("USER", "ada")
            .env_remove("STEPWELL_STORE")
            .env_remove("STEPWELL_ARTIFACTS")
            .env_remove("STEPWELL_LOG")
            .env_remove("STEPWELL_SECRETS")
            .env_remove("NO_COLOR")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Calls the binary and waits for its end.
    pub(crate) fn call(&self, args: &[&str]) -> Call {
        Call::of(self.command(args).output().unwrap())
    }

    /// Calls it and expects that it went well.
    pub(crate) fn good(&self, args: &[&str]) -> String {
        self.call(args).good(args)
    }

    /// Runs a definition as the run `run_a`.
    pub(crate) fn run(&self, file: &str, more: &[&str]) -> Call {
        self.call(&[&["run", file, "--run-id", RUN][..], more].concat())
    }

    /// Starts a definition as the run `run_a` and leaves it running.
    pub(crate) fn start(&self, file: &str, more: &[&str]) -> Process {
        self.spawn(&[&["run", file, "--run-id", RUN][..], more].concat())
    }

    /// Starts the binary and leaves it running.
    pub(crate) fn spawn(&self, args: &[&str]) -> Process {
        self.launch(&mut self.command(args))
    }

    /// Starts another program here, and waits until it has said this.
    pub(crate) fn helper(&self, program: &str, args: &[&str], says: &str) -> Process {
        let process = self.launch(Command::new(program).args(args).current_dir(&self.folder));
        process.until(says);
        process
    }

    fn launch(&self, command: &mut Command) -> Process {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("said-{count}"));
        let out = File::create(&path).unwrap();
        let err = out.try_clone().unwrap();
        let command = command.stdin(Stdio::piped()).stdout(out).stderr(err);
        Process {
            child: Some(command.spawn().unwrap()),
            path,
        }
    }

    /// The run `run_a` as the contract's snapshot.
    pub(crate) fn show(&self) -> Json {
        let text = self.good(&["runs", "show", RUN, "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// The log of the run `run_a`.
    pub(crate) fn log(&self) -> Log {
        self.log_of(RUN)
    }

    pub(crate) fn log_of(&self, run: &str) -> Log {
        let text = self.good(&["runs", "events", run, "--ext"]);
        let lines = text.lines();
        Log(lines.map(|it| serde_json::from_str(it).unwrap()).collect())
    }
}

/// The run that tests start.
pub(crate) const RUN: &str = "run_a";

/// The events of a run in order, as `runs events --ext` prints them.
pub(crate) struct Log(pub(crate) Vec<Json>);

impl Log {
    /// The events of a type, of one step.
    pub(crate) fn of<'a>(&'a self, event: &str, step: &str) -> Vec<&'a Json> {
        let is = |it: &&Json| it["eventType"] == event && it["stepId"] == step;
        self.0.iter().filter(is).collect()
    }

    /// How many events of a type a step has.
    pub(crate) fn count(&self, event: &str, step: &str) -> usize {
        self.of(event, step).len()
    }

    /// How many executions of a step the log has.
    pub(crate) fn executions(&self, step: &str) -> usize {
        self.count("StepStarted", step) + self.count("StepExecutionStarted", step)
    }

    /// The steps that were completed, in that order.
    pub(crate) fn completed(&self) -> Vec<&str> {
        let is = |it: &&Json| it["eventType"] == "StepCompleted";
        let done = self.0.iter().filter(is);
        done.map(|it| it["stepId"].as_str().unwrap()).collect()
    }

    /// The types of all events, in order.
    pub(crate) fn types(&self) -> Vec<&str> {
        let types = self.0.iter().map(|it| it["eventType"].as_str());
        types.map(Option::unwrap).collect()
    }
}

/// A process that runs.
pub(crate) struct Process {
    child: Option<Child>,
    path: PathBuf,
}

impl Process {
    fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// What it has printed, on both outputs.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }

    /// The most memory that it has had so far.
    pub(crate) fn peak_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = text.lines().find_map(|it| it.strip_prefix("VmHWM:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    /// Kills the process like `kill -9`: it cannot clean up.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends it a signal of the system.
    pub(crate) fn send(&self, signal: &str) {
        let (signal, id) = (format!("-{signal}"), self.id().to_string());
        let sent = Command::new("kill").args([&signal, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it has printed this.
    pub(crate) fn until(&self, what: &str) {
        soon(what, || self.said().contains(what));
    }

    /// Waits for its end.
    pub(crate) fn end(self) -> (i32, String) {
        self.end_within(PATIENCE)
    }

    /// Waits for its end, which may take so long.
    pub(crate) fn end_within(mut self, patience: Duration) -> (i32, String) {
        let mut child = self.child.take().unwrap();
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return (status.code().unwrap_or(-1), self.said());
            }
            if Instant::now() > until {
                child.kill().unwrap();
                panic!("it does not end: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A test that fails leaves nothing running.
impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Looks until it holds; it must, before long.
pub(crate) fn soon(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it did not come to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Neither running nor stopped; a zombie that its new parent has not reaped yet counts as gone.
pub(crate) fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let state = stat.rsplit(") ").next().unwrap_or("");
    state.starts_with('Z') || state.starts_with('X')
}

/// Where an example is.
pub(crate) fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    root.join(name).to_str().unwrap().to_owned()
}
