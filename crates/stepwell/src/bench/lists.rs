//! `stepwell bench lists`: a store with many runs, and how long a server takes for lists and counts of them with every filter
//! and every pair of filters, while runs are started.

mod fill;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value as Json, json};
use stepwell_client::Connection;
use stepwell_kernel::time::Time;
use tokio::runtime::Builder;

use super::percentile::Times;
use super::server_process::{BenchServer, in_new_folder};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::progress::Progress;
use crate::term;
use fill::RUNS_OF_A_PLAN;

/// Measure how long a server takes for lists and counts of many runs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell bench lists
  stepwell bench lists --runs 100000 --store postgresql://localhost/bench?schema=lists --at-most 50

Fills a new store with --runs runs in all states, of several tenants, projects and definitions and with labels. Then
`stepwell serve` is started on it, --rate runs a second are started, and lists and counts are asked for over HTTP, one
after the other: with each filter, with each pair of filters, first pages, deep pages and large pages. A filter is
common, rare, or fits only the oldest runs or none. An SQLite store is deleted afterwards, a schema of PostgreSQL is not.

Exit codes: 0 measured, 1 the server did not start, a request failed or was slower than --at-most, 2 wrong usage.")]
pub(crate) struct ListsArgs {
    /// Number of runs in the store
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    runs: u64,
    /// Number of runs that are started in a second meanwhile
    #[arg(long, value_name = "N", default_value_t = 50)]
    rate: u32,
    /// How often each list and each count is asked for
    #[arg(long, value_name = "N", default_value_t = 100)]
    calls: usize,
    /// How often lists and counts with two filters are asked for
    #[arg(long, value_name = "N", default_value_t = 20)]
    pair_calls: usize,
    /// Fail if 1 % of the answers of a list or a count take longer, in milliseconds
    #[arg(long, value_name = "MS")]
    at_most: Option<f64>,
    /// Store of the server; empty [default: a new SQLite file]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The store was filled before
    #[arg(long, requires = "store")]
    filled: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
}

/// Filters of a query, and what they are called.
#[derive(Clone, Debug)]
struct Query {
    name: String,
    filters: Vec<(&'static str, String)>,
}

/// The answers to one question.
#[derive(Debug)]
struct Answers {
    name: String,
    times: Times,
    /// Runs of the first page, or of the count.
    runs: u64,
    /// There is another page, or the count is not complete.
    more: bool,
}

pub(crate) fn run(args: &ListsArgs) -> Result<Exit> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let answers = in_new_folder(|folder| {
        let store = match &args.store {
            Some(store) => store.clone(),
            None => format!("sqlite:{}", folder.join("bench.db").display()),
        };
        if !args.filled {
            fill::fill(&store, args.runs)?;
        }
        runtime.block_on(measure(args, &store, folder))
    })?;
    let slow = |it: &&Answers| {
        args.at_most
            .is_some_and(|most| it.times.percentile(99) > most)
    };
    let is_slow = answers.iter().any(|it| slow(&it));
    let text = match args.output {
        OutputFormat::Json => {
            let all: Vec<Json> = answers.iter().map(Answers::json).collect();
            format!(
                "{}\n",
                json!({ "workload": "lists", "runs": args.runs, "answers": all })
            )
        }
        OutputFormat::Human => human(&answers),
    };
    term::print(&text)?;
    Ok(if is_slow { Exit::Problems } else { Exit::Ok })
}

/// Filters that are common, rare, or fit only the oldest runs or none.
fn filters(runs: u64, oldest: Time, newest: Time) -> Vec<(&'static str, &'static str, String)> {
    let at = |part: f64| {
        let millis = oldest.0 as f64 + (newest.0 - oldest.0) as f64 * part;
        Time(millis as i64).to_rfc3339()
    };
    let text = |text: &str| text.to_owned();
    vec![
        ("status, common", "status", text("COMPLETED")),
        ("status, rare", "status", text("PAUSED")),
        ("status, three", "status", text("FAILED,CANCELLED,PENDING")),
        ("open", "open", text("true")),
        ("plan, common", "plan", text("list-0")),
        ("plan, rare", "plan", text("list-7")),
        ("plan, oldest", "plan", text("list-old")),
        ("tenant, big", "tenant", text("tenant-0")),
        ("tenant, small", "tenant", text("tenant-small")),
        ("tenant, none", "tenant", text("nobody")),
        ("project", "project", text("project-3")),
        ("project, none", "project", text("nothing")),
        ("environment, rare", "environment", text("rare")),
        ("language", "language", text("actions")),
        ("language, none", "language", text("linear")),
        ("label, common", "labels", text("team=team-1")),
        (
            "label, one",
            "labels",
            format!("customer=customer-{}", runs / 2),
        ),
        ("label, none", "labels", text("team=nobody")),
        ("text, common", "text", text("TEAM-1")),
        ("text, one", "text", format!("Customer-{}", runs / 3)),
        ("text, none", "text", text("nothing has this")),
        ("created, oldest", "createdUntil", at(0.02)),
        ("created, half", "createdUntil", at(0.5)),
        ("created, newest", "createdFrom", at(0.98)),
        ("ended, oldest", "endedUntil", at(0.02)),
        ("ended, most", "endedFrom", at(0.1)),
        ("deep page", "before", fill::run_id(runs / 2)),
        ("deepest page", "before", fill::run_id(RUNS_OF_A_PLAN)),
    ]
}

