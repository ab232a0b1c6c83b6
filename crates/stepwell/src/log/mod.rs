//! Log lines of the engine and the stores on standard error, at the level of `STEPWELL_LOG`, as text or as JSON
//! (`json`). Standard output contains only the output of the command.

mod json;

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use stepwell::settings::{LogFormat, Settings};
use stepwell_engine::store::Patience;
use tracing::Level;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets, dynamic_filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

use stepwell_worker::secrets::Redactor;

use crate::term;

/// The environment variable with the level: off, error, warn, info, debug or trace.
const VARIABLE: &str = "STEPWELL_LOG";

/// The environment variable with the form of log lines: text or json.
pub(crate) const FORMAT: &str = "STEPWELL_LOG_FORMAT";

/// Whether lines are JSON.
static AS_JSON: AtomicBool = AtomicBool::new(false);
/// Whether an option or a variable has said so, which come before the configuration.
static IS_SAID: AtomicBool = AtomicBool::new(false);

fn is_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// The configuration says how lines are written, unless an option or a variable has.
pub(crate) fn format_of(settings: &Settings) {
    if let (false, Some(format)) = (IS_SAID.load(Ordering::Relaxed), settings.log.format) {
        AS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
    }
}

/// Lines that are held back while the live tree is drawn on the terminal.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// The patience of this command, once it has one.
static PATIENCE: OnceLock<Arc<Patience>> = OnceLock::new();

/// While the command waits for its store it says so itself; what each failed try of the engine means is not repeated.
pub(crate) fn quiet_during(patience: &Arc<Patience>) {
    // A command has one store.
    let _ = PATIENCE.set(Arc::clone(patience));
}

fn is_waiting() -> bool {
    PATIENCE.get().is_some_and(|it| it.is_waiting())
}

/// A line for people on standard error, held back while the live tree is drawn.
pub(crate) fn line(text: &str) {
    let text = term::one_line(text);
    let line = match is_json() {
        true => format!("{}\n", json::message(&text)),
        false => format!("{text}\n"),
    };
    match &mut *held() {
        Some(lines) => lines.push(line),
        // If standard error is closed, the line cannot be shown anywhere.
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    // A list of lines stays valid even if a thread panicked while it held the lock.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the global log subscriber, and has messages of panics written without secrets too.
pub(crate) fn install(format: Option<LogFormat>) {
    AS_JSON.store(format == Some(LogFormat::Json), Ordering::Relaxed);
    IS_SAID.store(format.is_some(), Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        let text = match trace.status() == std::backtrace::BacktraceStatus::Captured {
            true => format!("{panic}\n{trace}"),
            false => panic.to_string(),
        };
        let clean = Redactor::of_process().text(&text);
        let clean = match is_json() {
            true => json::message(&clean),
            false => clean.into_owned(),
        };
        // If standard error is closed, the message cannot be shown anywhere.
        let _ = writeln!(io::stderr(), "{clean}");
    }));
    let set = std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
    let read = set.as_deref().map(str::parse::<LevelFilter>);
    let level = match read {
        Some(Ok(level)) => level,
        Some(Err(_)) | None => LevelFilter::WARN,
    };
    // Debug and trace lines of libraries can contain addresses, so libraries log warnings and errors only.
    let asked_for = set.is_some();
    let mut targets = Targets::new()
        .with_target("stepwell", level)
        .with_default(level.min(LevelFilter::WARN));
    if !asked_for {
        // Each call that it repeats is a warning of Temporal's client; that the server is away is said once, in plain words.
        targets = targets.with_target("temporalio", LevelFilter::ERROR);
        // Every record was waited for before its producer is dropped.
        targets = targets.with_target("krafka::producer", LevelFilter::ERROR);
    }
    let told = dynamic_filter_fn(move |event, _| {
        let repeats =
            *event.level() == Level::WARN && event.target().starts_with("stepwell_engine");
        asked_for || !repeats || !is_waiting()
    });
    let lines = tracing_subscriber::fmt::layer()
        .compact()
        .with_ansi(false)
        .with_writer(StderrWriter)
        .with_filter(
            targets
                .clone()
                .and(told.clone())
                .and(dynamic_filter_fn(|_, _| !is_json())),
        );
    let objects = json::JsonLines {
        write: |line| put(line),
    };
    let objects = objects.with_filter(targets.and(told).and(dynamic_filter_fn(|_, _| is_json())));
    // The only call that installs a subscriber in this process, so it cannot fail.
    let _ = tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(vec![lines.boxed(), objects.boxed()]),
    );
    if let Some(Err(_)) = read {
        tracing::warn!(
            "the value of {VARIABLE} is invalid; allowed: off, error, warn, info, debug, trace; using warn"
        );
    }
}

/// Holds log lines back while the live tree redraws the same terminal.
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
            // If standard error is closed, the lines cannot be shown anywhere.
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

/// Writes a log line without secrets, or holds it back.
fn put(text: &str) {
    let text = Redactor::of_process().text(text);
    let line = format!("{}\n", term::one_line(&text));
    match &mut *held() {
        Some(lines) => lines.push(line),
        // If standard error is closed, the line cannot be shown anywhere.
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Writes log lines to standard error, or holds them back.
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
        put(String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
