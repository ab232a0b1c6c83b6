//! Where the playbooks run: a temporary folder with copies of the files, the stub and a PostgreSQL
//! beside it, and the binary that was built. Also what can be asked of a run once it is over.

use super::stub::Stub;
use crate::cluster::Cluster;
use crate::postgres;
use crate::repo::Repo;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A command that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// The credentials that the files name; all are the same server.
const CREDENTIALS: [&str; 3] = ["PG_K8S", "PG_TEST", "PG_LOCAL"];
/// Files that others call by another name than they have in the corpus.
const ALIASES: [(&str, &str); 2] = [
    ("local-build_child.yaml", "build_child.yaml"),
    ("local-deploy_child.yaml", "deploy_child.yaml"),
];

/// Everything that the runs share.
pub(super) struct Sandbox {
    folder: PathBuf,
    binary: PathBuf,
    pub(super) stub: Stub,
    cluster: Cluster,
    asked: AtomicU32,
}

impl Sandbox {
    /// Builds the binary and copies the files.
    pub(super) fn open(repo: &Repo, files: &[PathBuf]) -> Result<Sandbox> {
        let sandbox = Sandbox {
            binary: repo.program()?.to_owned(),
            folder: fresh_folder()?,
            stub: Stub::start()?,
            cluster: postgres::private()?,
            asked: AtomicU32::new(0),
        };
        fs::create_dir_all(sandbox.folder.join("files"))?;
        for file in files {
            let name = file.file_name().context("a file without a name")?;
            let alias = ALIASES.iter().find(|(own, _)| name == *own);
            fs::copy(file, sandbox.file(&name.to_string_lossy()))?;
            if let Some((_, called)) = alias {
                fs::copy(file, sandbox.file(called))?;
            }
        }
        Ok(sandbox)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join("files").join(name)
    }

    /// Runs a playbook to its end, with these values over its workload; `{stub}` is the stub's address.
    pub(super) fn run(&self, file: &str, inputs: &[(&str, &str)]) -> Result<FinishedRun<'_>> {
        let home = self.folder.join(file.trim_end_matches(".yaml"));
        fs::create_dir_all(&home)?;
        let mut command = self.stepwell(&["run"], &home);
        command.arg(self.file(file)).args(["-o", "json"]);
        for (key, value) in inputs {
            let value = value.replace("{stub}", &self.stub.url());
            command.arg("--input").arg(format!("{key}={value}"));
        }
        let (exit, said, complaints) = finish(command, &home)?;
        let report = serde_json::from_str(&said)
            .with_context(|| format!("the report is not JSON ({exit}): {said}\n{complaints}"))?;
        Ok(FinishedRun {
            sandbox: self,
            home,
            exit: exit.code(),
            report,
            complaints,
        })
    }

    /// The rows that these statements give, asked with a step of our own.
    pub(super) fn rows(&self, sql: &str) -> Result<Value> {
        let name = format!("ask-{}", self.asked.fetch_add(1, Ordering::Relaxed));
        let home = self.folder.join(&name);
        fs::create_dir_all(&home)?;
        let file = home.join("ask.json");
        let playbook = json!({
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": name},
            "workflow": [
                {"step": "ask", "tool": {"kind": "postgres", "auth": "pg_local", "query": sql}},
            ],
        });
        fs::write(&file, playbook.to_string())?;
        let mut command = self.stepwell(&["run"], &home);
        command.arg(file).args(["-o", "json"]);
        let (exit, said, complaints) = finish(command, &home)?;
        ensure!(
            exit.success(),
            "`{sql}` cannot be asked: {said}\n{complaints}"
        );
        let report: Value = serde_json::from_str(&said)?;
        Ok(report["ext"]["steps"][0]["output"]["rows"].clone())
    }

    fn stepwell(&self, words: &[&str], home: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        let store = format!("sqlite:{}", home.join("runs.db").display());
        command
            .args(words)
            .args(["--store", &store])
            .current_dir(home)
            .env_remove("STEPWELL_STORE")
            .env_remove("STEPWELL_SECRETS")
            .env_remove("STEPWELL_ARTIFACTS");
        for name in CREDENTIALS {
            command.env(format!("STEPWELL_SECRET_{name}"), self.cluster.url());
        }
        command
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // What is left of a temporary folder hurts nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A run that is over.
pub(super) struct FinishedRun<'s> {
    pub(super) sandbox: &'s Sandbox,
    home: PathBuf,
    exit: Option<i32>,
    pub(super) report: Value,
    complaints: String,
}

