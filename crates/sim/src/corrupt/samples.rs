//! The stores that are damaged: made by the command itself, with finished and open runs in all five languages, an
//! artifact, waits, timers, a message in a mailbox, an event that is kept, deliveries that wait and dead letters. One
//! sample was closed; one was left by processes that were killed, with a write-ahead log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rusqlite::{Connection, OpenFlags};

use super::Corruptions;
use super::damage::Damage;
use super::doors::{Door, Doors, difference};

/// The runs of a sample.
pub(super) const RUNS: [&str; 10] = [
    "run_saga",
    "run_undone",
    "run_dag",
    "run_large",
    "run_sink",
    "run_dead",
    "run_gate",
    "run_ask",
    "run_sleep",
    "run_mail",
];

/// Those that have not ended.
pub(super) const OPEN: [&str; 4] = ["run_gate", "run_ask", "run_sleep", "run_mail"];

const GATE: &str = r#"
workflowType: gate.open
workflowVersion: 1
bizKey: "{{ workload.gate }}"
steps:
  - stepType: FIRST
    tool: {kind: shell, cmds: ['echo first']}
  - stepType: AWAIT
    waitFor: {event: gate.opened, timeout: 24h}
  - stepType: LAST
    tool: {kind: shell, cmds: ['echo last']}
"#;

const LARGE: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large}
workflow:
  - step: small
    tool: {kind: shell, cmds: ['echo small']}
    next: [{step: large}]
  - step: large
    tool: {kind: shell, cmds: ['head -c 90000 /dev/zero | tr "\\0" x']}
"#;

const ASK: &str = r#"
metadata: {planId: ask, planVersion: "1", schemaVersion: v1.2}
steps:
  - stepId: build
    timeout: 1m
    tool: {kind: shell, cmds: ["echo built"]}
  - stepId: approve
    approval: {timeout: 24h}
  - stepId: deploy
    timeout: 1m
    tool: {kind: shell, cmds: ["echo deployed"]}
"#;

const SLEEP: &str = r#"
metadata: {planId: sleep, planVersion: "1", schemaVersion: v1.2}
steps:
  - stepId: before
    timeout: 1m
    tool: {kind: shell, cmds: ["echo before"]}
  - stepId: rest
    waitFor: {delay: 8s}
  - stepId: after
    timeout: 1m
    tool: {kind: shell, cmds: ["echo after"]}
"#;

/// Where a store is, and the files that belong to it.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) folder: PathBuf,
    pub(super) store: String,
    /// The address of the only artifact.
    pub(super) artifact: String,
}

impl Copy {
    pub(super) fn database(&self) -> PathBuf {
        self.folder.join("runs.db")
    }

    pub(super) fn is_postgres(&self) -> bool {
        self.store.starts_with("postgresql:")
    }

    /// Runs statements on PostgreSQL; says what they answer.
    pub(super) fn psql(&self, sql: &str) -> Result<Result<String, String>> {
        psql(&self.store, sql)
    }

    /// What SQL shows of the views.
    pub(super) fn views(&self) -> Result<Vec<(&'static str, Result<String, String>)>> {
        const VIEWS: [(&str, &str); 3] = [
            ("events", "run_id, run_seq"),
            ("workflow_instance", "instance_id"),
            ("workflow_step", "instance_id, step_seq"),
        ];
        let mut all = Vec::new();
        for (view, order) in VIEWS {
            let sql = format!("SELECT * FROM {view} ORDER BY {order}");
            let answer = match self.is_postgres() {
                true => self.psql(&sql)?,
                false => self.rows(&sql).map_err(|error| error.to_string()),
            };
            all.push((view, answer));
        }
        Ok(all)
    }

    fn rows(&self, sql: &str) -> rusqlite::Result<String> {
        let conn = Connection::open_with_flags(self.database(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let mut statement = conn.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut text = String::new();
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                text.push_str(&format!("{:?}|", row.get_ref(column)?));
            }
            text.push('\n');
        }
        Ok(text)
    }
}

