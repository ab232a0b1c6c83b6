//! `cargo xtask corpus`: `stepwell check` on real files that other projects wrote.
//!
//! The corpus is not part of the project. If it is absent, the task prints a message and succeeds;
//! nothing else may depend on it.

use crate::no_arguments;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HELP: &str = "\
Run `stepwell check -o json` on real files kept beside the checkout.

Usage: cargo xtask corpus

Looks for a sibling `shared` folder with `corpus/playbooks` and `corpus/contract/plan-*.json`.
Without it the task prints SKIPPED and succeeds. Fails when a file has a problem of
severity `error`, or when the binary's answer cannot be read; warnings are counted and shown.
";

/// From the workspace root.
pub(crate) const PLACE: &str = "../shared/corpus";

/// What `check` said about one file.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    errors: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    no_arguments(args)?;
    let corpus = repo.root.join(PLACE);
    if !corpus.is_dir() {
        println!("SKIPPED: no corpus beside the checkout ({PLACE} does not exist)");
        return Ok(());
    }
    let mut files = list(&corpus.join("playbooks"), "", &[".yaml", ".yml"])?;
    files.extend(list(&corpus.join("contract"), "plan-", &[".json"])?);
    if files.is_empty() {
        bail!("the corpus at {PLACE} holds no playbook and no plan");
    }
    let program = repo.program()?;
    let mut bad = 0;
    for file in &files {
        bad += usize::from(!check(program, file));
    }
    if bad > 0 {
        bail!("{bad} of {} corpus files have errors", files.len());
    }
    println!("corpus: {} files ok", files.len());
    Ok(())
}

/// Checks one file, prints the outcome, and says whether it is free of errors.
fn check(program: &Path, file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match ask(program, file) {
        Ok(verdict) => {
            let word = if verdict.errors.is_empty() {
                "ok"
            } else {
                "ERRORS"
            };
            println!("{word:<7} {name} ({} warnings)", verdict.warnings.len());
            for line in verdict.errors.iter().chain(&verdict.warnings) {
                println!("        {line}");
            }
            verdict.errors.is_empty()
        }
        Err(error) => {
            println!("BROKEN  {name}: {error:#}");
            false
        }
    }
}

fn ask(program: &Path, file: &Path) -> Result<Verdict> {
    // The exit code says only whether there were problems; the answer itself says which.
    let output = Command::new(program)
        .args(["check", "-o", "json"])
        .arg(file)
        .output()
        .context("cannot run stepwell")?;
    let answer = String::from_utf8_lossy(&output.stdout);
    read(&answer).with_context(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!(
            "`stepwell check` ended with {}: {}",
            output.status,
            stderr.trim()
        )
    })
}

fn read(answer: &str) -> Result<Verdict> {
    let answer: Value = serde_json::from_str(answer).context("the answer is not JSON")?;
    let files = answer["files"]
        .as_array()
        .context("the answer has no `files`")?;
    if files.is_empty() {
        bail!("the answer names no file");
    }
    let mut verdict = Verdict {
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    for file in files {
        for problem in file["problems"]
            .as_array()
            .context("a file without `problems`")?
        {
            let line = describe(problem);
            match problem["severity"].as_str() {
                Some("error") => verdict.errors.push(line),
                Some(_) => verdict.warnings.push(line),
                None => bail!("a problem without severity: {problem}"),
            }
        }
        if file["ok"] == false && verdict.errors.is_empty() {
            verdict
                .errors
                .push("`ok` is false, but no error is listed".to_owned());
        }
    }
    Ok(verdict)
}

fn describe(problem: &Value) -> String {
    let text = |key: &str| problem[key].as_str().unwrap_or("?").to_owned();
    format!(
        "{}:{}: {} {}: {}",
        problem["line"],
        problem["column"],
        text("severity"),
        text("code"),
        text("message")
    )
}

/// The files of a folder by how their names begin and end, sorted.
pub(crate) fn list(folder: &Path, prefix: &str, suffixes: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if !folder.is_dir() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) && suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_warnings_are_told_apart() {
        let verdict = read(
            r#"{"files":[{"file":"a","ok":false,"problems":[
                {"code":"UNKNOWN_KEY","severity":"error","line":3,"column":5,"message":"no such key"},
                {"code":"ODD","severity":"warning","line":1,"column":1,"message":"odd"}]}]}"#,
        )
        .unwrap();
        assert_eq!(verdict.errors, ["3:5: error UNKNOWN_KEY: no such key"]);
        assert_eq!(verdict.warnings, ["1:1: warning ODD: odd"]);
    }

    #[test]
    fn an_unreadable_answer_is_never_ok() {
        assert!(read("").is_err());
        assert!(read("{}").is_err());
        assert!(read(r#"{"files":[]}"#).is_err());
        assert!(read(r#"{"files":[{"ok":true}]}"#).is_err());
        let silent = read(r#"{"files":[{"ok":false,"problems":[]}]}"#).unwrap();
        assert_eq!(silent.errors.len(), 1);
    }
}
