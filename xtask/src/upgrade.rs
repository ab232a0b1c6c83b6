//! `cargo xtask upgrade`: two servers of an earlier revision on one PostgreSQL are replaced by servers of this checkout,
//! one after the other, while runs are started and executed.

use crate::cluster::Cluster;
use crate::repo::Repo;
use crate::served::{Served, ask};
use anyhow::{Context, Result, bail};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "\
Upgrade two servers on one PostgreSQL without downtime, from an earlier revision to this checkout.

Usage: cargo xtask upgrade [REV] [--seconds N] [--old PROGRAM]

  REV               the earlier revision; default HEAD~1
  --seconds N       how long each phase lasts; default 5
  --old PROGRAM     a stepwell of the earlier revision, instead of building one

Builds REV in a checkout below target/upgrade, with the same target directory. Then, under a load of runs whose steps
leave a line in a file:

  1. two servers of REV work
  2. one of them is stopped and replaced by a server of this checkout, which migrates the tables
  3. both versions work side by side
  4. the other one is replaced too

Checks that every start was answered by one of the servers, every run completes, every step was executed once, and that
`stepwell db check` finds nothing. docs/deploy.md has the rules that migrations obey.
";

/// How long the last runs may take to end.
const END: Duration = Duration::from_secs(120);
/// How long a start may find no server.
const GAP: Duration = Duration::from_secs(5);

struct Options {
    revision: String,
    phase: Duration,
    old: Option<PathBuf>,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        revision: "HEAD~1".to_owned(),
        phase: Duration::from_secs(5),
        old: None,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--seconds" => options.phase = Duration::from_secs(value()?.parse()?),
            "--old" => options.old = Some(value()?.into()),
            other if other.starts_with('-') => bail!("unknown argument `{other}`; try --help"),
            revision => options.revision = revision.to_owned(),
        }
    }
    Ok(options)
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let options = options(args)?;
    // The earlier one first: both are put at the same place.
    let old = match &options.old {
        Some(program) => program.clone(),
        None => build(repo, &options.revision)?,
    };
    repo.cargo_output(&["build", "-q", "--locked", "-p", "stepwell"])?;
    let new = repo.root.join("target/debug/stepwell");
    let cluster = Cluster::start(&[])?;
    let folder = repo
        .root
        .join(format!("target/upgrade/run-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let store = format!("{}?schema=upgrade", cluster.url());
    let outcome = upgrade(&old, &new, &folder, &store, options.phase);
    match &outcome {
        Ok(told) => {
            println!("{told}");
            fs::remove_dir_all(&folder).ok();
        }
        Err(_) => eprintln!("files are kept in {}", folder.display()),
    }
    outcome.map(drop)
}

/// Builds a revision, and says where its program is.
fn build(repo: &Repo, revision: &str) -> Result<PathBuf> {
    let shown = Command::new("git")
        .args(["rev-parse", "--short=12", revision])
        .current_dir(&repo.root)
        .output()?;
    if !shown.status.success() {
        bail!("there is no revision {revision}");
    }
    let id = String::from_utf8(shown.stdout)?.trim().to_owned();
    let place = repo.root.join("target/upgrade");
    let program = place.join(format!("stepwell-{id}"));
    if program.exists() {
        return Ok(program);
    }
    let source = place.join(&id);
    fs::create_dir_all(&source)?;
    let mut archive = Command::new("git")
        .args(["archive", &id])
        .current_dir(&repo.root)
        .stdout(Stdio::piped())
        .spawn()?;
    let files = archive.stdout.take().context("no archive")?;
    let unpacked = Command::new("tar")
        .arg("-x")
        .current_dir(&source)
        .stdin(files)
        .status()?;
    if !unpacked.success() || !archive.wait()?.success() {
        bail!("the files of {revision} could not be unpacked");
    }
    println!("building {id}");
    let built = Command::new("cargo")
        .args(["build", "-q", "--locked", "-p", "stepwell"])
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", repo.root.join("target"))
        .status()?;
    if !built.success() {
        bail!("{revision} cannot be built");
    }
    fs::copy(repo.root.join("target/debug/stepwell"), &program)?;
    fs::remove_dir_all(&source).ok();
    Ok(program)
}

/// The steps wait, so that runs are open over every phase, and timers fire on whichever server there is.
fn definition(witness: &Path) -> String {
    let step = |name: &str, next: &str| {
        format!(
            "- step: {name}\n  tool: {{kind: shell, cmds: ['echo $STEPWELL_RUN_ID {name} >> {}']}}\n{next}",
            witness.display()
        )
    };
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: upgrade, path: upgrade}}\nworkflow:\n{}\
         - step: pause\n  tool: {{kind: sleep, seconds: 2}}\n  next: [{{step: last}}]\n{}",
        step("start", "  next: [{step: pause}]\n"),
        step("last", ""),
    )
}

