//! `stepwell runs logs`: prints step logs, also while the steps write them. The storage of the logs is
//! behind the trait [`LogReader`].

mod print;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use stepwell_dialects::words::{nearest, quote};
use stepwell_engine::Error;
use stepwell_engine::rows::parse_target;
use stepwell_kernel::event::Event;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_worker::logs::{LogFile, LogLine, Logs};
use stepwell_worker::step_log::Stream;
use tokio::runtime::{Builder, Runtime};

use super::Refused;
use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::remote::Remote;
use crate::run::report::Failing;
use crate::store::word;
use crate::term;
use crate::work::DataArgs;
use print::{LogPrinter, LogQuery};
use stepwell_views::{RunView, child_id};

/// How often to read new lines with `--follow`.
const LOOK: Duration = Duration::from_millis(200);
/// How many log lines of a failed step are shown at the end of a run.
const TAIL: usize = 10;

/// The log of one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecutionLog {
    /// The step-run: `fetch`, `fetch#2`, `load[3]`.
    pub(crate) step_id: String,
    pub(crate) execution: u32,
    /// The size of the log; if the size is the same, there are no new lines.
    pub(crate) bytes: u64,
}

/// Reads step logs. Works from any process, also while a step writes its log.
pub(crate) trait LogReader {
    /// The executions of a run that have a log, least recently changed first.
    fn list(&self, run_id: &str) -> Result<Vec<ExecutionLog>>;

    /// The lines of one execution from a position on, and the position after the last line. The first
    /// position is 0; other positions are only valid for the reader that returned them.
    fn read(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        from: u64,
    ) -> Result<(Vec<LogLine>, u64)>;

    /// The location of the logs, for messages.
    fn place(&self) -> String;
}

/// Opens the logs that belong to a store, or to the runs of a server.
pub(crate) fn open(
    place: &PlaceArgs,
    who: &ActorArgs,
    data: &DataArgs,
) -> Result<Box<dyn LogReader>> {
    let store = match place.place(who)? {
        Place::Store(store) => store,
        Place::Server(server) => return Ok(Box::new(ServerLogs(server))),
    };
    let logs = data.open(&store.address()?)?.logs;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(Box::new(StoredLogs { logs, runtime }))
}

/// The logs that a server has.
pub(crate) struct ServerLogs(pub(crate) Arc<Remote>);

impl LogReader for ServerLogs {
    fn list(&self, run_id: &str) -> Result<Vec<ExecutionLog>> {
        let logs = self
            .0
            .ask(|server| async move { server.logs(run_id).await })?;
        let kept = |log: stepwell_client::ExecutionLog| ExecutionLog {
            step_id: log.step_id,
            execution: log.execution,
            bytes: log.size_bytes,
        };
        Ok(logs.into_iter().map(kept).collect())
    }

    fn read(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        from: u64,
    ) -> Result<(Vec<LogLine>, u64)> {
        let (mut lines, mut next) = (Vec::new(), from);
        loop {
            let page = self.0.ask(|server| async move {
                server.log_lines(run_id, step_id, execution, next).await
            })?;
            if page.lines.is_empty() {
                return Ok((lines, page.next.max(next)));
            }
            next = page.next;
            lines.extend(page.lines.into_iter().map(|line| LogLine {
                at: line.at,
                task: line.task,
                stream: match line.stream.as_str() {
                    "err" => Stream::Err,
                    "note" => Stream::Note,
                    _ => Stream::Out,
                },
                text: line.text,
            }));
        }
    }

    fn place(&self) -> String {
        self.0.url().to_owned()
    }
}

/// The log files that workers write.
struct StoredLogs {
    logs: Logs,
    runtime: Runtime,
}

impl LogReader for StoredLogs {
    fn list(&self, run_id: &str) -> Result<Vec<ExecutionLog>> {
        let mut files = self.runtime.block_on(self.logs.list(run_id))?;
        files.sort_by_key(|file| file.modified);
        let kept = |file: LogFile| ExecutionLog {
            step_id: file.step_id,
            execution: file.execution,
            bytes: file.bytes,
        };
        Ok(files.into_iter().map(kept).collect())
    }

    fn read(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        from: u64,
    ) -> Result<(Vec<LogLine>, u64)> {
        let read = self.logs.read(run_id, step_id, Some(execution));
        let lines = self.runtime.block_on(read)?;
        let end = lines.len() as u64;
        let skip = usize::try_from(from).unwrap_or(usize::MAX);
        Ok((lines.into_iter().skip(skip).collect(), end))
    }

    fn place(&self) -> String {
        self.logs.folder().display().to_string()
    }
}

