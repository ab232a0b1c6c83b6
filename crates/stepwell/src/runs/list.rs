//! `stepwell runs list`: lists the runs of a store, newest first.

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value as Json, json};
use stepwell_engine::Error;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::store::{RunFilter, RunSummary};
use stepwell_kernel::snapshot::RunStatus;
use stepwell_kernel::time::Time;

use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::store::{StoreArgs, word};
use crate::term::{self, Paint, Tone, duration, one_line};
use crate::text_table;

/// List the runs of a store, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs list --open
  stepwell runs list --plan order-saga --status failed --limit 100
  stepwell runs list --before RUN             the next page
  stepwell runs list -o json | jq -r '.runs[].runId'")]
pub(super) struct ListArgs {
    /// Only runs with this status
    #[arg(long, value_name = "STATUS", ignore_case = true, value_parser = statuses())]
    status: Option<String>,
    /// Only runs of the plan with this id
    #[arg(long, value_name = "ID")]
    plan: Option<String>,
    /// Only runs that have not ended
    #[arg(long)]
    open: bool,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Only runs older than this run
    #[arg(long, value_name = "RUN")]
    before: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    actor: ActorArgs,
    #[command(flatten)]
    store: StoreArgs,
}

fn statuses() -> PossibleValuesParser {
    PossibleValuesParser::new(RunStatus::WORDS)
}

pub(super) fn run(args: &ListArgs) -> Result<Exit> {
    let store = args.store.read()?;
    let before = match &args.before {
        Some(run) => {
            let found = store.find(run)?;
            Some(found.ok_or_else(|| Error::UnknownRun(run.clone()))?)
        }
        None => None,
    };
    let filter = RunFilter {
        statuses: args.status.iter().map(|it| it.to_uppercase()).collect(),
        plan_id: args.plan.clone(),
        tenant: args.actor.actor(None)?.tenant,
        open: args.open,
        before,
        // One row more than shown tells whether there is another page.
        limit: args.limit.saturating_add(1),
        ..RunFilter::default()
    };
    let mut runs = store.list(&filter)?;
    // What the head of a damaged run says is not to be trusted.
    let damaged = store.quarantined()?;
    for run in &mut runs {
        if damaged.iter().any(|(damaged, _)| *damaged == run.run) {
            run.head.status = "DAMAGED".to_owned();
            run.head.substatus = None;
        }
    }
    let more = runs.len() > args.limit;
    runs.truncate(args.limit);
    let next = runs.last().filter(|_| more).map(|it| it.run_id.clone());
    match args.output {
        OutputFormat::Json => {
            let all: Vec<Json> = runs.iter().map(entry).collect();
            let text = serde_json::to_string_pretty(&json!({ "runs": all, "before": next }))?;
            term::print(&format!("{text}\n"))?;
        }
        OutputFormat::Human => {
            let paint = term::stdout_paint();
            let mut text = table(&runs, SystemClock.now(), paint);
            if let Some(next) = next {
                let line = format!("next page: stepwell runs list --before {}\n", word(&next));
                text.push_str(&paint.tone(Tone::Dim, &line));
            }
            term::print(&text)?;
        }
    }
    Ok(Exit::Ok)
}

fn entry(run: &RunSummary) -> Json {
    json!({
        "runId": run.run_id,
        "planId": run.plan_id,
        "planVersion": run.plan_version,
        "tenantId": run.tenant,
        "status": run.head.status,
        "substatus": run.head.substatus,
        "createdAt": run.created_at.to_rfc3339(),
        "endedAt": run.head.ended_at.map(Time::to_rfc3339),
        "wakeAt": run.head.wake_at.map(Time::to_rfc3339),
        "events": run.last_seq,
    })
}

fn table(runs: &[RunSummary], now: Time, paint: Paint) -> String {
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    let head = ["RUN", "PLAN", "STATUS", "EVENTS", "STARTED", "DURATION"];
    let rows = runs.iter().map(|run| {
        let status = match &run.head.substatus {
            // The contract has one word for both.
            Some(sub) if sub == "WAITING_APPROVAL" => {
                format!("{} (waits for a person or an event)", run.head.status)
            }
            Some(sub) => format!("{} ({sub})", run.head.status),
            None => run.head.status.clone(),
        };
        let took = run.head.ended_at.map(|at| at.since(run.created_at));
        let ago = match now.since(run.created_at) / 1000 {
            0 => "just now".to_owned(),
            seconds => format!("{} ago", duration(seconds * 1000)),
        };
        let tone = match run.head.status.as_str() {
            "COMPLETED" => Tone::Good,
            "FAILED" | "CANCELLED" => Tone::Bad,
            "RUNNING" => Tone::Busy,
            _ => Tone::Warn,
        };
        let cells = [
            one_line(&run.run_id),
            one_line(&run.plan_id),
            status,
            run.last_seq.to_string(),
            ago,
            took.map_or_else(String::new, duration),
        ];
        (cells, tone)
    });
    text_table::render(&head, rows, 2, paint)
}