/// A store with what is read from it.
#[derive(Debug)]
pub(super) struct Sample {
    files: Copy,
    pub(super) reads: BTreeMap<String, Door>,
    pub(super) ends: BTreeMap<String, String>,
}

impl Sample {
    /// A copy that may be damaged.
    pub(super) fn copy_to(&self, folder: &Path) -> Result<Copy> {
        copy_folder(&self.files.folder, folder)?;
        let mut copy = Copy {
            folder: folder.to_owned(),
            ..self.files.clone()
        };
        match self.files.is_postgres() {
            true => {
                let name = folder
                    .file_name()
                    .and_then(|it| it.to_str())
                    .unwrap_or("copy");
                let name = format!("{}_{}", name.replace('-', "_"), std::process::id());
                let (server, from) = split(&self.files.store)?;
                let make = format!("CREATE DATABASE {name} TEMPLATE {from}");
                psql(&format!("{server}/postgres"), &make)?.map_err(anyhow::Error::msg)?;
                copy.store = format!("{server}/{name}");
            }
            false => copy.store = format!("sqlite:{}", copy.database().display()),
        }
        Ok(copy)
    }
}

/// The samples of both databases, by the state that they were left in.
#[derive(Debug)]
pub(super) struct Samples {
    closed: Sample,
    killed: Sample,
    postgres: Option<Sample>,
}

impl Samples {
    pub(super) fn make(corruptions: &Corruptions, home: &Path) -> Result<Samples> {
        let work = home.join("sqlite");
        fs::create_dir_all(&work)?;
        let store = format!("sqlite:{}", work.join("runs.db").display());
        let artifact = Maker::new(corruptions, &work, &store).make()?;
        let killed = Copy {
            folder: work,
            store,
            artifact,
        };
        // A program that reads takes the write-ahead log into the database when it closes it.
        let folder = home.join("closed");
        copy_folder(&killed.folder, &folder)?;
        let closed = Copy {
            store: format!("sqlite:{}", folder.join("runs.db").display()),
            folder,
            artifact: killed.artifact.clone(),
        };
        closed.rows("SELECT count(*) FROM runs")?;
        let postgres = match &corruptions.postgres {
            None => None,
            Some(url) => {
                let folder = home.join("postgres");
                fs::create_dir_all(&folder)?;
                let (server, _) = split(url)?;
                let name = format!("corrupt_{}", std::process::id());
                let make = format!("CREATE DATABASE {name}");
                psql(&format!("{server}/postgres"), &make)?.map_err(anyhow::Error::msg)?;
                let store = format!("{server}/{name}");
                let artifact = Maker::new(corruptions, &folder, &store).make()?;
                let files = Copy {
                    folder,
                    store,
                    artifact,
                };
                Some(known(corruptions, home, files)?)
            }
        };
        Ok(Samples {
            closed: known(corruptions, home, closed)?,
            killed: known(corruptions, home, killed)?,
            postgres,
        })
    }

    pub(super) fn has_postgres(&self) -> bool {
        self.postgres.is_some()
    }

    /// The sample that a damage is for.
    pub(super) fn of(&self, damage: &Damage) -> &Sample {
        match damage {
            Damage::LogCut | Damage::LogBytes => &self.killed,
            Damage::PostgresRow(_) => self.postgres.as_ref().unwrap_or(&self.closed),
            Damage::BitFlip
            | Damage::Bytes
            | Damage::ZeroPage
            | Damage::Cut
            | Damage::SwappedPages
            | Damage::TornPage
            | Damage::Artifact
            | Damage::Row(_) => &self.closed,
        }
    }
}

