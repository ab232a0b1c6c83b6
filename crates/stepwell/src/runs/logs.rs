//! `stepwell runs logs`: what the steps of a run have said, also while they say it. How the logs are
//! kept is not known here: a [`LogReader`] has them.

mod print;

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use stepwell_dialects::words::{nearest, quote};
use stepwell_engine::rows::parse_target;
use stepwell_engine::{Error, run_id_for};
use stepwell_kernel::event::{Body, Event, WaitKind};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_worker::logs::{LogFile, LogLine, Logs};
use tokio::runtime::{Builder, Runtime};

use super::Refused;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::run::report::Failing;
use crate::run_view::RunView;
use crate::store::{StoreArgs, word};
use crate::term;
use crate::work::DataArgs;
use print::{LogPrinter, LogQuery};

/// How often a log that grows is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How many lines of a failed step's log stand below a run's end.
const TAIL: usize = 10;

/// The log of one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecutionLog {
    /// The step-run: `fetch`, `fetch#2`, `load[3]`.
    pub(crate) step_id: String,
    pub(crate) execution: u32,
    /// Its size: as long as that is the same, nothing was said.
    pub(crate) bytes: u64,
}

/// Where the logs of steps are. Reading works from any process, while the log grows.
pub(crate) trait LogReader {
    /// The executions of a run that have said something, those that were silent longest first.
    fn list(&self, run_id: &str) -> Result<Vec<ExecutionLog>>;

    /// The lines of one execution from a place on, and the place behind the last of them. The first
    /// place is 0; what others mean is the reader's own business.
    fn read(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        from: u64,
    ) -> Result<(Vec<LogLine>, u64)>;

    /// Where it looks, for people.
    fn place(&self) -> String;
}

/// The logs that belong to a store.
pub(crate) fn open(store: &StoreArgs, data: &DataArgs) -> Result<Box<dyn LogReader>> {
    let logs = data.open(&store.address()?)?.logs;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(Box::new(StoredLogs { logs, runtime }))
}

/// The logs that workers keep.
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

/// The last lines of the step that made a run fail. A log that cannot be read must not hide why the
/// run failed, so there are none then.
pub(crate) fn tail(reader: &dyn LogReader, failing: &Failing) -> Option<Vec<String>> {
    let (run_id, step_id) = (&failing.run_id, &failing.step_id);
    let all = reader.list(run_id).ok()?.into_iter();
    let own = all.filter(|log| log.step_id == *step_id);
    let last = own.map(|log| log.execution).max()?;
    let (lines, _) = reader.read(run_id, step_id, last, 0).ok()?;
    let skip = lines.len().saturating_sub(TAIL);
    Some(lines.into_iter().skip(skip).map(|it| it.text).collect())
}

/// What the steps of a run have said
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs logs RUN                      every step, attempt by attempt
  stepwell runs logs RUN fetch                one step, with its visits and items
  stepwell runs logs RUN 'load[3]' --attempt 2
  stepwell runs logs RUN --follow             until the run has ended
  stepwell runs logs RUN fetch --tail 20
  stepwell runs logs RUN -o json | jq -r 'select(.stream == \"err\") | .text'

A line is `step | text`. On a terminal what came from standard error is coloured; what the worker
itself says is in brackets. -o json prints one object per line.

Exit codes: 0 printed, 1 no such run or step, nothing was said, or the store cannot be used, 2 wrong
usage.")]
pub(super) struct LogsArgs {
    /// The run's id
    #[arg(value_name = "RUN")]
    run: String,
    /// Only this step; a name stands for all its visits and items
    #[arg(value_name = "STEP")]
    step: Option<String>,
    /// Wait for more until the run has ended
    #[arg(long)]
    follow: bool,
    /// Only this attempt, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    #[command(flatten)]
    data: DataArgs,
    /// How to print them: human or json, which is one object per line
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human, hide_possible_values = true)]
    output: OutputFormat,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(args: &LogsArgs) -> Result<Exit> {
    let store = args.store.read()?;
    let mut view = RunView::read(&*store, &args.run)?;
    if let Some(step) = &args.step {
        must_exist(&view, step)?;
    }
    let reader = open(&args.store, &args.data)?;
    let wanted = LogQuery {
        run_id: &args.run,
        step: args.step.as_deref(),
        attempt: args.attempt,
        tail: args.tail,
        output: args.output,
        paint: term::stdout_paint(),
    };
    let mut printer = LogPrinter::new(&*reader, wanted);
    loop {
        // Before the log is read: what is said until the end is then in it.
        let over = !args.follow || view.state.phase.is_ended();
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
            "`stepwell runs show {}` lists them",
            word(&view.state.run_id)
        ),
    };
    let what = format!("the run has no step {}; {hint}", quote(step));
    Err(Error::from(Rejection::new(Code::StepUnknown, what)).into())
}

/// Why there is nothing to print.
fn missing(args: &LogsArgs, view: &RunView, reader: &dyn LogReader) -> Refused {
    let run = &args.run;
    let whose = match (&args.step, args.attempt) {
        (Some(step), Some(attempt)) => format!("attempt {attempt} of {step}"),
        (Some(step), None) => step.clone(),
        (None, Some(attempt)) => format!("an attempt {attempt}"),
        (None, None) => "its steps".to_owned(),
    };
    let child = args.step.as_ref().and_then(|step| child(view, step));
    let hint = match child {
        Some(child) => format!(
            "it is a run of its own: `stepwell runs logs {}`",
            word(&child)
        ),
        None => format!(
            "it has not run, said nothing, or its log was removed (looked in {})",
            reader.place()
        ),
    };
    let text = format!("{run} has no log of {whose}; {hint}");
    Refused::new("LOG_MISSING", &text)
}

/// The run that a step started last.
fn child(view: &RunView, step: &str) -> Option<String> {
    let wanted = view.plan.parse_step_id(step)?;
    let key = |event: &Event| match &event.body {
        Body::StepWaiting {
            step,
            wait: WaitKind::Child { request_key, .. },
            ..
        } if *step == wanted => Some(run_id_for(request_key)),
        _ => None,
    };
    view.events.iter().rev().find_map(key)
}
