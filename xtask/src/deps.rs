//! `cargo xtask deps`: checks the dependencies with cargo-deny and cargo-machete.
//!
//! Both programs are installed into `target/tools` when they are missing, without optimisation: an
//! optimised build takes several times longer and saves only seconds per check.

use crate::no_arguments;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const HELP: &str = "\
Check the dependencies: licences, banned crates, sources, unused dependencies.

Usage: cargo xtask deps

  cargo-deny     licences, banned crates and sources, as deny.toml says
  cargo-machete  dependencies that a Cargo.toml lists and no source file uses
  workspace      entries of [workspace.dependencies] that no crate uses

Missing programs are installed into target/tools with `cargo install --locked`. Advisories are not
checked, because their database is a git repository that a build machine may not reach: run
`cargo deny check advisories` by hand.
";

/// A cargo subcommand that is installed from the registry.
struct Program {
    name: &'static str,
    version: &'static str,
}

const DENY: Program = Program {
    name: "cargo-deny",
    version: "0.20.2",
};

const MACHETE: Program = Program {
    name: "cargo-machete",
    version: "0.9.2",
};

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    no_arguments(args)?;
    let unused = unused_entries(&repo.read("Cargo.toml")?, &manifests(repo)?);
    if !unused.is_empty() {
        let names = unused.join(", ");
        bail!("no crate uses these entries of [workspace.dependencies]: {names}; remove them");
    }
    let deny = DENY.path(repo)?;
    let checks = ["check", "bans", "licenses", "sources"];
    let flags = ["--hide-inclusion-graph", "--allow=duplicate"];
    status(repo, &deny, &[&checks[..1], &flags, &checks[1..]].concat())?;
    status(repo, &MACHETE.path(repo)?, &["--skip-target-dir"])
}

fn status(repo: &Repo, program: &Path, args: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    let status = command.args(args).current_dir(&repo.root).status();
    let shown = program.display();
    let status = status.with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}; the lines above name the dependency");
    }
    Ok(())
}

impl Program {
    /// The installed program: of this version on the PATH, else in `target/tools`.
    fn path(&self, repo: &Repo) -> Result<PathBuf> {
        let on_path = PathBuf::from(self.name);
        if self.is_installed(&on_path) {
            return Ok(on_path);
        }
        let folder = repo.root.join("target/tools");
        let installed = folder.join("bin").join(self.name);
        if self.is_installed(&installed) {
            return Ok(installed);
        }
        println!("installing {} {}", self.name, self.version);
        let mut cargo = repo.cargo(&["install", "--locked", "--debug", "--quiet", "--force"]);
        let status = cargo
            .args([OsString::from("--root"), folder.clone().into()])
            .args(["--version", self.version, self.name])
            .env("CARGO_TARGET_DIR", folder.join("build"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "0")
            .status()
            .context("cannot run cargo install")?;
        if !status.success() {
            bail!("cargo install {} ended with {status}", self.name);
        }
        Ok(installed)
    }

    fn is_installed(&self, program: &Path) -> bool {
        let mut command = Command::new(program);
        let quiet = command.arg("--version").stdin(Stdio::null());
        let output = quiet.stderr(Stdio::null()).output();
        output.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(self.version))
    }
}

/// The texts of the manifests of all crates.
fn manifests(repo: &Repo) -> Result<Vec<String>> {
    let files = repo.files()?.into_iter();
    let crates = files.filter(|path| path.ends_with("/Cargo.toml"));
    crates.map(|path| repo.read(&path)).collect()
}

/// Entries of `[workspace.dependencies]` that no manifest names.
fn unused_entries(workspace: &str, manifests: &[String]) -> Vec<String> {
    let section = workspace.split("[workspace.dependencies]").nth(1);
    let section = section.unwrap_or_default().split("\n[").next();
    let names = section.unwrap_or_default().lines().filter_map(|line| {
        let (name, _) = line.split_once('=')?;
        Some(name.trim().to_owned()).filter(|name| !name.starts_with('#'))
    });
    let is_used = |name: &String| {
        let mut lines = manifests.iter().flat_map(|text| text.lines());
        lines.any(|line| {
            let rest = line.trim_start().strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        })
    };
    names.filter(|name| !is_used(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_no_crate_uses_is_found() {
        let workspace = "[workspace.dependencies]\na = \"1\"\nab = { path = \"x\" }\n# c = \"1\"\n\n[profile.dev]\nd = 1\n";
        let one = "[dependencies]\nab.workspace = true\n".to_owned();
        assert_eq!(unused_entries(workspace, &[one]), ["a"]);
        let both = "[dependencies]\na = { workspace = true }\nab.workspace = true\n".to_owned();
        assert!(unused_entries(workspace, &[both]).is_empty());
    }
}