/// Reads a sample, twice: what differs between two readings of the same store cannot be judged.
fn known(corruptions: &Corruptions, home: &Path, files: Copy) -> Result<Sample> {
    let mut sample = Sample {
        files,
        reads: BTreeMap::new(),
        ends: BTreeMap::new(),
    };
    let mut before: Option<(BTreeMap<String, Door>, BTreeMap<String, String>)> = None;
    let kind = sample
        .files
        .folder
        .file_name()
        .map(|it| it.to_string_lossy().into_owned());
    for number in 0..2 {
        let folder = home.join(format!(
            "known-{}-{number}",
            kind.clone().unwrap_or_default()
        ));
        let copy = sample.copy_to(&folder)?;
        let doors = Doors::new(corruptions, &copy);
        if let Some(found) = doors.check()? {
            bail!("the check finds something in a store that is whole: {found}");
        }
        let reads = doors.reads()?;
        for (name, door) in &reads {
            if let Err(error) = &door.answer {
                bail!("{name} fails on a store that is whole: {error}");
            }
        }
        let ends = doors.finish()?.map_err(anyhow::Error::msg)?;
        if let Some((earlier, ended)) = &before {
            for (name, door) in &reads {
                let was = earlier.get(name).map(|it| &it.answer);
                if was != Some(&door.answer) {
                    let now = format!("{:?}", door.answer);
                    bail!("two readings differ: {}", difference(name, was, &now));
                }
            }
            for (name, end) in &ends {
                if ended.get(name) != Some(end) {
                    bail!(
                        "two ends differ: {}",
                        difference(name, ended.get(name), end)
                    );
                }
            }
        }
        before = Some((reads, ends));
    }
    (sample.reads, sample.ends) = before.context("nothing was read")?;
    Ok(sample)
}

/// Makes a store with the command.
struct Maker<'a> {
    corruptions: &'a Corruptions,
    folder: &'a Path,
    store: &'a str,
}

impl<'a> Maker<'a> {
    fn new(corruptions: &'a Corruptions, folder: &'a Path, store: &'a str) -> Maker<'a> {
        Maker {
            corruptions,
            folder,
            store,
        }
    }

    fn make(&self) -> Result<String> {
        for (name, text) in [
            ("gate", GATE),
            ("large", LARGE),
            ("ask", ASK),
            ("sleep", SLEEP),
        ] {
            fs::write(self.folder.join(format!("{name}.yaml")), text)?;
        }
        let example = |name: &str| self.corruptions.examples.join(name).display().to_string();
        let saga = example("actions/order-saga.yaml");
        let (dag, trip) = (example("dag/incident.yaml"), example("actions/trip.yaml"));
        let mock = |file: &str, run: &str, more: &[&str]| {
            let args = [&["run", file, "--engine", "mock", "--run-id", run], more].concat();
            self.call(&args)
        };
        mock(&saga, "run_saga", &[])?;
        self.call_to(
            &[
                "run",
                &saga,
                "--engine",
                "mock",
                "--run-id",
                "run_undone",
                "--fail",
                "ship",
            ],
            3,
        )?;
        mock(&dag, "run_dag", &[])?;
        self.call(&["run", "large.yaml", "--run-id", "run_large"])?;
        let nobody = "webhook:http://127.0.0.1:9/";
        mock(&trip, "run_sink", &["--sink", &format!("hook={nobody}")])?;
        mock(
            &trip,
            "run_dead",
            &["--sink", &format!("dead={nobody}"), "--sink-attempts", "1"],
        )?;
        let listed = self.call(&["artifacts", "list", "run_large", "-o", "json"])?;
        let artifact = listed
            .split('"')
            .find(|it| it.starts_with("artifact:"))
            .context("run_large has no artifact")?
            .to_owned();
        self.start(
            &["run", "ask.yaml", "--run-id", "run_ask"],
            "waits for approval",
        )?
        .interrupt()?;
        self.start(
            &["run", "gate.yaml", "--run-id", "run_gate", "-i", "gate=g1"],
            "waits for event",
        )?
        .kill()?;
        self.call(&[
            "runs",
            "signal",
            "--event",
            "gate.opened",
            "--id",
            "evt-1",
            "--key",
            "g2",
            "--payload",
            r#"{"who":"ada"}"#,
        ])?;
        self.start(&["run", "sleep.yaml", "--run-id", "run_sleep"], "sleeps")?
            .kill()?;
        let mail = self.start(
            &["run", "gate.yaml", "--run-id", "run_mail", "-i", "gate=g3"],
            "waits for event",
        )?;
        // The owner does not answer, and dies: its message waits.
        self.leave_mail(&mail)?;
        mail.kill()?;
        // The sleep is over: what is shown of it does not change any more.
        std::thread::sleep(Duration::from_secs(9));
        Ok(artifact)
    }

    /// Sends a command to a stopped owner. A stop in the middle of a transaction keeps the database locked: then the
    /// owner goes on for a moment.
    fn leave_mail(&self, owner: &Started) -> Result<()> {
        // On PostgreSQL a run that only waits has no owner, and the command pauses it.
        let answered = match self.store.starts_with("sqlite:") {
            true => 6,
            false => 0,
        };
        let pause = "runs pause run_mail --timeout 1 --store-patience 2s";
        let pause: Vec<&str> = pause.split(' ').collect();
        for _ in 0..9 {
            owner.signal("STOP")?;
            if self.command(&pause).output()?.status.code() == Some(answered) {
                return Ok(());
            }
            owner.signal("CONT")?;
            std::thread::sleep(Duration::from_millis(200));
        }
        owner.signal("STOP")?;
        self.call_to(&pause, answered).map(drop)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.corruptions.program);
        command
            .args(args)
            .current_dir(self.folder)
            .env("STEPWELL_STORE", self.store)
            .env("STEPWELL_ARTIFACTS", self.folder.join("artifacts"))
            .env("STEPWELL_STORE_PATIENCE", "20s")
            .env("STEPWELL_SINK_SECRET", "between us")
            .env("USER", "ada")
            .env_remove("STEPWELL_LOG")
            .stdin(Stdio::null());
        command
    }

