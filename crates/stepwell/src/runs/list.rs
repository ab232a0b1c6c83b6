//! `stepwell runs list`: lists the runs of a store, newest first.

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Deserialize;
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
use crate::place::{Place, PlaceArgs};
use crate::remote::Remote;
use crate::run::label_pairs;
use crate::store::{StoreArgs, word};
use crate::term::{self, Paint, Tone, duration, one_line};
use crate::text_table;

/// List the runs of a store, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs list --open
  stepwell runs list --plan order-saga --status failed --limit 100
  stepwell runs list --label team=payments --label region=eu
  stepwell runs list --before RUN             the next page
  stepwell runs list -o json | jq -r '.runs[].runId'")]
pub(super) struct ListArgs {
    /// Only runs with this status
    #[arg(long, value_name = "STATUS", ignore_case = true, value_parser = statuses())]
    status: Option<String>,
    /// Only runs of the plan with this id
    #[arg(long, value_name = "ID")]
    plan: Option<String>,
    /// Only runs with this label; can be repeated, and all of them must fit
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
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
    store: PlaceArgs,
}

fn statuses() -> PossibleValuesParser {
    PossibleValuesParser::new(RunStatus::WORDS)
}

pub(super) fn run(args: &ListArgs) -> Result<Exit> {
    let page = match args.store.place(&args.actor)? {
        Place::Store(store) => of_store(args, store)?,
        Place::Server(server) => of_server(args, &server)?,
    };
    match args.output {
        OutputFormat::Json => {
            let all: Vec<Json> = page.runs.iter().map(RunRow::json).collect();
            let json = json!({ "runs": all, "before": page.next });
            let text = serde_json::to_string_pretty(&json)?;
            term::print(&format!("{text}\n"))?;
        }
        OutputFormat::Human => {
            let paint = term::stdout_paint();
            let mut text = match page.runs.is_empty() {
                true => args.actor.none_of("runs")?,
                false => table(&page.runs, SystemClock.now(), paint),
            };
            if let Some(next) = page.next {
                let line = format!("next page: stepwell runs list --before {}\n", word(&next));
                text.push_str(&paint.tone(Tone::Dim, &line));
            }
            term::print(&text)?;
        }
    }
    Ok(Exit::Ok)
}

/// A page of runs, and the run that the next page begins after.
struct RunList {
    runs: Vec<RunRow>,
    next: Option<String>,
}

/// A run in the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunRow {
    run_id: String,
    plan_id: String,
    plan_version: String,
    tenant_id: String,
    status: String,
    substatus: Option<String>,
    created_at: String,
    ended_at: Option<String>,
    wake_at: Option<String>,
    events: u64,
}

impl RunRow {
    fn json(&self) -> Json {
        json!({
            "runId": self.run_id,
            "planId": self.plan_id,
            "planVersion": self.plan_version,
            "tenantId": self.tenant_id,
            "status": self.status,
            "substatus": self.substatus,
            "createdAt": self.created_at,
            "endedAt": self.ended_at,
            "wakeAt": self.wake_at,
            "events": self.events,
        })
    }
}

fn of_store(args: &ListArgs, store: &StoreArgs) -> Result<RunList> {
    let store = store.read()?;
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
        labels: label_pairs(&args.labels)?.into_iter().collect(),
        open: args.open,
        before,
        // One row more than shown tells whether there is another page.
        limit: args.limit.saturating_add(1),
        ..RunFilter::default()
    };
    let mut runs = store.list(&filter)?;
    let more = runs.len() > args.limit;
    runs.truncate(args.limit);
    let damaged = store.quarantined()?;
    let row = |run: RunSummary| {
        // What the head of a damaged run says is not to be trusted.
        let is_damaged = damaged.iter().any(|(damaged, _)| *damaged == run.run);
        let head = run.head;
        RunRow {
            run_id: run.run_id,
            plan_id: run.plan_id,
            plan_version: run.plan_version,
            tenant_id: run.tenant,
            status: if is_damaged {
                "DAMAGED".to_owned()
            } else {
                head.status
            },
            substatus: head.substatus.filter(|_| !is_damaged),
            created_at: run.created_at.to_rfc3339(),
            ended_at: head.ended_at.map(Time::to_rfc3339),
            wake_at: head.wake_at.map(Time::to_rfc3339),
            events: run.last_seq,
        }
    };
    let runs: Vec<RunRow> = runs.into_iter().map(row).collect();
    let next = runs.last().filter(|_| more).map(|it| it.run_id.clone());
    Ok(RunList { runs, next })
}

/// A server has pages of at most so many runs.
const SERVER_PAGE: usize = 500;

fn of_server(args: &ListArgs, server: &Remote) -> Result<RunList> {
    let mut list = RunList {
        runs: Vec::new(),
        next: args.before.clone(),
    };
    loop {
        let most = args
            .limit
            .saturating_sub(list.runs.len())
            .clamp(1, SERVER_PAGE);
        let filters = [
            ("status", args.status.as_ref().map(|it| it.to_uppercase())),
            ("plan", args.plan.clone()),
            ("tenant", args.actor.actor(None)?.tenant),
            ("labels", labels(&args.labels)?),
            ("open", args.open.then(|| "true".to_owned())),
            ("before", list.next.take()),
            ("limit", Some(most.to_string())),
        ];
        let filters = &filters;
        let page = server.ask(|server| async move { server.list(filters).await })?;
        let runs: Vec<RunRow> = serde_json::from_value(page["runs"].clone())?;
        list.runs.extend(runs);
        list.next = page["next"].as_str().map(str::to_owned);
        if list.next.is_none() || list.runs.len() >= args.limit {
            list.runs.truncate(args.limit);
            return Ok(list);
        }
    }
}

/// The labels as a server reads them.
fn labels(options: &[String]) -> Result<Option<String>> {
    let pairs = label_pairs(options)?;
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    Ok((!pairs.is_empty()).then(|| pairs.join(",")))
}

fn table(runs: &[RunRow], now: Time, paint: Paint) -> String {
    let head = ["RUN", "PLAN", "STATUS", "EVENTS", "STARTED", "DURATION"];
    let rows = runs.iter().map(|run| {
        let status = match &run.substatus {
            // The contract has one word for both.
            Some(sub) if sub == "WAITING_APPROVAL" => {
                format!("{} (waits for a person or an event)", run.status)
            }
            Some(sub) => format!("{} ({sub})", run.status),
            None => run.status.clone(),
        };
        let time = |text: &str| Time::from_rfc3339(text).unwrap_or(now);
        let created = time(&run.created_at);
        let took = run.ended_at.as_deref().map(|at| time(at).since(created));
        let ago = match now.since(created) / 1000 {
            0 => "just now".to_owned(),
            seconds => format!("{} ago", duration(seconds * 1000)),
        };
        let tone = match run.status.as_str() {
            "COMPLETED" => Tone::Good,
            "FAILED" | "CANCELLED" => Tone::Bad,
            "RUNNING" => Tone::Busy,
            _ => Tone::Warn,
        };
        let cells = [
            one_line(&run.run_id),
            one_line(&run.plan_id),
            status,
            run.events.to_string(),
            ago,
            took.map_or_else(String::new, duration),
        ];
        (cells, tone)
    });
    text_table::render(&head, rows, 2, paint)
}