/// The last log lines of the step that made a run fail. Returns none if the log cannot be read, so that a
/// log error does not hide the error of the run.
pub(crate) fn tail(reader: &dyn LogReader, failing: &Failing) -> Option<Vec<String>> {
    let (run_id, step_id) = (&failing.run_id, &failing.step_id);
    let all = reader.list(run_id).ok()?.into_iter();
    let own = all.filter(|log| log.step_id == *step_id);
    let last = own.map(|log| log.execution).max()?;
    let (lines, _) = reader.read(run_id, step_id, last, 0).ok()?;
    let skip = lines.len().saturating_sub(TAIL);
    Some(lines.into_iter().skip(skip).map(|it| it.text).collect())
}

/// Print the output of the steps of a run
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs logs RUN                      all steps, by execution
  stepwell runs logs RUN fetch                one step, with its visits and items
  stepwell runs logs RUN 'load[3]' --execution 2
  stepwell runs logs RUN --follow             until the run has ended
  stepwell runs logs RUN fetch --tail 20
  stepwell runs logs RUN -o json | jq -r 'select(.stream == \"err\") | .text'

A line is `step | text`. On a terminal, lines from standard error are coloured; notes of the worker are in
parentheses. -o json prints one object per line.

Exit codes: 0 printed, 1 run, step or log not found, or the store cannot be used, 2 wrong usage.")]
pub(super) struct LogsArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    /// Only this step, with all its visits and items
    #[arg(value_name = "STEP")]
    step: Option<String>,
    /// Wait for new lines until the run has ended
    #[arg(long)]
    follow: bool,
    /// Only this execution; the first is 1. An attempt has more than one if a process was lost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    execution: Option<u32>,
    /// Only the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    #[command(flatten)]
    data: DataArgs,
    /// Output format: human, or json with one object per line
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human, hide_possible_values = true)]
    output: OutputFormat,
    #[command(flatten)]
    actor: ActorArgs,
    #[command(flatten)]
    store: PlaceArgs,
}

pub(super) fn run(args: &LogsArgs) -> Result<Exit> {
    let store = args.store.runs(&args.actor)?;
    let mut view = RunView::read_as(&*store, &args.run, &args.actor.actor(None)?)?;
    if let Some(step) = &args.step {
        must_exist(&view, step)?;
    }
    let reader = open(&args.store, &args.actor, &args.data)?;
    let wanted = LogQuery {
        run_id: &args.run,
        step: args.step.as_deref(),
        execution: args.execution,
        tail: args.tail,
        output: args.output,
        paint: term::stdout_paint(),
    };
    let mut printer = LogPrinter::new(&*reader, wanted);
    loop {
        // Checked before the log is read, so that the last lines of the run are not missed.
        let over = !args.follow || view.state.phase().is_ended();
        let mut out = io::stdout().lock();
        printer.print(&mut out)?;
        out.flush()?;
        drop(out);
        if over {
            break;
        }
        std::thread::sleep(LOOK);
        view.catch_up(&*store)?;
    }
    if printer.has_found_none() {
        return Err(missing(args, &view, &*reader).into());
    }
    Ok(Exit::Ok)
}

fn must_exist(view: &RunView, step: &str) -> Result<()> {
    if parse_target(&view.plan, step).is_some() {
        return Ok(());
    }
    let steps = view.plan.net().steps.iter();
    let known: Vec<&str> = steps.map(|step| step.name.as_str()).collect();
    let bare = step.split(['#', '[', '~']).next().unwrap_or(step);
    let hint = match nearest(bare, &known) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!(
            "`stepwell runs show {}` lists the steps",
            word(view.state.run_id())
        ),
    };
    let what = format!("the run has no step {}; {hint}", quote(step));
    Err(Error::from(Rejection::new(Code::StepUnknown, what)).into())
}

/// The error for a log that does not exist.
fn missing(args: &LogsArgs, view: &RunView, reader: &dyn LogReader) -> Refused {
    let run = &args.run;
    let whose = match (&args.step, args.execution) {
        (Some(step), Some(number)) => format!("execution {number} of {step}"),
        (Some(step), None) => step.clone(),
        (None, Some(number)) => format!("execution {number}"),
        (None, None) => "any step".to_owned(),
    };
    let child = args.step.as_ref().and_then(|step| child(view, step));
    let hint = match child {
        Some(child) => format!(
            "the step started a child run: `stepwell runs logs {}`",
            word(&child)
        ),
        None => format!(
            "the step has not run, has written nothing, or its log was deleted (searched in {})",
            reader.place()
        ),
    };
    let text = format!("run {run} has no log of {whose}; {hint}");
    Refused::new("LOG_MISSING", &text)
}

/// The child run that a step started last.
fn child(view: &RunView, step: &str) -> Option<String> {
    let wanted = view.plan.parse_step_id(step)?;
    let of_step = |event: &&Event| event.body.step() == Some(wanted);
    let events = view.events.iter().rev();
    events.filter(of_step).find_map(child_id)
}
