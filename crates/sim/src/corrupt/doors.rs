//! What a user asks of a store: `stepwell db check`, all commands that read, SQL on the views, and the end of the open
//! runs. Answers of two stores can be compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value as Json;

use super::Corruptions;
use super::listener::Listener;
use super::samples::{Copy, OPEN, RUNS};

/// How long a command may take; one that does not end is a fault of its own.
const LONGEST: Duration = Duration::from_secs(60);

/// What was read through a door.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) answer: Result<String, String>,
    /// It is verified whenever it is read, not only by the check.
    pub(super) verified: bool,
}

/// The doors of a store.
#[derive(Debug)]
pub(super) struct Doors<'a> {
    program: &'a Path,
    copy: &'a Copy,
}

/// How a command ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl<'a> Doors<'a> {
    pub(super) fn new(corruptions: &'a Corruptions, copy: &'a Copy) -> Doors<'a> {
        Doors {
            program: &corruptions.program,
            copy,
        }
    }

    fn call(&self, args: &[&str]) -> Result<Said> {
        let log = self.copy.folder.join("stderr");
        let out = self.copy.folder.join("stdout");
        let mut child = Command::new(self.program)
            .args(args)
            .current_dir(&self.copy.folder)
            .env("STEPWELL_STORE", &self.copy.store)
            .env("STEPWELL_ARTIFACTS", self.copy.folder.join("artifacts"))
            .env("STEPWELL_STORE_PATIENCE", "0")
            .env("STEPWELL_SINK_SECRET", "between us")
            .env("USER", "ada")
            .env_remove("STEPWELL_LOG")
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&out)?)
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let until = Instant::now() + LONGEST;
        let code = loop {
            if let Some(status) = child.try_wait()? {
                break status.code();
            }
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                return Ok(Said {
                    code: None,
                    out: String::new(),
                    err: format!("it had not ended after {} s", LONGEST.as_secs()),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text = |path: &Path| -> Result<String> {
            Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
        };
        Ok(Said {
            code,
            out: text(&out)?,
            err: text(&log)?,
        })
    }

    /// What the check found; none if there is no problem.
    pub(super) fn check(&self) -> Result<Option<String>> {
        let said = self.call(&["db", "check"])?;
        Ok(match said.code {
            Some(0) => None,
            _ => Some(format!("db check: {}{}", said.out, said.err)),
        })
    }

    /// What every command that reads says.
    pub(super) fn reads(&self) -> Result<BTreeMap<String, Door>> {
        let mut reads = BTreeMap::new();
        let lists: [&[&str]; 4] = [
            &["runs", "list", "--limit", "100", "-o", "json"],
            &["outbox", "list", "-o", "json"],
            &["dlq", "list", "-o", "json"],
            &["alerts", "list", "-o", "json"],
        ];
        for args in lists {
            let door = self.read(args, false)?;
            reads.insert(args[..2].join(" "), door);
        }
        for run in RUNS {
            // A run that has ended must have its end; an open one has none to be looked for.
            let has_ended = !OPEN.contains(&run);
            let mut show = self.read(&["runs", "show", run, "-o", "json"], has_ended)?;
            show.answer = show.answer.map(|text| without_countdowns(&text));
            reads.insert(format!("runs show {run}"), show);
        }
        for run in ["run_undone", "run_large", "run_mail"] {
            let events = self.read(&["runs", "events", run, "--ext"], true)?;
            reads.insert(format!("runs events {run}"), events);
        }
        let uri = self.copy.artifact.as_str();
        let artifact = self.read(&["artifacts", "get", "run_large", uri], true)?;
        reads.insert("artifacts get".to_owned(), artifact);
        let sql = self.copy.views()?;
        for (view, answer) in sql {
            let door = Door {
                answer,
                verified: false,
            };
            reads.insert(format!("view {view}"), door);
        }
        Ok(reads)
    }

    fn read(&self, args: &[&str], verified: bool) -> Result<Door> {
        let said = self.call(args)?;
        let answer = match said.code {
            Some(0) => Ok(said.out),
            _ => Err(coded(&said)?),
        };
        Ok(Door { answer, verified })
    }

    /// Brings the open runs to their end, starts one that was announced, delivers what waits. Says how the runs ended
    /// and what was delivered, or which command refused.
    pub(super) fn finish(&self) -> Result<Result<BTreeMap<String, String>, String>> {
        let listener = Listener::start()?;
        let sink = format!("hook=webhook:{}", listener.url());
        let gate = self.copy.folder.join("gate.yaml");
        let gate = gate.to_str().context("a path that is no text")?;
        let open = ["--event", "gate.opened"];
        let calls: [&[&str]; 10] = [
            &["resume", "run_sleep"],
            &[
                "runs",
                "complete",
                "run_ask",
                "approve",
                "--outcome",
                "succeeded",
            ],
            &["resume", "run_ask"],
            &[
                "runs",
                "signal",
                open[0],
                open[1],
                "--id",
                "e-g",
                "--key",
                "g1",
                "--payload",
                r#"{"who":"eve"}"#,
            ],
            &["resume", "run_gate"],
            &[
                "runs",
                "signal",
                open[0],
                open[1],
                "--id",
                "e-m",
                "--key",
                "g3",
                "--payload",
                r#"{"who":"bob"}"#,
            ],
            &["runs", "resume", "run_mail"],
            &["resume", "run_mail"],
            &["run", gate, "--run-id", "run_late", "-i", "gate=g2"],
            &["outbox", "flush", "--sink", &sink],
        ];
        for args in calls {
            let said = self.call(args)?;
            if said.code != Some(0) {
                return Ok(Err(format!("{}: {}", args.join(" "), coded(&said)?)));
            }
        }
        let mut ends = BTreeMap::new();
        for run in RUNS.into_iter().chain(["run_late"]) {
            let said = self.call(&["runs", "show", run, "-o", "json"])?;
            if said.code != Some(0) {
                return Ok(Err(format!("runs show {run}: {}", coded(&said)?)));
            }
            ends.insert(format!("end of {run}"), timeless(&said.out)?);
        }
        // A run says where its definition is; each copy of the store is in a folder of its own.
        let folder = self.copy.folder.display().to_string();
        let bodies = listener.bodies().into_iter();
        let mut delivered = bodies
            .map(|it| timeless(&it.replace(&folder, "FOLDER")))
            .collect::<Result<Vec<_>>>()?;
        delivered.sort();
        ends.insert("delivered".to_owned(), delivered.join("\n"));
        Ok(Ok(ends))
    }
}

/// A refusal counts only with a code, or if the command says what the store lacks.
fn coded(said: &Said) -> Result<String> {
    if said.code.is_none() {
        return Ok(format!("no answer: {}", said.err));
    }
    let text = format!("{}{}", said.out, said.err);
    if text.contains("panicked") {
        bail!("the command panicked: {text}");
    }
    Ok(text)
}

/// A run as it is shown, without how long it still waits.
fn without_countdowns(text: &str) -> String {
    let cut = |line: &str| line.split(", in ").next().unwrap_or_default().to_owned();
    let lines: Vec<String> = text.lines().map(cut).collect();
    lines.join("\n")
}

/// A document without what differs from one execution to the next: times and random ids.
fn timeless(text: &str) -> Result<String> {
    let mut json: Json = serde_json::from_str(text).with_context(|| format!("no JSON: {text}"))?;
    strip(&mut json);
    Ok(json.to_string())
}

fn strip(json: &mut Json) {
    const VARY: [&str; 5] = ["planHash", "eventId", "idempotencyKey", "hash", "signalId"];
    match json {
        Json::Array(items) => items.iter_mut().for_each(strip),
        Json::Object(members) => {
            for (name, value) in members {
                match value {
                    Json::String(text) if is_time(text) || VARY.contains(&name.as_str()) => {
                        *value = Json::Null;
                    }
                    Json::Number(_) if name.ends_with("Ms") || name.ends_with("_ms") => {
                        *value = Json::Null
                    }
                    _ => strip(value),
                }
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && bytes.ends_with(b"Z")
}

/// Where two answers begin to differ.
pub(super) fn difference<T: std::fmt::Debug>(
    name: &str,
    before: Option<T>,
    now: &String,
) -> String {
    let before = before.map(|it| format!("{it:?}")).unwrap_or_default();
    let now = format!("{now:?}");
    let before = before.trim_start_matches("Ok(").to_owned();
    let same = before
        .chars()
        .zip(now.chars())
        .take_while(|(one, other)| one == other)
        .count();
    let from = same.saturating_sub(60);
    let part = |text: &str| -> String { text.chars().skip(from).take(160).collect() };
    format!("{name} was …{}… and is …{}…", part(&before), part(&now))
}
