//! Follows logs as they are written, by this process or by another: looks at the files again and
//! again.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::Logs;
use super::line::{self, LogEntry};
use super::read::files;

const PAUSE: Duration = Duration::from_millis(100);

/// How much of a file is taken at a time; more than any line has.
const CHUNK: u64 = 1 << 20;

/// The lines of a run as they come. Waiting for the next blocks the thread.
pub struct Follow<F> {
    logs: Logs,
    run_id: String,
    step_id: Option<String>,
    is_over: F,
    /// How far each file has been read.
    read: BTreeMap<PathBuf, u64>,
    ready: VecDeque<LogEntry>,
}

impl<F> fmt::Debug for Follow<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow")
            .field("run_id", &self.run_id)
            .field("step_id", &self.step_id)
            .finish_non_exhaustive()
    }
}

impl Logs {
    /// The lines of one step or of all steps of a run, from the first on, across executions, until
    /// `is_over` says that no more will come.
    pub fn follow<F: FnMut() -> bool>(
        &self,
        run_id: &str,
        step_id: Option<&str>,
        is_over: F,
    ) -> Follow<F> {
        Follow {
            logs: self.clone(),
            run_id: run_id.to_owned(),
            step_id: step_id.map(str::to_owned),
            is_over,
            read: BTreeMap::new(),
            ready: VecDeque::new(),
        }
    }
}

impl<F: FnMut() -> bool> Iterator for Follow<F> {
    type Item = io::Result<LogEntry>;

    fn next(&mut self) -> Option<io::Result<LogEntry>> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(Ok(entry));
            }
            // Asked before looking, so that what was said last is still seen.
            let is_over = (self.is_over)();
            if let Err(error) = self.look() {
                return Some(Err(error));
            }
            if self.ready.is_empty() {
                if is_over {
                    return None;
                }
                thread::sleep(PAUSE);
            }
        }
    }
}

impl<F> Follow<F> {
    fn look(&mut self) -> io::Result<()> {
        let mut found = files(&self.logs.run_folder(&self.run_id))?;
        found.retain(|(_, log)| self.step_id.as_ref().is_none_or(|step| log.is_of(step)));
        found.sort_by_key(|(_, log)| log.execution);
        let mut fresh = Vec::new();
        for (path, log) in found {
            let read = self.read.entry(path.clone()).or_insert(0);
            for line in read_on(&self.logs, &path, read)? {
                fresh.push(LogEntry {
                    run_id: self.run_id.clone(),
                    step_id: log.step_id.clone(),
                    execution: log.execution,
                    line,
                });
            }
        }
        fresh.sort_by(|one, other| one.line.at.cmp(&other.line.at));
        self.ready.extend(fresh);
        Ok(())
    }
}

/// The lines behind `read` that are whole; `read` moves on behind them.
fn read_on(logs: &Logs, path: &Path, read: &mut u64) -> io::Result<Vec<line::LogLine>> {
    let mut file = match logs.open_file(path) {
        Ok(file) => file,
        // It was removed in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(*read))?;
    let mut bytes = Vec::new();
    file.take(CHUNK).read_to_end(&mut bytes)?;
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        // Nobody here writes such a line; it is passed over.
        None if bytes.len() as u64 == CHUNK => bytes.len(),
        None => 0,
    };
    *read += whole as u64;
    Ok(line::read_all(&bytes[..whole]))
}