    fn call(&self, args: &[&str]) -> Result<String> {
        self.call_to(args, 0)
    }

    fn call_to(&self, args: &[&str], code: i32) -> Result<String> {
        let output = self.command(args).output()?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.code() != Some(code) {
            let err = String::from_utf8_lossy(&output.stderr);
            bail!("{args:?} ended with {}: {out}{err}", output.status);
        }
        Ok(out)
    }

    /// Starts a command and waits until it has said something.
    fn start(&self, args: &[&str], until: &str) -> Result<Started> {
        let said = self.folder.join("said");
        let child = self
            .command(args)
            .stdout(fs::File::create(&said)?)
            .stderr(Stdio::null())
            .spawn()?;
        let started = Started { child };
        let late = Instant::now() + Duration::from_secs(60);
        while !fs::read_to_string(&said)?.contains(until) {
            if Instant::now() > late {
                bail!(
                    "{args:?} did not say {until:?}: {}",
                    fs::read_to_string(&said)?
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(started)
    }
}

/// A command that runs; killed when it is dropped.
struct Started {
    child: Child,
}

impl Started {
    fn signal(&self, name: &str) -> Result<()> {
        let id = self.child.id().to_string();
        let status = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status()?;
        match status.success() {
            true => Ok(()),
            false => bail!("a process could not be sent {name}"),
        }
    }

    fn interrupt(mut self) -> Result<()> {
        self.signal("INT")?;
        self.child.wait()?;
        Ok(())
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // One that has ended needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => {
                fs::copy(entry.path(), &target)?;
            }
        }
    }
    Ok(())
}

/// The server and the database of an address.
fn split(url: &str) -> Result<(&str, &str)> {
    let plain = url.split_once('?').map_or(url, |(plain, _)| plain);
    plain
        .rsplit_once('/')
        .context("the address names no database")
}

fn psql(url: &str, sql: &str) -> Result<Result<String, String>> {
    let output = Command::new("psql")
        .args([
            "-XqAt",
            "-v",
            "ON_ERROR_STOP=1",
            url,
            "-c",
            "SET search_path = stepwell, public",
            "-c",
            sql,
        ])
        .output()
        .context("psql is not there (Debian: apt-get install postgresql-client)")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    })
}
