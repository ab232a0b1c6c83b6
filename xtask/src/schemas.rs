//! `cargo xtask schemas`: the committed JSON Schemas are what the types say today.
//!
//! The binary writes them (`stepwell schema --all DIR`, a hidden command); this task only compares
//! and copies, so that the persisted shape never changes unseen.

use crate::repo::{Repo, relative};
use crate::wants_check;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const HELP: &str = "\
Write schemas/ from the types, or check that it is up to date.

Usage: cargo xtask schemas [--check]

Runs `stepwell schema --all DIR` and compares what it wrote with schemas/.
Without --check the folder is rewritten, files nobody writes any more are removed
(a README.md is kept). With --check the files that differ are listed and the task fails:
look at the change, and if it is meant, run `cargo xtask schemas` and commit.
";

/// The folder with the committed schemas.
const FOLDER: &str = "schemas";

/// Kept although no type writes it.
const OURS: &str = "README.md";

type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let check = wants_check(args)?;
    let scratch = std::env::temp_dir().join(format!("stepwell-schemas-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let outcome = compare(repo, &scratch, check);
    fs::remove_dir_all(&scratch).ok();
    outcome
}

fn compare(repo: &Repo, scratch: &Path, check: bool) -> Result<()> {
    let target = scratch.to_string_lossy();
    let status = Command::new(repo.program()?)
        .args(["schema", "--all", &target])
        .current_dir(&repo.root)
        .status()
        .context("cannot run stepwell")?;
    if !status.success() {
        bail!("`stepwell schema --all DIR` ended with {status}");
    }
    let wanted = read(scratch)?;
    if wanted.is_empty() {
        bail!("`stepwell schema --all DIR` wrote no file");
    }
    let folder = repo.root.join(FOLDER);
    let found = if folder.is_dir() {
        read(&folder)?
    } else {
        Files::new()
    };
    let drift = drift(&wanted, &found);
    if drift.is_empty() {
        println!("schemas: {} files, all up to date", wanted.len());
        return Ok(());
    }
    for line in &drift {
        println!("schemas: {line}");
    }
    if check {
        bail!(
            "{} files of {FOLDER}/ differ; `cargo xtask schemas` rewrites them",
            drift.len()
        );
    }
    rewrite(&folder, &wanted, &found)?;
    println!("schemas: rewrote {} files", drift.len());
    Ok(())
}

/// One line for each file that differs.
fn drift(wanted: &Files, found: &Files) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, bytes) in wanted {
        match found.get(path) {
            None => lines.push(format!("{FOLDER}/{path} is missing")),
            Some(old) if old != bytes => lines.push(format!("{FOLDER}/{path} differs")),
            Some(_) => {}
        }
    }
    for path in found.keys() {
        if path != OURS && !wanted.contains_key(path) {
            lines.push(format!("{FOLDER}/{path} is written by no type"));
        }
    }
    lines
}

fn rewrite(folder: &Path, wanted: &Files, found: &Files) -> Result<()> {
    for path in found.keys() {
        if path != OURS && !wanted.contains_key(path) {
            fs::remove_file(folder.join(path))?;
        }
    }
    for (path, bytes) in wanted {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn read(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in
            fs::read_dir(&next).with_context(|| format!("cannot list {}", next.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if let Some(name) = relative(folder, &path) {
                files.insert(name, fs::read(&path)?);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn drift_names_missing_changed_and_left_over_files() {
        let wanted = files(&[("a.json", "1"), ("b.json", "2"), ("c.json", "3")]);
        let found = files(&[
            ("a.json", "1"),
            ("b.json", "x"),
            ("old.json", "4"),
            ("README.md", ""),
        ]);
        assert_eq!(
            drift(&wanted, &found),
            [
                "schemas/b.json differs",
                "schemas/c.json is missing",
                "schemas/old.json is written by no type"
            ]
        );
        assert!(drift(&wanted, &wanted).is_empty());
    }
}