impl FinishedRun<'_> {
    pub(super) fn id(&self) -> Result<&str> {
        self.report["runId"]
            .as_str()
            .context("the report has no run")
    }

    /// Whether it ended with this status and this exit code.
    pub(super) fn ended(&self, status: &str, exit: i32) -> bool {
        self.exit == Some(exit) && self.report["status"] == status
    }

    pub(super) fn succeeded(&self) -> Result<()> {
        let status = &self.report["status"];
        ensure!(
            self.ended("COMPLETED", 0),
            "it ended {status} with exit code {:?}",
            self.exit
        );
        Ok(())
    }

    /// The step-runs that a worker was given, in the order of the file, each as often as it ran.
    pub(super) fn steps(&self) -> Vec<String> {
        let steps = self.report["ext"]["steps"].as_array();
        let ran = steps
            .into_iter()
            .flatten()
            .filter(|step| step["executions"] != 0);
        ran.filter_map(|step| step["stepId"].as_str())
            .map(str::to_owned)
            .collect()
    }

    /// Nothing ran but these.
    pub(super) fn went_through(&self, expected: &[&str]) -> Result<()> {
        let steps = self.steps();
        ensure!(
            steps == expected,
            "these steps ran: {steps:?}, not {expected:?}"
        );
        Ok(())
    }

    fn step(&self, id: &str) -> Result<&Value> {
        let steps = self.report["ext"]["steps"].as_array();
        let found = steps
            .into_iter()
            .flatten()
            .find(|step| step["stepId"] == id);
        found.with_context(|| format!("the report has no step `{id}`"))
    }

    /// A part of what a step returned, by its JSON pointer.
    pub(super) fn output(&self, step: &str, pointer: &str) -> Result<&Value> {
        let output = &self.step(step)?["output"];
        output
            .pointer(pointer)
            .with_context(|| format!("`{step}` returned nothing at {pointer}: {output}"))
    }

    /// A step returned this.
    pub(super) fn returned(&self, step: &str, pointer: &str, expected: Value) -> Result<()> {
        let found = self.output(step, pointer)?;
        ensure!(
            *found == expected,
            "`{step}` returned {found} at {pointer}, not {expected}"
        );
        Ok(())
    }

    /// The code of the error that a step failed with.
    pub(super) fn error_code(&self, step: &str) -> Result<&str> {
        let code = self.step(step)?["error"]["code"].as_str();
        code.with_context(|| format!("`{step}` has not failed"))
    }

    /// A loop ran over this many items, and all went well.
    pub(super) fn looped(&self, step: &str, count: u64) -> Result<()> {
        let items = &self.step(step)?["items"];
        let expected = json!({"count": count, "done": count, "failed": 0});
        ensure!(
            *items == expected,
            "the items of `{step}` are {items}, not {expected}"
        );
        Ok(())
    }

    /// What a run of this store has said, line by line.
    pub(super) fn log(&self, run_id: &str) -> Result<Vec<Value>> {
        let mut command = self.sandbox.stepwell(&["runs", "logs"], &self.home);
        command.args([run_id, "-o", "json"]);
        let (exit, said, complaints) = finish(command, &self.home)?;
        // A run that had nothing to say has no log.
        if complaints.contains("LOG_MISSING") {
            return Ok(Vec::new());
        }
        ensure!(exit.success(), "the log cannot be read: {complaints}");
        said.lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }

    /// A step of a run of this store has said this.
    pub(super) fn said(&self, run_id: &str, step: &str, text: &str) -> Result<()> {
        let log = self.log(run_id)?;
        let mut lines = log.iter().filter(|line| line["stepId"] == step);
        let found = lines.any(|line| line["text"].as_str().is_some_and(|it| it.contains(text)));
        ensure!(found, "`{step}` never said `{text}`");
        Ok(())
    }

    /// The runs that this one started, oldest first, with their reports. All must have succeeded.
    pub(super) fn children(&self) -> Result<Vec<Value>> {
        let mut command = self
            .sandbox
            .stepwell(&["runs", "list", "-o", "json"], &self.home);
        command.args(["--limit", "100"]);
        let (_, said, complaints) = finish(command, &self.home)?;
        let list: Value = serde_json::from_str(&said).context(complaints)?;
        let runs = list["runs"].as_array().context("no list of runs")?;
        let mut children = Vec::new();
        for run in runs
            .iter()
            .rev()
            .filter(|run| run["runId"] != self.report["runId"])
        {
            let status = &run["status"];
            ensure!(status == "COMPLETED", "{} ended {status}", run["planId"]);
            let mut command = self
                .sandbox
                .stepwell(&["runs", "show", "-o", "json"], &self.home);
            command.args(run["runId"].as_str());
            let (_, said, complaints) = finish(command, &self.home)?;
            children.push(serde_json::from_str(&said).context(complaints)?);
        }
        Ok(children)
    }

    /// Details of a failed run: each step, and the last lines of the log.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        let mut add = |line: String| {
            let line: String = line.chars().take(300).collect();
            text.push_str(&format!("        {line}\n"));
        };
        let steps = self.report["ext"]["steps"].as_array();
        for step in steps.into_iter().flatten() {
            let (id, word) = (&step["stepId"], &step["word"]);
            add(format!("{id} {word} {} {}", step["error"], step["output"]));
        }
        let log = self.id().and_then(|id| self.log(id)).unwrap_or_default();
        for line in &log[log.len().saturating_sub(15)..] {
            add(format!("log {}: {}", line["stepId"], line["text"]));
        }
        self.complaints
            .lines()
            .for_each(|line| add(line.to_owned()));
        text
    }
}

/// Waits for a command, and kills it if it hangs. Gives its exit and what it wrote.
fn finish(mut command: Command, home: &Path) -> Result<(ExitStatus, String, String)> {
    let (out, err) = (home.join("stdout"), home.join("stderr"));
    command
        .stdin(Stdio::null())
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?);
    let mut child = command.spawn().context("cannot run stepwell")?;
    let began = Instant::now();
    let exit = loop {
        if let Some(exit) = child.try_wait()? {
            break exit;
        }
        if began.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            bail!("it hangs: {}", fs::read_to_string(&err)?);
        }
        thread::sleep(Duration::from_millis(10));
    };
    Ok((exit, fs::read_to_string(out)?, fs::read_to_string(err)?))
}

fn fresh_folder() -> Result<PathBuf> {
    let name = format!("stepwell-playbooks-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}