fn queries(runs: u64, oldest: Time, newest: Time) -> (Vec<Query>, Vec<Query>) {
    let filters = filters(runs, oldest, newest);
    let query = |all: &[&(&'static str, &'static str, String)]| Query {
        name: all.iter().map(|it| it.0).collect::<Vec<_>>().join(" + "),
        filters: all.iter().map(|it| (it.1, it.2.clone())).collect(),
    };
    let mut singles = vec![Query {
        name: "no filter".to_owned(),
        filters: Vec::new(),
    }];
    singles.extend(filters.iter().map(|it| query(&[it])));
    let mut pairs = Vec::new();
    for (place, first) in filters.iter().enumerate() {
        // Two of a kind contradict each other.
        let kind = |name: &'static str| name.split(',').next();
        let others = filters[place + 1..].iter();
        let others = others.filter(|it| it.1 != first.1 && kind(it.0) != kind(first.0));
        pairs.extend(others.map(|second| query(&[first, second])));
    }
    (singles, pairs)
}

async fn measure(args: &ListsArgs, store: &str, folder: &Path) -> Result<Vec<Answers>> {
    let server = BenchServer::start(folder, Some(store), &[])?;
    let connection = Connection::new(&server.url, None)?;
    let created = |run: Json| -> Result<Time> {
        let at = run["createdAt"].as_str().and_then(Time::from_rfc3339);
        at.context("a run has no time")
    };
    let all = connection.list(&[("limit", Some("1".to_owned()))]).await?;
    let newest = created(all["runs"][0].clone())?;
    let second = [
        ("before", Some(fill::run_id(1))),
        ("limit", Some("1".to_owned())),
    ];
    let first = connection.list(&second).await?;
    let oldest = created(first["runs"][0].clone())?;
    let (singles, pairs) = queries(args.runs, oldest, newest);
    let stop = Arc::<AtomicBool>::default();
    let starting = tokio::spawn(start_runs(connection.clone(), args.rate, Arc::clone(&stop)));
    let asking = Progress::of_many("asking for lists", (singles.len() + pairs.len()) as u64);
    let mut answers = Vec::new();
    let large = Query {
        name: "page of 500".to_owned(),
        filters: vec![("limit", "500".to_owned())],
    };
    let all = singles.iter().chain([&large]).map(|it| (it, args.calls));
    let all = all.chain(pairs.iter().map(|it| (it, args.pair_calls)));
    for (number, (query, calls)) in all.enumerate() {
        for is_count in [false, true] {
            let is_page = query
                .filters
                .iter()
                .any(|it| ["before", "limit"].contains(&it.0));
            if !(is_count && is_page) {
                answers.push(ask(&connection, query, is_count, calls).await?);
            }
        }
        asking.set(number as u64);
    }
    drop(asking);
    stop.store(true, Ordering::SeqCst);
    let started = starting.await??;
    tracing::info!(started, "runs were started meanwhile");
    Ok(answers)
}

/// Starts runs at a rate until it is told to stop.
async fn start_runs(connection: Connection, rate: u32, stop: Arc<AtomicBool>) -> Result<u64> {
    let text =
        "workflowType: list-0\nworkflowVersion: 9\nsteps: [{stepType: ONE, tool: {kind: noop}}]\n";
    let mut beat = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    let mut number = 0_u64;
    while rate > 0 && !stop.load(Ordering::SeqCst) {
        beat.tick().await;
        let labels =
            json!({ "team": format!("team-{}", number % 50), "customer": format!("new-{number}") });
        let body = json!({
            "definition": { "text": text }, "tenant": format!("tenant-{}", number % 10),
            "project": format!("project-{}", number % 7), "labels": labels,
        });
        connection.start(&body).await?;
        number += 1;
    }
    Ok(number)
}

async fn ask(
    connection: &Connection,
    query: &Query,
    is_count: bool,
    calls: usize,
) -> Result<Answers> {
    let filters: Vec<(&str, Option<String>)> = query
        .filters
        .iter()
        .map(|(name, value)| (*name, Some(value.clone())))
        .collect();
    let mut answers = Answers {
        name: match is_count {
            true => format!("count, {}", query.name),
            false => query.name.clone(),
        },
        times: Times::default(),
        runs: 0,
        more: false,
    };
    for _ in 0..calls.max(1) {
        let begin = Instant::now();
        let answer = match is_count {
            true => connection.counts(&filters).await,
            false => connection.list(&filters).await,
        };
        let answer = answer.with_context(|| answers.name.clone())?;
        answers.times.push(begin.elapsed());
        answers.runs = match is_count {
            true => answer["total"].as_u64().unwrap_or_default(),
            false => answer["runs"].as_array().map_or(0, Vec::len) as u64,
        };
        answers.more = answer["next"].is_string() || answer["partial"] == true;
    }
    Ok(answers)
}

impl Answers {
    fn json(&self) -> Json {
        json!({
            "name": self.name, "runs": self.runs, "more": self.more, "calls": self.times.len(),
            "p50": self.times.percentile(50), "p99": self.times.percentile(99),
        })
    }
}

/// All answers, slowest first.
fn human(answers: &[Answers]) -> String {
    let mut sorted: Vec<&Answers> = answers.iter().collect();
    sorted.sort_by(|a, b| b.times.percentile(99).total_cmp(&a.times.percentile(99)));
    let mut text = format!(
        "{:<52} {:>7} {:>5} {:>9} {:>9}\n",
        "list or count", "runs", "more", "p50 ms", "p99 ms"
    );
    for it in sorted {
        text += &format!(
            "{:<52} {:>7} {:>5} {:>9.2} {:>9.2}\n",
            it.name,
            it.runs,
            if it.more { "yes" } else { "" },
            it.times.percentile(50),
            it.times.percentile(99)
        );
    }
    text
}
