//! What a disk knows of its files: the content that is safe, and what was written since the last sync.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A sector is written as a whole or not at all.
const SECTOR: usize = 512;

/// Draws a number below the given one; the same calls draw the same numbers.
type Draw = Box<dyn FnMut(u64) -> u64 + Send>;

/// A fault that a disk was made to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskFault {
    /// A write to the write-ahead log failed.
    Write,
    /// There was no room for a write.
    Full,
    /// A sync of the write-ahead log failed.
    Sync,
    /// A write that was not synced was lost with the power, or a part of it.
    Lost,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Change::Write(at, bytes) => {
                let end = at + bytes.len();
                if image.len() < end {
                    image.resize(end, 0);
                }
                image[*at..end].copy_from_slice(bytes);
            }
            Change::Truncate(size) => image.truncate(*size),
        }
    }
}

#[derive(Debug, Default)]
struct FileState {
    /// What a loss of power leaves.
    safe: Vec<u8>,
    /// What was written since the last sync, oldest first.
    unsafe_changes: Vec<Change>,
}

struct DiskState {
    files: BTreeMap<String, FileState>,
    powered: bool,
    /// The power goes after so many more changes and syncs; none if it stays.
    left: Option<u64>,
    /// One write or sync in so many fails; zero for none.
    fault_rate: u64,
    lies: bool,
    draw: Draw,
    faults: BTreeMap<DiskFault, u64>,
}

impl DiskState {
    fn count(&mut self, fault: DiskFault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Whether the power is there for one more change or sync.
    fn has_power(&mut self) -> bool {
        if let Some(left) = &mut self.left {
            self.powered &= *left > 0;
            *left = left.saturating_sub(1);
        }
        self.powered
    }

    /// Whether a fault strikes now. Only the write-ahead log fails: the rest is written by a thread of the store, whose
    /// writes come at any time.
    fn strikes(&mut self, path: &str) -> bool {
        path.ends_with("-wal") && self.fault_rate > 0 && (self.draw)(self.fault_rate) == 0
    }
}

/// All disks of this process, by folder.
fn disks() -> MutexGuard<'static, HashMap<String, DiskState>> {
    static DISKS: OnceLock<Mutex<HashMap<String, DiskState>>> = OnceLock::new();
    let disks = DISKS.get_or_init(Mutex::default);
    disks.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether a file is on one of the disks. Its index is rebuilt after every crash, so nothing of it is kept.
pub(crate) fn has(path: &str) -> bool {
    !path.ends_with("-shm") && disks().contains_key(folder_of(path))
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The system does it.
    Pass,
    /// It is done already.
    Done,
    Fail,
    Full,
}

/// SQLite writes bytes to a file.
pub(crate) fn write(path: &str, at: usize, bytes: &[u8]) -> Verdict {
    change(path, || Change::Write(at, bytes.to_vec()))
}

/// SQLite cuts a file.
pub(crate) fn truncate(path: &str, size: usize) -> Verdict {
    change(path, || Change::Truncate(size))
}

fn change(path: &str, change: impl FnOnce() -> Change) -> Verdict {
    let mut disks = disks();
    let Some(disk) = disks.get_mut(folder_of(path)) else {
        return Verdict::Pass;
    };
    if !disk.has_power() {
        return Verdict::Fail;
    }
    if disk.strikes(path) {
        let full = (disk.draw)(2) == 0;
        disk.count(if full {
            DiskFault::Full
        } else {
            DiskFault::Write
        });
        return if full { Verdict::Full } else { Verdict::Fail };
    }
    let file = disk.files.entry(path.to_owned()).or_default();
    file.unsafe_changes.push(change());
    Verdict::Pass
}

/// SQLite syncs a file: everything that was written to it is safe now.
pub(crate) fn sync(path: &str) -> Verdict {
    let mut disks = disks();
    let Some(disk) = disks.get_mut(folder_of(path)) else {
        return Verdict::Pass;
    };
    if !disk.has_power() {
        return Verdict::Fail;
    }
    if disk.strikes(path) {
        disk.count(DiskFault::Sync);
        return Verdict::Fail;
    }
    if !disk.lies {
        let file = disk.files.entry(path.to_owned()).or_default();
        for change in std::mem::take(&mut file.unsafe_changes) {
            change.apply(&mut file.safe);
        }
    }
    Verdict::Done
}

/// SQLite deletes a file.
pub(crate) fn delete(path: &str) -> Verdict {
    let mut disks = disks();
    match disks.get_mut(folder_of(path)) {
        Some(disk) if !disk.powered => Verdict::Fail,
        Some(disk) => {
            disk.files.remove(path);
            Verdict::Pass
        }
        None => Verdict::Pass,
    }
}

/// A disk: a folder whose SQLite files can be made to fail. Dropping the disk deletes the folder.
pub struct FaultyDisk {
    folder: PathBuf,
    name: String,
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultyDisk").field(&self.folder).finish()
    }
}

