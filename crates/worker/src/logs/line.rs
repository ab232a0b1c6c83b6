//! A line of a step's log, and how it stands in a file: one JSON object a line.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stepwell_kernel::time::Time;

use crate::step_log::Stream;

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When the line was written, in RFC 3339 with milliseconds.
    pub at: String,
    /// The task that wrote the line; empty for the step itself.
    pub task: String,
    pub stream: Stream,
    pub text: String,
}

/// A line with the step execution that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub run_id: String,
    /// The step-run: `fetch`, `fetch#2`, `load[3]`.
    pub step_id: String,
    /// Number of the execution, from 1.
    pub execution: u32,
    pub line: LogLine,
}

#[derive(Deserialize, Serialize)]
struct LogRow<'a> {
    #[serde(borrow)]
    at: Cow<'a, str>,
    #[serde(borrow)]
    task: Cow<'a, str>,
    stream: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// A line as it stands in a file, with its end.
pub(super) fn write(at: &str, task: &str, stream: Stream, text: &str) -> Vec<u8> {
    let row = LogRow {
        at: at.into(),
        task: task.into(),
        stream: stream.name().into(),
        text: text.into(),
    };
    // Text always has a form in JSON.
    let mut bytes = serde_json::to_vec(&row).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Reads a line; none if it is torn, as one is that a crash cut off.
pub(super) fn read(bytes: &[u8]) -> Option<LogLine> {
    let row: LogRow<'_> = serde_json::from_slice(bytes).ok()?;
    let streams = [Stream::Out, Stream::Err, Stream::Note];
    Some(LogLine {
        at: row.at.into_owned(),
        task: row.task.into_owned(),
        stream: streams.into_iter().find(|it| it.name() == row.stream)?,
        text: row.text.into_owned(),
    })
}

/// All lines of a file that are whole.
pub(super) fn read_all(bytes: &[u8]) -> Vec<LogLine> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(read)
        .collect()
}

/// The time as a log writes it.
pub(super) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    Time(i64::try_from(millis).unwrap_or(i64::MAX)).to_rfc3339()
}