/// The servers that answer now.
type Servers = Arc<Mutex<Vec<String>>>;

/// Starts runs, each once, at any server that answers.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<String>>>,
}

impl Load {
    fn start(servers: &Servers, text: String) -> Load {
        let stop = Arc::<AtomicBool>::default();
        let (stopped, servers) = (Arc::clone(&stop), Arc::clone(servers));
        let thread = thread::spawn(move || {
            let mut runs = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let number = runs.len();
                let body =
                    json!({ "definition": { "text": text }, "requestId": format!("r{number}") });
                runs.push(start_somewhere(&servers, number, &body)?);
                thread::sleep(Duration::from_millis(20));
            }
            Ok(runs)
        });
        Load { stop, thread }
    }

    fn end(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::SeqCst);
        match self.thread.join() {
            Ok(runs) => runs,
            Err(_) => bail!("the load panicked"),
        }
    }
}

/// As a client behind a load balancer: a server that is stopping is left for the other one.
fn start_somewhere(servers: &Servers, number: usize, body: &Json) -> Result<String> {
    let began = Instant::now();
    let mut why = String::new();
    for attempt in number.. {
        let known = servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(url) = known.get(attempt % known.len().max(1)) {
            match ask(url, "POST", "/api/v1/runs", Some(body)) {
                Ok((200 | 201, answer)) => {
                    let id = answer["runId"].as_str().context("no id of the run")?;
                    return Ok(id.to_owned());
                }
                Ok((status, answer)) => why = format!("{status}: {answer}"),
                Err(error) => why = format!("{error:#}"),
            }
        }
        if began.elapsed() > GAP {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    bail!("no server has started run {number} for {GAP:?}: {why}")
}

fn upgrade(old: &Path, new: &Path, folder: &Path, store: &str, phase: Duration) -> Result<String> {
    let witness = folder.join("witness");
    let servers = Servers::default();
    let show = |all: &[&Served]| {
        let urls = all.iter().map(|it| it.url.clone()).collect();
        *servers.lock().unwrap_or_else(PoisonError::into_inner) = urls;
    };
    let serve = |program: &Path, name: &str| {
        let home = folder.join(name);
        fs::create_dir_all(&home)?;
        let artifacts = folder.join("artifacts").display().to_string();
        Served::start(
            program,
            &home,
            &["--store", store, "--artifacts", &artifacts],
        )
        .with_context(|| format!("the server {name}"))
    };
    let (first, second) = (serve(old, "old-1")?, serve(old, "old-2")?);
    show(&[&first, &second]);
    let load = Load::start(&servers, definition(&witness));
    println!("two servers of the earlier revision work");
    thread::sleep(phase);
    show(&[&second]);
    first.stop()?;
    let first = serve(new, "new-1")?;
    show(&[&second, &first]);
    println!("a server of this checkout works beside one of the earlier revision");
    thread::sleep(phase);
    show(&[&first]);
    second.stop()?;
    let second = serve(new, "new-2")?;
    show(&[&first, &second]);
    println!("two servers of this checkout work");
    thread::sleep(phase);
    let runs = load.end()?;
    let until = Instant::now() + END;
    for run in &runs {
        loop {
            let (status, seen) = ask(&second.url, "GET", &format!("/api/v1/runs/{run}"), None)?;
            match seen["status"].as_str() {
                Some("COMPLETED") => break,
                Some("FAILED" | "CANCELLED") | None => bail!("run {run}: {status} {seen}"),
                Some(_) if Instant::now() > until => bail!("run {run} is stuck: {seen}"),
                Some(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    let lines = fs::read_to_string(&witness)?;
    for line in lines.lines() {
        *done.entry(line).or_default() += 1;
    }
    for run in &runs {
        for step in ["start", "last"] {
            match done.get(format!("{run} {step}").as_str()) {
                Some(1) => {}
                Some(times) => bail!("step {step} of run {run} was executed {times} times"),
                None => bail!("step {step} of run {run} was not executed"),
            }
        }
    }
    let (_, alerts) = ask(&first.url, "GET", "/api/v1/alerts", None)?;
    if alerts.to_string().contains("ENGINE_INVARIANT") {
        bail!("an alert was raised: {alerts}");
    }
    first.stop()?;
    second.stop()?;
    let checked = Command::new(new)
        .args(["db", "check", "--store", store])
        .output()?;
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    match checked.status.success() {
        true => Ok(format!(
            "{} runs, each step once, nothing lost and nothing stuck\n{}",
            runs.len(),
            text.trim_end()
        )),
        false => bail!("stepwell db check finds:\n{text}"),
    }
}
