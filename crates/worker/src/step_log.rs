//! The output of a task while it runs: lines of standard output and standard error, and notes of the pipeline.
//! Each line is stored as soon as it is complete, so that readers see it immediately.

use std::fmt;
use std::sync::Arc;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output of a program.
    Out,
    /// Standard error of a program.
    Err,
    /// A note of the worker: what it runs, retries or gives up.
    Note,
}

impl Stream {
    /// The name of the stream in a log: `out`, `err` or `note`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stream::Out => "out",
            Stream::Err => "err",
            Stream::Note => "note",
        }
    }
}

/// Takes the lines of one execution. Called from any thread, often; it must not block for long.
pub trait LogSink: Send + Sync {
    /// One line of a task, without its end.
    fn line(&self, task: &str, stream: Stream, text: &str);

    /// So many lines were said that nobody sends as lines any more: there are more of them than a log keeps.
    fn left_out(&self, lines: u64, bytes: u64) {
        let _ = (lines, bytes);
    }
}

/// The log of one execution of a step, as its tasks see it.
#[derive(Clone)]
pub struct StepLog {
    task: Arc<str>,
    lines: Arc<dyn LogSink>,
}

impl fmt::Debug for StepLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepLog")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}

impl StepLog {
    /// A log that writes to `lines`.
    pub fn new(lines: Arc<dyn LogSink>) -> StepLog {
        StepLog {
            task: "".into(),
            lines,
        }
    }

    /// A log that nobody reads.
    #[must_use]
    pub fn nowhere() -> StepLog {
        StepLog::new(Arc::new(DiscardLines))
    }

    /// The same log for one task.
    #[must_use]
    pub fn of(&self, task: &str) -> StepLog {
        StepLog {
            task: task.into(),
            lines: Arc::clone(&self.lines),
        }
    }

    /// Writes one line, without its end.
    pub fn line(&self, stream: Stream, text: &str) {
        self.lines.line(&self.task, stream, text);
    }

    /// Counts lines that are not written, because there are more of them than a log keeps.
    pub fn left_out(&self, lines: u64, bytes: u64) {
        self.lines.left_out(lines, bytes);
    }

    /// Writes a note of the worker.
    pub fn note(&self, text: &str) {
        self.line(Stream::Note, text);
    }
}

struct DiscardLines;

impl LogSink for DiscardLines {
    fn line(&self, _: &str, _: Stream, _: &str) {}
}