impl FaultyDisk {
    /// A disk in a new folder. `draw` draws a number below the given one, for the faults.
    pub fn new(
        folder: &Path,
        draw: impl FnMut(u64) -> u64 + Send + 'static,
    ) -> io::Result<FaultyDisk> {
        crate::vfs::register()?;
        fs::create_dir_all(folder)?;
        let folder = folder.canonicalize()?;
        let name = folder.to_string_lossy().into_owned();
        let state = DiskState {
            files: BTreeMap::new(),
            powered: true,
            left: None,
            fault_rate: 0,
            lies: false,
            draw: Box::new(draw),
            faults: BTreeMap::new(),
        };
        disks().insert(name.clone(), state);
        Ok(FaultyDisk { folder, name })
    }

    /// The folder of the disk.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts a file on the disk, safe from the beginning. Nobody may have the file open.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content)?;
        let file = FileState {
            safe: content.to_vec(),
            unsafe_changes: Vec::new(),
        };
        let path = path.to_string_lossy().into_owned();
        self.state(|disk| disk.files.insert(path, file));
        Ok(())
    }

    fn state<T>(&self, work: impl FnOnce(&mut DiskState) -> T) -> Option<T> {
        disks().get_mut(&self.name).map(work)
    }

    /// From now on one write or sync of a write-ahead log in so many fails; none with zero.
    pub fn set_fault_rate(&self, one_in: u64) {
        self.state(|disk| disk.fault_rate = one_in);
    }

    /// From now on the disk says that it has synced and does nothing.
    pub fn lie(&self) {
        self.state(|disk| disk.lies = true);
    }

    /// From now on nothing is written: the process is gone, or the power.
    pub fn power_off(&self) {
        self.state(|disk| disk.powered = false);
    }

    /// The power goes after so many more changes and syncs, in the middle of what SQLite is doing then.
    pub fn power_off_after(&self, changes: u64) {
        self.state(|disk| disk.left = Some(changes));
    }

    /// The disk comes back after all its files were closed. With `loses`, what was not synced is there in part, as after a
    /// loss of power; without, all of it is there, as after the end of a process.
    pub fn restart(&self, loses: bool) -> io::Result<()> {
        let files = self.state(|disk| {
            let mut images = Vec::new();
            for (path, file) in std::mem::take(&mut disk.files) {
                let mut image = file.safe;
                for change in file.unsafe_changes {
                    if loses {
                        tear(disk, change, &mut image);
                    } else {
                        change.apply(&mut image);
                    }
                }
                let state = FileState {
                    safe: image.clone(),
                    unsafe_changes: Vec::new(),
                };
                disk.files.insert(path.clone(), state);
                images.push((path, image));
            }
            disk.powered = true;
            disk.left = None;
            images
        });
        for (path, image) in files.unwrap_or_default() {
            // In place: the file stays the same file.
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            file.set_len(image.len() as u64)?;
            file.rewind()?;
            file.write_all(&image)?;
        }
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with("-shm") {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// How often each fault struck.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<DiskFault, u64> {
        self.state(|disk| disk.faults.clone()).unwrap_or_default()
    }
}

/// Writes what a loss of power leaves of a change: each sector or not.
fn tear(disk: &mut DiskState, change: Change, image: &mut Vec<u8>) {
    let mut lost = false;
    match change {
        Change::Write(at, bytes) => {
            // Most writes survive as a whole or not at all; some are torn.
            let fate = (disk.draw)(3);
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                let keeps = match fate {
                    0 => true,
                    1 => false,
                    _ => (disk.draw)(2) == 0,
                };
                lost |= !keeps;
                if keeps {
                    Change::Write(at + index * SECTOR, sector.to_vec()).apply(image);
                }
            }
        }
        Change::Truncate(_) => match (disk.draw)(2) {
            0 => change.apply(image),
            _ => lost = true,
        },
    }
    if lost {
        disk.count(DiskFault::Lost);
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        disks().remove(&self.name);
        // The folder of a temporary disk: nobody needs what may be left.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
