//! Files below a folder, reached through no symbolic link. Steps run as the same user and may leave a link in the place
//! of a log or of an artifact; a program that follows it writes to, or shows, a file that was never meant.
//!
//! The folder itself is where its owner wants it to be and may be a link; what is in it may not.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Opens the file `below` a folder to append to it; folders and the file are made for their owner only.
pub(crate) fn open_to_append(folder: &Path, below: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
    open(folder, below, flags, true)
}

/// Opens the file `below` a folder to read it.
pub(crate) fn open_to_read(folder: &Path, below: &Path) -> io::Result<File> {
    open(folder, below, OFlags::RDONLY, false)
}

fn open(folder: &Path, below: &Path, flags: OFlags, make: bool) -> io::Result<File> {
    let names = names(below)?;
    let Some((last, folders)) = names.split_last() else {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    };
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = rustix::fs::openat(CWD, folder, directory, Mode::empty())?;
    for name in folders {
        let step = || rustix::fs::openat(&at, *name, directory | OFlags::NOFOLLOW, Mode::empty());
        let found = match step() {
            Err(Errno::NOENT) if make => {
                match rustix::fs::mkdirat(&at, *name, Mode::RWXU) {
                    // Another thread may make it at the same time.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                step()
            }
            found => found,
        };
        let found = found.map_err(|error| refused(&at, name, error));
        at = found?;
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&at, *last, flags, Mode::RUSR | Mode::WUSR);
    let file = file.map_err(|error| refused(&at, last, error))?;
    Ok(File::from(file))
}

/// Fails if a part of the path `below` a folder is a link. What is not there is no link, and of what else is wrong with
/// the path the caller hears when it uses the path.
pub(crate) fn refuse(folder: &Path, below: &Path) -> io::Result<()> {
    let mut path = folder.to_owned();
    for name in names(below)? {
        path.push(name);
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => return Err(a_link(name)),
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// The parts of a path that leads nowhere but down.
fn names(below: &Path) -> io::Result<Vec<&OsStr>> {
    below
        .components()
        .map(|part| match part {
            Component::Normal(name) => Ok(name),
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::ParentDir => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        })
        .collect()
}

/// Systems name a link in different ways: too many links, or no folder.
fn refused(at: &OwnedFd, name: &OsStr, error: Errno) -> io::Error {
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    let is_link = rustix::fs::statat(at, name, flags).is_ok_and(|found| {
        rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Symlink
    });
    match is_link {
        true => a_link(name),
        false => error.into(),
    }
}

fn a_link(name: &OsStr) -> io::Error {
    let what = format!(
        "`{}` is a symbolic link, which is not followed; remove the link",
        name.display()
    );
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn folders_and_files_are_made_for_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let below = Path::new("logs/run/1.jsonl");
        let mut file = open_to_append(folder.path(), below).unwrap();
        file.write_all(b"x").unwrap();
        let mode = |path: &str| {
            let found = std::fs::metadata(folder.path().join(path)).unwrap();
            found.permissions().mode() & 0o777
        };
        assert_eq!((mode("logs"), mode("logs/run/1.jsonl")), (0o700, 0o600));
        open_to_read(folder.path(), below).unwrap();
        refuse(folder.path(), below).unwrap();
    }

    #[test]
    fn a_link_at_any_place_is_refused_and_what_it_names_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "as it was").unwrap();
        std::fs::create_dir_all(folder.path().join("logs/run")).unwrap();
        symlink(&victim, folder.path().join("logs/run/1.jsonl")).unwrap();
        symlink(folder.path(), folder.path().join("logs/other")).unwrap();
        for below in ["logs/run/1.jsonl", "logs/other/victim"] {
            let below = Path::new(below);
            for refused in [
                open_to_append(folder.path(), below).map(|_| ()),
                open_to_read(folder.path(), below).map(|_| ()),
                refuse(folder.path(), below),
            ] {
                let said = refused.unwrap_err().to_string();
                assert!(said.contains("is a symbolic link"), "{said}");
            }
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "as it was");
    }

    #[test]
    fn a_path_leads_nowhere_but_down() {
        let folder = tempfile::tempdir().unwrap();
        for below in ["../x", "/x", ""] {
            assert!(open_to_append(folder.path(), Path::new(below)).is_err());
        }
    }
}
