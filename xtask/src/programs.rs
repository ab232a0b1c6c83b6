//! Programs that tests need besides Rust: Python, a Redis server, pgbouncer, and DuckDB for the tests of its
//! tool.

use crate::cluster::is_root;
use crate::postgres::apt_get;
use crate::repo::Repo;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What tests read the path of DuckDB from.
const DUCKDB: &str = "STEPWELL_DUCKDB";

/// Variables that name what was found. The `PROGRAMS` must be there; without DuckDB the tests of its tool
/// are skipped with a message.
pub(crate) fn variables(repo: &Repo) -> Result<Vec<(&'static str, PathBuf)>> {
    install()?;
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

/// Programs that tests start, the Debian package of each, and which tests need it.
const PROGRAMS: [(&str, &str, &str); 3] = [
    ("python3", "python3", "the python tool"),
    ("redis-server", "redis-server", "the redis tool"),
    (
        "pgbouncer",
        "pgbouncer",
        "the PostgreSQL store behind a pooler",
    ),
];

/// Installs the programs that are missing, where that is possible.
fn install() -> Result<()> {
    let missing = PROGRAMS.iter();
    let missing = missing.filter(|(program, _, _)| !works(program, &["--version"]));
    let missing: Vec<_> = missing.collect();
    let Some((program, package, tests)) = missing.first() else {
        return Ok(());
    };
    if is_root() && works("apt-get", &["--version"]) {
        apt_get(&["update"])?;
        let mut args = vec!["install", "-y", "--no-install-recommends"];
        args.extend(missing.iter().map(|(_, package, _)| *package));
        return apt_get(&args);
    }
    bail!("tests of {tests} need {program} (Debian: apt-get install {package})");
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
    let venv = ["-m", "venv", &folder.to_string_lossy()].map(str::to_owned);
    let venv: Vec<&str> = venv.iter().map(String::as_str).collect();
    if !works("python3", &venv) && is_root() && works("apt-get", &["--version"]) {
        apt_get(&["install", "-y", "--no-install-recommends", "python3-venv"])?;
        works("python3", &venv);
    }
    println!("+ {}/bin/pip install duckdb-cli", folder.display());
    let pip = [
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "duckdb-cli",
    ];
    if !works(folder.join("bin/pip"), &pip) {
        bail!("the program `duckdb` is not there, and `pip install duckdb-cli` did not work");
    }
    match find(&folder) {
        Some(found) => Ok(Some(found)),
        None => bail!("the package duckdb-cli has no program in it"),
    }
}

/// The program itself: what the package puts into `bin` starts an interpreter first.
fn find(folder: &Path) -> Option<PathBuf> {
    let pythons = std::fs::read_dir(folder.join("lib")).ok()?.flatten();
    let mut programs = pythons.map(|it| it.path().join("site-packages/duckdb_cli/duckdb"));
    programs.find(|it| works(it, &["--version"]))
}
