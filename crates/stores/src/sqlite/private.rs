//! Who may read a database: only its owner. A store has the inputs and outputs of all runs in it.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::backup::with_ending;

/// Rights of the group and of others.
const OTHERS: u32 = 0o077;

/// Makes a folder that only its owner can use, with those above it; folders that exist stay as they are.
pub(super) fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes the file of a database that only its owner can read, whatever the umask is; a file that exists stays
/// as it is. SQLite gives its other files the same rights.
pub(super) fn file(path: &Path) -> io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(file) => file.set_permissions(Permissions::from_mode(0o600)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The folder of a store that nobody has named, and those beside a store that this program makes.
const OWN_FOLDER: &str = ".stepwell";
const FOLDERS: [&str; 2] = ["logs", "artifacts"];

/// The files of a database that exist, and the folders that belong to it.
fn belongings(database: &Path) -> impl Iterator<Item = PathBuf> {
    let endings = ["", "-wal", "-shm", "-lock"];
    let files = endings.map(|ending| with_ending(database, ending));
    let files = files.into_iter().filter(|path| path.is_file());
    let folder = database.parent().unwrap_or(Path::new(""));
    let own = (folder.file_name() == Some(OWN_FOLDER.as_ref())).then(|| folder.to_owned());
    let beside = FOLDERS.map(|name| folder.join(name));
    // A link leads to a folder that the owner of the store has chosen.
    let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|it| it.is_dir());
    files.chain(own.into_iter().chain(beside).filter(is_folder))
}

/// The files and folders of a database that others than its owner can read or write.
#[must_use]
pub fn exposed(database: &Path) -> Vec<PathBuf> {
    let open =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.permissions().mode() & OTHERS != 0);
    belongings(database).filter(open).collect()
}

/// Takes the rights of all others away; says which files were changed.
pub fn protect(database: &Path) -> io::Result<Vec<PathBuf>> {
    let open = exposed(database);
    for path in &open {
        let mode = fs::metadata(path)?.permissions().mode() & !OTHERS;
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(open)
}
