//! The checkout: where it is, which files belong to it, and how to call cargo in it.
//!
//! Works without git and without network: a source archive must pass the same checks.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Folders that are never part of the project, for the walk used where git is missing.
const NOT_OURS: &[&str] = &[
    ".git",
    ".stepwell",
    "target",
    "node_modules",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
];

/// The root of the workspace.
#[derive(Debug)]
pub(crate) struct Repo {
    pub(crate) root: PathBuf,
    /// The debug build of `stepwell` that this process has made.
    built: OnceLock<PathBuf>,
}

impl Repo {
    /// The workspace that this xtask belongs to.
    pub(crate) fn find() -> Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("xtask has no parent folder")?
            .to_path_buf();
        if !root.join("Cargo.toml").is_file() {
            bail!("{} is not the workspace root", root.display());
        }
        Ok(Self::at(root))
    }

    /// The workspace at this place.
    pub(crate) fn at(root: PathBuf) -> Self {
        let built = OnceLock::new();
        Self { root, built }
    }

    /// The debug build of `stepwell`, made once.
    pub(crate) fn program(&self) -> Result<&Path> {
        if self.built.get().is_none() {
            self.cargo_output(&["build", "-q", "--locked", "-p", "stepwell"])?;
            self.knows_program();
        }
        self.built.get().map(PathBuf::as_path).context("not built")
    }

    /// Remembers that the tests of the whole workspace have built the program: another build would only be one with other
    /// features of dependencies, which takes a minute and more.
    pub(crate) fn knows_program(&self) {
        self.built
            .get_or_init(|| self.root.join("target/debug/stepwell"));
    }

    /// A file's text, by its path from the root.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// A cargo command that runs in the root, with the cargo that started us.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.args(args).current_dir(&self.root);
        command
    }

    /// The standard output of a cargo command that must succeed.
    pub(crate) fn cargo_output(&self, args: &[&str]) -> Result<String> {
        let shown = args.join(" ");
        let output = self
            .cargo(args)
            .output()
            .with_context(|| format!("cannot run cargo {shown}"))?;
        if !output.status.success() {
            bail!(
                "cargo {shown} failed:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        String::from_utf8(output.stdout).with_context(|| format!("cargo {shown} wrote no UTF-8"))
    }

    /// Every file of the project, sorted, as paths from the root with `/`: what git tracks or would
    /// track, or a plain walk where there is no git.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let mut files = match self.git_files() {
            Some(files) => files,
            None => {
                let mut files = Vec::new();
                walk(&self.root, &self.root, &mut files)?;
                files
            }
        };
        files.retain(|path| self.root.join(path).is_file());
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// The Rust files of the project.
    pub(crate) fn rust_files(&self) -> Result<Vec<String>> {
        let mut files = self.files()?;
        files.retain(|path| path.ends_with(".rs"));
        Ok(files)
    }

    fn git_files(&self) -> Option<Vec<String>> {
        if !self.exists(".git") {
            return None;
        }
        // A checkout that belongs to another user is still ours to read.
        let output = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()
            .ok()?;
        if !output.status.success() {
            return None;
        }
        let text = String::from_utf8(output.stdout).ok()?;
        Some(
            text.split('\0')
                .filter(|path| !path.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }
}

/// A path relative to `root`, with `/`.
pub(crate) fn relative(root: &Path, path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.strip_prefix(root).ok()?.components() {
        // Cargo names a target as its manifest does, with `..` in it.
        match part {
            Component::ParentDir => drop(parts.pop()),
            part => parts.push(part.as_os_str().to_string_lossy()),
        }
    }
    Some(parts.join("/"))
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let entry = entry?;
        let Some(path) = relative(root, &entry.path()) else {
            continue;
        };
        let name = entry.file_name();
        if NOT_OURS.iter().any(|skip| name == *skip || path == *skip) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(root, &entry.path(), files)?;
        } else if kind.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_with_slashes() {
        let root = Path::new("/a/b");
        assert_eq!(
            relative(root, Path::new("/a/b/c/d.rs")).as_deref(),
            Some("c/d.rs")
        );
        assert_eq!(relative(root, Path::new("/x/d.rs")), None);
    }

    #[test]
    fn the_walk_finds_what_git_would_find_here() {
        let repo = Repo::find().unwrap();
        let mut files = Vec::new();
        walk(&repo.root, &repo.root.join("xtask"), &mut files).unwrap();
        assert!(files.contains(&"xtask/src/repo.rs".to_owned()));
        assert!(
            repo.rust_files()
                .unwrap()
                .contains(&"xtask/src/main.rs".to_owned())
        );
    }
}
