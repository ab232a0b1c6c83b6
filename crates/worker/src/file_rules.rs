//! Which files of this machine a definition may name: all of them, or those below some directories. Links are followed
//! before a path is judged, so that no link leads out.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use stepwell_kernel::codes;
use stepwell_kernel::plan::ErrorClass;

use crate::outcome::ToolError;

/// Which files a definition may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileRules {
    #[default]
    Everywhere,
    /// Only these directories, and what is below.
    Below(Vec<PathBuf>),
}

impl FileRules {
    /// The path to use for a path that a definition names. A path that is not there yet may be below a directory that
    /// is.
    pub fn check(&self, path: &Path) -> Result<PathBuf, ToolError> {
        self.check_for(path, path)
    }

    /// The same for a directory, when the definition names something below it: a refusal names what the definition does.
    pub fn check_for(&self, path: &Path, named: &Path) -> Result<PathBuf, ToolError> {
        let FileRules::Below(directories) = self else {
            return Ok(path.to_owned());
        };
        let is_below = |real: &PathBuf| {
            let mut real_directories = directories
                .iter()
                .filter_map(|it| std::fs::canonicalize(it).ok());
            real_directories.any(|directory| real.starts_with(directory))
        };
        // A path that cannot be followed is told as one that is not allowed: what is there is no business of others.
        let real = real(path).ok().filter(is_below);
        real.ok_or_else(|| denied(named))
    }
}

fn denied(path: &Path) -> ToolError {
    ToolError::new(
        ErrorClass::Policy,
        codes::PATH_DENIED,
        format!(
            "{} is not below a directory in `allow` of [security.files] in the configuration of this worker; use a \
             path that is, or have the list changed",
            path.display()
        ),
    )
}

/// The path without links, of which the last parts need not be there.
fn real(path: &Path) -> io::Result<PathBuf> {
    let mut there = std::path::absolute(path)?;
    let mut missing: Vec<OsString> = Vec::new();
    loop {
        // A link that leads nowhere is there, and cannot be followed.
        match std::fs::symlink_metadata(&there) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match there.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name.to_owned()),
            // `..` behind what is not there.
            _ => return Err(io::ErrorKind::NotFound.into()),
        }
        there.pop();
    }
    let mut real = std::fs::canonicalize(there)?;
    real.extend(missing.into_iter().rev());
    Ok(real)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_paths_below_the_directories_are_used() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(inside.join("a"), "").unwrap();
        std::fs::write(outside.join("a"), "").unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        symlink("/nowhere/at/all", inside.join("dangling")).unwrap();
        symlink(inside.join("a"), outside.join("back")).unwrap();
        let rules = FileRules::Below(vec![inside.clone(), "/nowhere".into()]);
        for good in ["in", "in/a", "in/new", "in/new/er", "in/./a", "out/back"] {
            assert!(rules.check(&folder.path().join(good)).is_ok(), "{good}");
        }
        for bad in [
            "out",
            "out/a",
            "in/../out/a",
            "in/link",
            "in/link/a",
            "in/link/new",
            "in/dangling",
            "in/new/../../out/a",
            "inner",
        ] {
            let denied = rules.check(&folder.path().join(bad)).unwrap_err();
            assert_eq!(denied.code, "PATH_DENIED", "{bad}");
            assert!(!denied.is_retryable(), "{bad}");
        }
        assert!(FileRules::Below(Vec::new()).check(Path::new("/")).is_err());
        assert!(FileRules::Everywhere.check(Path::new("/etc")).is_ok());
    }
}
