//! What engine and stores have to say beside a command's own output: lines on standard error, from
//! the level that `STEPWELL_LOG` names. Standard output is the command's alone.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

use crate::term;

/// The level: off, error, warn, info, debug or trace.
const VARIABLE: &str = "STEPWELL_LOG";

/// StderrWriter that wait for the tree on the terminal, while there is one.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    // A list of lines is whole whatever happened to who wrote the last one.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets everything that is logged from here on be seen.
pub(crate) fn install() {
    let set = std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
    let read = set.as_deref().map(str::parse::<LevelFilter>);
    let level = match read {
        Some(Ok(level)) => level,
        Some(Err(_)) | None => LevelFilter::WARN,
    };
    // Libraries below say at finer levels what is theirs alone, addresses among it.
    let targets = Targets::new()
        .with_target("stepwell", level)
        .with_default(level.min(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer()
        .compact()
        .with_ansi(false)
        .with_writer(StderrWriter)
        .with_filter(targets);
    // Nobody else installs one in this process.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines));
    if let Some(Err(_)) = read {
        tracing::warn!("{VARIABLE} is none of off, error, warn, info, debug, trace: it is warn");
    }
}

/// Keeps lines back while something is drawn over in place on the same terminal.
#[derive(Debug)]
pub(crate) struct LogHold(());

impl LogHold {
    pub(crate) fn new() -> LogHold {
        if io::stderr().is_terminal() {
            held().get_or_insert_default();
        }
        LogHold(())
    }

    /// The lines since the last time.
    pub(crate) fn lines(&self) -> Vec<String> {
        held().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        for line in held().take().unwrap_or_default() {
            // With nowhere to say it, there is nobody to say it to.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

/// Writes lines, or holds them.
#[derive(Clone, Copy, Debug)]
struct StderrWriter;

impl<'a> MakeWriter<'a> for StderrWriter {
    type Writer = StderrWriter;

    fn make_writer(&'a self) -> StderrWriter {
        StderrWriter
    }
}

impl Write for StderrWriter {
    /// One call is one event.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = format!("{}\n", term::one_line(text.trim_end()));
        match &mut *held() {
            Some(lines) => lines.push(line),
            None => io::stderr().write_all(line.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
