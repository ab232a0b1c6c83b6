//! `cargo xtask playbooks`: real playbooks that other projects wrote, run unchanged with all their work.
//!
//! The files are not part of the project. If they are absent, the task prints a message and succeeds;
//! nothing else may depend on them. What each must come to stands in `cases`.

mod cases;
mod sandbox;
mod stub;

use crate::corpus;
use crate::no_arguments;
use crate::repo::Repo;
use anyhow::{Result, bail};
use cases::{CASES, Case};
use sandbox::Sandbox;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const HELP: &str = "\
Run real playbooks kept beside the checkout, and look at what they did.

Usage: cargo xtask playbooks

Looks for a sibling `shared` folder with `corpus/playbooks`; without it the task prints SKIPPED and
succeeds. The files are run as they are, with their addresses and credentials pointed at an HTTP stub
and a private PostgreSQL (`cargo xtask postgres --help` says what that needs); python3 must be there
too. Fails when a file that should be there is not, or when a run does not do what its file says:
its end, the steps it went through, their results, rows, requests and child runs are looked at.
";

/// Runs at a time. They mostly wait.
const AT_A_TIME: usize = 3;

/// How one file did.
struct Verdict {
    file: &'static str,
    /// Step-runs, once there are some.
    steps: usize,
    took: Duration,
    /// What is wrong, and what helps to find out why.
    wrong: Option<String>,
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    no_arguments(args)?;
    let folder = repo.root.join(corpus::PLACE).join("playbooks");
    if !folder.is_dir() {
        println!(
            "SKIPPED: no playbooks beside the checkout ({})",
            corpus::PLACE
        );
        return Ok(());
    }
    let files = corpus::list(&folder, "", &[".yaml", ".yml"])?;
    known(&files)?;
    let sandbox = Sandbox::open(repo, &files)?;
    cases::prepare(&sandbox)?;
    let began = Instant::now();
    let verdicts = all(&sandbox);
    let mut wrong = 0;
    for verdict in &verdicts {
        let word = if verdict.wrong.is_some() {
            "WRONG"
        } else {
            "ok"
        };
        let (file, steps) = (verdict.file, verdict.steps);
        let seconds = verdict.took.as_secs_f64();
        println!("{word:<6} {file:<34} {steps:>3} steps {seconds:>5.1} s");
        if let Some(why) = &verdict.wrong {
            wrong += 1;
            println!("{why}");
        }
    }
    if wrong > 0 {
        bail!(
            "{wrong} of {} playbooks came to the wrong end",
            verdicts.len()
        );
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "playbooks: {} ran to their right end in {seconds:.1} s",
        verdicts.len()
    );
    Ok(())
}

/// Each file has a case, so that a new one is not forgotten, and each case a file.
fn known(files: &[PathBuf]) -> Result<()> {
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    let names: Vec<&str> = names.collect();
    if let Some(name) = names
        .iter()
        .find(|it| CASES.iter().all(|case| case.file != **it))
    {
        bail!("nobody knows what {name} should come to; add it to xtask/src/playbooks/cases.rs");
    }
    match CASES.iter().find(|case| !names.contains(&case.file)) {
        Some(case) => bail!("{} is not in {}", case.file, corpus::PLACE),
        None => Ok(()),
    }
}

/// Runs all cases, some at a time; the verdicts are in the order of the files' names.
fn all(sandbox: &Sandbox) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let verdicts: Mutex<Vec<Verdict>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = CASES.get(at) else { return };
                    let verdict = judge(sandbox, case);
                    let mut done = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push(verdict);
                }
            });
        }
    });
    let mut done = verdicts
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|verdict| verdict.file);
    done
}

fn judge(sandbox: &Sandbox, case: &Case) -> Verdict {
    let began = Instant::now();
    let (steps, wrong) = match sandbox.run(case.file, case.inputs) {
        Err(error) => (0, Some(format!("        {error:#}"))),
        Ok(ran) => {
            let found = (case.right)(&ran).err();
            let told = found.map(|error| format!("        {error:#}\n{}", ran.describe()));
            (ran.steps().len(), told)
        }
    };
    Verdict {
        file: case.file,
        steps,
        took: began.elapsed(),
        wrong,
    }
}
