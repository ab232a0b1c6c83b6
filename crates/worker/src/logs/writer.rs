//! Writes the log of one execution: redacted, bounded, and never in the way of the work.
//!
//! Lines go into a small buffer, which the next writer takes to the file when it is full or 50 ms
//! old; a thread for all logs takes what is left behind. A file that cannot be written makes the log
//! silent, not the step fail.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::line::{self, LogEntry, LogLine};
use super::{Logs, UPLOADED};
use crate::artifacts::{ArtifactKey, private_dir};
use crate::no_links;
use crate::secrets::Redactor;
use crate::step_log::{LogSink, Stream};

/// How long a line stays in the buffer at most.
pub(super) const DELAY: Duration = Duration::from_millis(50);

const BUFFER_BYTES: usize = 64 << 10;

/// A longer line is cut, so that one line cannot take a whole log.
const LINE_BYTES: usize = 64 << 10;

/// The log of one execution. It is ended by [`LogWriter::finish`], or by being dropped.
pub struct LogWriter {
    logs: Logs,
    me: Weak<LogWriter>,
    key: ArtifactKey,
    redactor: Redactor,
    limit: usize,
    /// Nothing is written any more; read before the lock, for programs that print without end.
    is_full: AtomicBool,
    lines_left_out: AtomicU64,
    bytes_left_out: AtomicU64,
    state: Mutex<WriterState>,
}

#[derive(Default)]
struct WriterState {
    file: Option<File>,
    buffer: Vec<u8>,
    /// Bytes that are in the file or on their way.
    taken: usize,
    flushed: Option<Instant>,
    /// The thread of all logs knows that there is something in the buffer.
    is_awaited: bool,
    is_broken: bool,
    is_over: bool,
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

impl LogWriter {
    pub(super) fn new(
        logs: &Logs,
        key: ArtifactKey,
        redactor: Redactor,
        limit: usize,
    ) -> Arc<LogWriter> {
        Arc::new_cyclic(|me| LogWriter {
            logs: logs.clone(),
            me: me.clone(),
            key,
            redactor,
            limit,
            is_full: AtomicBool::new(false),
            lines_left_out: AtomicU64::new(0),
            bytes_left_out: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// Ends the log: all of it is in the file, and in the bucket if artifacts are in one. What is
    /// said later is not kept. The file is not synced: a log is not what a run is resumed from.
    pub async fn finish(self: &Arc<LogWriter>) {
        // Most steps say nothing, and then there is no file that anybody must be waited for.
        if self.close_silent() {
            return;
        }
        let me = Arc::clone(self);
        if tokio::task::spawn_blocking(move || me.close())
            .await
            .is_err()
        {
            return;
        }
        let Some(artifacts) = self.logs.remote() else {
            return;
        };
        let Ok(bytes) = self.logs.whole(self.path()).await else {
            return;
        };
        if let Err(error) = artifacts.put(&self.key, "log", bytes).await {
            tracing::warn!(path = %self.path().display(), %error, "a step's log was not uploaded");
        }
    }

    /// Takes the buffer to the file; called by the thread of all logs.
    pub(super) fn flush(&self) {
        let mut state = self.state();
        state.is_awaited = false;
        self.write_out(&mut state);
    }

    fn path(&self) -> PathBuf {
        let key = &self.key;
        self.logs.file(&key.run_id, &key.step_id, key.execution)
    }

    /// Ends a log to which nothing was said; false if something was.
    fn close_silent(&self) -> bool {
        let mut state = self.state();
        let is_silent = state.taken == 0 && self.lines_left_out.load(Ordering::Relaxed) == 0;
        if is_silent {
            state.is_over = true;
            self.is_full.store(true, Ordering::Relaxed);
        }
        is_silent
    }

    fn close(&self) {
        let mut state = self.state();
        if state.is_over {
            return;
        }
        state.is_over = true;
        self.is_full.store(true, Ordering::Relaxed);
        let (lines, bytes) = (
            self.lines_left_out.load(Ordering::Relaxed),
            self.bytes_left_out.load(Ordering::Relaxed),
        );
        if lines > 0 {
            let text = format!(
                "the log is full: {bytes} bytes in {lines} more lines were left out; its limit is {} bytes",
                self.limit
            );
            let at = line::now();
            state
                .buffer
                .extend_from_slice(&line::write(&at, "", Stream::Note, &text));
            self.show(at, "", Stream::Note, &text);
        }
        self.write_out(&mut state);
        state.file = None;
    }

    fn state(&self) -> MutexGuard<'_, WriterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a line to those who watch.
    fn show(&self, at: String, task: &str, stream: Stream, text: &str) {
        self.logs.show(|| LogEntry {
            run_id: self.key.run_id.clone(),
            step_id: self.key.step_id.clone(),
            execution: self.key.execution,
            line: LogLine {
                at,
                task: task.to_owned(),
                stream,
                text: text.to_owned(),
            },
        });
    }

    fn write_out(&self, state: &mut WriterState) {
        if !state.buffer.is_empty()
            && !state.is_broken
            && let Err(error) = append(&self.logs, &mut state.file, &self.path(), &state.buffer)
        {
            state.is_broken = true;
            tracing::warn!(
                path = %self.path().display(),
                %error,
                "the rest of a step's log is lost: it cannot be written"
            );
        }
        state.buffer.clear();
        state.flushed = Some(Instant::now());
    }
}

impl LogSink for LogWriter {
    fn line(&self, task: &str, stream: Stream, text: &str) {
        if self.is_full.load(Ordering::Relaxed) {
            return self.left_out(1, text.len() as u64);
        }
        let clean = self.redactor.text(text);
        let shown = shortened(&clean);
        let mut state = self.state();
        // The time is taken inside the lock, so that it never goes back from line to line.
        let at = line::now();
        let row = line::write(&at, task, stream, &shown);
        if state.is_over || state.taken + row.len() > self.limit {
            self.is_full.store(true, Ordering::Relaxed);
            return self.left_out(1, text.len() as u64);
        }
        self.show(at, task, stream, &shown);
        state.taken += row.len();
        if state.is_broken {
            return;
        }
        state.buffer.extend_from_slice(&row);
        let is_due = state.flushed.is_none_or(|at| at.elapsed() >= DELAY);
        if is_due || state.buffer.len() >= BUFFER_BYTES {
            self.write_out(&mut state);
        } else if !state.is_awaited {
            state.is_awaited = true;
            if !self.logs.await_flush(self.me.clone()) {
                self.write_out(&mut state);
            }
        }
    }

    fn left_out(&self, lines: u64, bytes: u64) {
        self.lines_left_out.fetch_add(lines, Ordering::Relaxed);
        self.bytes_left_out.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.close();
    }
}

/// A line in what it may take, with a word about the rest.
fn shortened(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= LINE_BYTES {
        return text.into();
    }
    let end = text.floor_char_boundary(LINE_BYTES);
    let rest = text.len() - end;
    format!("{} … ({rest} bytes more)", &text[..end]).into()
}

fn append(logs: &Logs, file: &mut Option<File>, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        None => file.insert(open(logs, path)?),
    };
    file.write_all(bytes)
}

/// Opens a log to append. One that a crash left in the middle of a line gets that line's end.
fn open(logs: &Logs, path: &Path) -> io::Result<File> {
    let (folder, below) = logs.below(path);
    private_dir(folder)?;
    let mut file = no_links::open_to_append(folder, below)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// The key under which a log is uploaded.
pub(super) fn key(run_id: &str, step_id: &str, execution: u32) -> ArtifactKey {
    ArtifactKey::new(run_id, step_id, execution, UPLOADED)
}
