//! The logs of steps: a file of JSON lines for each execution, under `logs/RUN/STEP/EXECUTION.jsonl`.
//! What a task says while it works; what happened in a run is in the log of events, not here.

mod follow;
mod line;
mod read;
mod window;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::SystemTime;
use std::{fs, io, thread};

use tokio::sync::broadcast;

pub use follow::Follow;
pub use line::{LogEntry, LogLine};
pub use read::LogFile;
pub use window::{LogHits, LogWindow, PlacedLine, Wanted};
pub use writer::LogWriter;

use crate::artifacts::{Artifacts, Pruned, name_of, segment};
use crate::no_links;
use crate::secrets::Redactor;
use crate::tool::TaskLimits;

/// How a log's file ends.
const ENDING: &str = ".jsonl";

/// What an uploaded log is called.
const UPLOADED: &str = "log.jsonl";

/// How many lines those who watch may be behind before they miss some.
const WATCHED: usize = 4096;

/// The logs of steps. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Logs {
    shared: Arc<LogsShared>,
}

#[derive(Debug)]
struct LogsShared {
    folder: PathBuf,
    _temporary: Option<TemporaryFolder>,
    artifacts: Option<Artifacts>,
    watched: broadcast::Sender<Arc<LogEntry>>,
    /// To the thread that takes buffers to their files; it starts with the first log.
    flushing: OnceLock<mpsc::Sender<Weak<LogWriter>>>,
}

/// A folder that is removed when this value is dropped.
#[derive(Debug)]
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Nothing may have been written.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Logs {
    /// Logs in the folder `logs` of this folder. Nothing is made before something is said.
    pub fn open(folder: impl AsRef<Path>) -> Logs {
        Logs::within(folder.as_ref(), None, None)
    }

    /// Logs in the folder `logs` of this folder; where artifacts are kept in a bucket, finished logs
    /// are uploaded there too, and read from there on other machines.
    pub fn beside(folder: impl AsRef<Path>, artifacts: &Artifacts) -> Logs {
        let is_remote = artifacts.folder().is_none();
        Logs::within(folder.as_ref(), is_remote.then(|| artifacts.clone()), None)
    }

    /// Logs that nobody needs after this process, in a temporary folder that is removed with the last clone of them.
    /// Others can write where it is too, so nobody can know its name before.
    #[must_use]
    pub fn temporary() -> Logs {
        let name = format!("stepwell-logs-{}", uuid::Uuid::now_v7());
        let folder = std::env::temp_dir().join(name);
        Logs::within(&folder, None, Some(TemporaryFolder(folder.clone())))
    }

    fn within(
        folder: &Path,
        artifacts: Option<Artifacts>,
        temporary: Option<TemporaryFolder>,
    ) -> Logs {
        Logs {
            shared: Arc::new(LogsShared {
                folder: folder.join("logs"),
                _temporary: temporary,
                artifacts,
                watched: broadcast::Sender::new(WATCHED),
                flushing: OnceLock::new(),
            }),
        }
    }

    /// Where they are on this machine.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Begins the log of an execution, without its secrets and within `limits.log_bytes`.
    #[must_use]
    pub fn begin(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        redactor: &Redactor,
        limits: &TaskLimits,
    ) -> Arc<LogWriter> {
        let key = writer::key(run_id, step_id, execution);
        LogWriter::new(self, key, redactor.clone(), limits.log_bytes)
    }

    /// Every line of every log of this process from now on. Who is too slow misses some, and is told
    /// how many.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<LogEntry>> {
        self.shared.watched.subscribe()
    }

    /// Removes the logs of a run from this machine.
    pub fn remove_run(&self, run_id: &str) -> io::Result<Pruned> {
        remove(&self.run_folder(run_id), false)
    }

    /// Removes from this machine the logs of runs that are not kept and have none that was written
    /// after `older_than`. What was uploaded goes with the artifacts.
    pub fn prune(
        &self,
        is_kept: impl Fn(&str) -> bool,
        older_than: SystemTime,
        dry_run: bool,
    ) -> io::Result<Pruned> {
        let mut pruned = Pruned::default();
        for folder in read::entries(&self.shared.folder)? {
            let name = folder.file_name();
            let Some(run_id) = name.to_str().and_then(name_of) else {
                continue;
            };
            let found = read::files(&folder.path())?;
            let is_old = found.iter().all(|(_, log)| log.modified < older_than);
            if is_old && !is_kept(&run_id) {
                pruned.add(remove(&folder.path(), dry_run)?);
            }
        }
        Ok(pruned)
    }

    fn run_folder(&self, run_id: &str) -> PathBuf {
        self.shared.folder.join(segment(run_id))
    }

    fn file(&self, run_id: &str, step_id: &str, execution: u32) -> PathBuf {
        self.run_folder(run_id)
            .join(segment(step_id))
            .join(format!("{execution}{ENDING}"))
    }

    /// A path of a log, as the folder that has the logs and what is below it.
    fn below<'a>(&'a self, path: &'a Path) -> (&'a Path, &'a Path) {
        let folder = self.shared.folder.parent().unwrap_or(Path::new(""));
        let folder = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        (folder, path.strip_prefix(folder).unwrap_or(path))
    }

    /// Opens a log to read it.
    fn open_file(&self, path: &Path) -> io::Result<fs::File> {
        let (folder, below) = self.below(path);
        no_links::open_to_read(folder, below)
    }

    fn remote(&self) -> Option<&Artifacts> {
        self.shared.artifacts.as_ref()
    }

    fn show(&self, entry: impl FnOnce() -> LogEntry) {
        if self.shared.watched.receiver_count() > 0 {
            // The last one may just have gone.
            let _ = self.shared.watched.send(Arc::new(entry()));
        }
    }

    /// Has a buffer taken to its file soon; false if there is nobody who does it.
    fn await_flush(&self, writer: Weak<LogWriter>) -> bool {
        let flushing = self.shared.flushing.get_or_init(|| {
            let (sender, waiting) = mpsc::channel();
            // If it cannot be started, sending fails and each line is written at once.
            let _ = thread::Builder::new()
                .name("step-logs".into())
                .spawn(move || flush_all(&waiting));
            sender
        });
        flushing.send(writer).is_ok()
    }
}

/// Takes buffers to their files until no log is left that could send one.
fn flush_all(waiting: &mpsc::Receiver<Weak<LogWriter>>) {
    while let Ok(first) = waiting.recv() {
        thread::sleep(writer::DELAY);
        for writer in [first].into_iter().chain(waiting.try_iter()) {
            if let Some(writer) = writer.upgrade() {
                writer.flush();
            }
        }
    }
}

fn remove(folder: &Path, dry_run: bool) -> io::Result<Pruned> {
    let found = read::files(folder)?;
    if !dry_run && folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(Pruned {
        objects: found.len() as u64,
        bytes: found.iter().map(|(_, log)| log.bytes).sum(),
    })
}
