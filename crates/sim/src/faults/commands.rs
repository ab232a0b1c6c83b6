//! The real command behind the same proxy: `stepwell run` one after the other while the database fails. Each must end
//! with exit code 0, every step completed once, and begun exactly as often as its log says.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stepwell_engine::chunk;
use stepwell_engine::store::Store;
use stepwell_kernel::event::Body;
use stepwell_sim::verdict::Verdict;
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};

const STEPS: usize = 5;
/// How long one run may take after the last fault.
const PEACE: Duration = Duration::from_secs(180);

/// The command beside this program, if it was built.
pub(crate) fn program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name("stepwell");
    program.exists().then_some(program)
}

/// Runs of the command in a folder of their own, with a schema of their own.
#[derive(Debug)]
pub(crate) struct Commands {
    program: PathBuf,
    folder: PathBuf,
    schema: String,
}

impl Commands {
    /// Creates the tables in peace.
    pub(crate) fn new(program: PathBuf, folder: &Path, direct: &str) -> Result<Commands> {
        let folder = folder.join("commands");
        fs::create_dir_all(&folder)?;
        let name = folder.display().to_string();
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        let commands = Commands {
            program,
            folder,
            schema: format!("commands_{digits}"),
        };
        commands.open(direct)?;
        Ok(commands)
    }

    fn open(&self, direct: &str) -> Result<PostgresStore> {
        let options = PostgresOptions {
            schema: self.schema.clone(),
            ..PostgresOptions::default()
        };
        Ok(PostgresStore::connect(direct, options)?)
    }

    /// Runs commands until `over`; then the last one ends in peace.
    pub(crate) fn run(&self, through: &str, direct: &str, over: &AtomicBool) -> Result<Verdict> {
        let mut verdict = Verdict::default();
        let mut number = 0;
        let mut run_ids = Vec::new();
        while !over.load(Ordering::SeqCst) {
            number += 1;
            let run_id = format!("run_c{number}");
            let file = self.definition(&run_id)?;
            let store = format!("{through}&schema={}", self.schema);
            let said = self.folder.join(format!("{run_id}.said"));
            let mut child = Command::new(&self.program)
                .args(["run", &file, "--run-id", &run_id, "--store", &store])
                .args(["--store-patience", "forever"])
                .current_dir(&self.folder)
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(File::create(&said)?)
                .spawn()?;
            let mut deadline = None;
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break Some(status);
                }
                if over.load(Ordering::SeqCst) {
                    let until = *deadline.get_or_insert_with(|| Instant::now() + PEACE);
                    if Instant::now() > until {
                        child.kill()?;
                        child.wait()?;
                        break None;
                    }
                }
                thread::sleep(Duration::from_millis(20));
            };
            if !status.is_some_and(|it| it.success()) {
                let said = fs::read_to_string(&said).unwrap_or_default();
                verdict
                    .stuck
                    .push(format!("stepwell run ended with {status:?}: {said}"));
            }
            run_ids.push(run_id);
        }
        // In peace: the judge does not wait for the database.
        let store = self.open(direct)?;
        for run_id in run_ids {
            self.judge(&store, &run_id, &mut verdict)?;
        }
        Ok(verdict)
    }

    /// A chain of steps that leave a mark each.
    fn definition(&self, run_id: &str) -> Result<String> {
        let marks = self.marks(run_id);
        let marks = marks.display();
        let mut text =
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: chain\nworkflow:\n"
                .to_owned();
        for step in 1..=STEPS {
            text.push_str(&format!(
                "  - step: s{step}\n    tool:\n      kind: shell\n      cmds: ['echo s{step} >> {marks}; sleep 0.1']\n"
            ));
            if step < STEPS {
                text.push_str(&format!("    next:\n      - step: s{}\n", step + 1));
            }
        }
        let file = self.folder.join(format!("{run_id}.yaml"));
        fs::write(&file, text)?;
        Ok(file.display().to_string())
    }

    fn marks(&self, run_id: &str) -> PathBuf {
        self.folder.join(format!("{run_id}.marks"))
    }

    fn judge(&self, store: &dyn Store, run_id: &str, verdict: &mut Verdict) -> Result<()> {
        let run = store
            .find(run_id)?
            .with_context(|| format!("{run_id} is lost"))?;
        let stored = store.load(run)?.context("a run cannot be read")?;
        let row = store.plan(stored.plan)?.context("a plan is not there")?;
        let net = serde_json::from_str(&row.net)?;
        let plan = stepwell_kernel::plan::Plan::new(net).map_err(|it| anyhow::anyhow!("{it:?}"))?;
        let mut begun: BTreeMap<String, usize> = BTreeMap::new();
        let mut done: BTreeMap<String, usize> = BTreeMap::new();
        for stored in store.chunks(run, 0, usize::MAX)? {
            for event in chunk::decode(stored.first, stored.codec, &stored.body)? {
                verdict.events += 1;
                let id = event
                    .body
                    .step()
                    .map(|at| plan.step_id(at))
                    .unwrap_or_default();
                match event.body {
                    Body::StepStarted { .. } | Body::StepExecutionStarted { .. } => {
                        *begun.entry(id).or_default() += 1;
                    }
                    Body::StepCompleted { .. } => *done.entry(id).or_default() += 1,
                    _ => {}
                }
            }
        }
        let mut marked: BTreeMap<String, usize> = BTreeMap::new();
        let marks = fs::read_to_string(self.marks(run_id)).unwrap_or_default();
        for line in marks.lines() {
            verdict.effects += 1;
            *marked.entry(line.to_owned()).or_default() += 1;
        }
        verdict.runs += 1;
        if done.len() != STEPS {
            verdict
                .lost
                .push(format!("{run_id}: completed are {done:?}"));
        }
        for (step, times) in done.into_iter().filter(|(_, times)| *times > 1) {
            verdict
                .doubled
                .push(format!("{run_id}: {step} is completed {times} times"));
        }
        // A claim whose process lost its session before it began leaves no mark; a mark without a claim is wrong.
        for (step, times) in marked {
            let claims = begun.get(&step).copied().unwrap_or(0);
            if times > claims {
                verdict.doubled.push(format!(
                    "{run_id}: {step} was done {times} times for {claims} claims"
                ));
            }
        }
        Ok(())
    }
}
