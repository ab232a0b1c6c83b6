//! `stepwell outbox`: lists pending deliveries, and delivers them without running a workflow.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use stepwell_engine::store::Store;

use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::remote::Remote;
use crate::run::interrupts;
use crate::runs::say;
use crate::sink::{SinkArgs, flag};
use crate::store::StoreArgs;
use crate::term::{self, Tone, one_line};
use crate::{text_table, usage};

/// How often a server is asked what is pending.
const LOOK: Duration = Duration::from_millis(100);

/// List and deliver pending deliveries
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell outbox list
  stepwell outbox flush                                             to all registered sinks
  stepwell outbox flush --sink hook=webhook:https://example.com/events
  stepwell outbox flush --sink hook=webhook:https://example.com/events --timeout 300

Pending deliveries belong to the sink NAME with which they were committed. Without --sink they go to the
registered sinks (`stepwell sinks list`); with --sink to the given address, which is not registered. `flush` needs a SQLite store that no other process owns; the owner delivers by itself.

Exit codes: 0 done, and after flush no delivery is pending; 1 deliveries are pending or failed for
good, or the store cannot be used; 2 wrong usage.")]
pub(crate) struct OutboxArgs {
    #[command(subcommand)]
    command: OutboxCommand,
}

#[derive(Debug, Subcommand)]
enum OutboxCommand {
    /// List the number of pending deliveries and the oldest time for each sink
    List {
        /// Output format
        #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
        output: OutputFormat,
        #[command(flatten)]
        store: PlaceArgs,
    },
    /// Deliver the pending deliveries of the given sinks, or of all registered sinks, now
    Flush(FlushArgs),
}

#[derive(Debug, Args)]
struct FlushArgs {
    #[command(flatten)]
    sinks: SinkArgs,
    /// Maximum time in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: PlaceArgs,
}

pub(crate) fn run(args: &OutboxArgs) -> Result<Exit> {
    match &args.command {
        OutboxCommand::List { output, store } => list(*output, store),
        OutboxCommand::Flush(args) => flush(args),
    }
}

fn list(output: OutputFormat, place: &PlaceArgs) -> Result<Exit> {
    let mut waiting = Vec::new();
    match place.place(&ActorArgs::default())? {
        Place::Store(store) => {
            let store = store.read()?;
            for sink in store.waiting_sinks()? {
                let (count, since) = store.backlog(&sink)?;
                waiting.push((sink, count, since.map(|it| it.to_rfc3339())));
            }
        }
        Place::Server(server) => {
            let rows = server.ask(|it| async move { it.outbox().await })?;
            waiting.extend(rows.into_iter().map(|it| (it.sink, it.waiting, it.since)));
        }
    }
    if output == OutputFormat::Json {
        let all: Vec<Json> = waiting
            .iter()
            .map(|(sink, count, since)| json!({ "sink": sink, "waiting": count, "since": since }))
            .collect();
        say(output, "", &json!({ "sinks": all }))?;
        return Ok(Exit::Ok);
    }
    if waiting.is_empty() {
        term::print("no pending deliveries\n")?;
        return Ok(Exit::Ok);
    }
    let rows = waiting.into_iter().map(|(sink, count, since)| {
        let since = since.unwrap_or_default();
        ([one_line(&sink), count.to_string(), since], Tone::Plain)
    });
    let head = ["SINK", "WAITING", "SINCE"];
    term::print(&text_table::render(&head, rows, 0, term::stdout_paint()))?;
    Ok(Exit::Ok)
}

fn flush(args: &FlushArgs) -> Result<Exit> {
    match args.store.place(&ActorArgs::default())? {
        Place::Store(store) => flush_store(args, store),
        Place::Server(server) => wait_for_server(args, &server),
    }
}

/// A server delivers by itself: this waits until it has.
fn wait_for_server(args: &FlushArgs, server: &Remote) -> Result<Exit> {
    if !args.sinks.is_empty() {
        return usage(
            "--sink is not for a server, which delivers to its registered sinks: `stepwell sinks add` registers one",
        );
    }
    let dead = || -> Result<usize> {
        let letters = server.ask(|it| async move { it.dead_letters(1_000).await })?;
        Ok(letters.as_array().map_or(0, Vec::len))
    };
    let pending = || -> Result<Vec<(String, u64)>> {
        let rows = server.ask(|it| async move { it.outbox().await })?;
        Ok(rows.into_iter().map(|it| (it.sink, it.waiting)).collect())
    };
    let (before, first) = (dead()?, pending()?);
    let stop = interrupts(None)?.stop;
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let mut left = first.clone();
    while !left.is_empty() && Instant::now() < until && !stop.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK);
        left = pending()?;
    }
    let waited = first.iter().map(|(_, count)| count).sum();
    let given_up = dead()?.saturating_sub(before) as u64;
    tell_flushed(args.output, waited, given_up, &left)
}

fn flush_store(args: &FlushArgs, place: &StoreArgs) -> Result<Exit> {
    let mut names = args.sinks.names()?;
    args.sinks.check()?;
    let store = place.own_existing()?.patient();
    if names.is_empty() {
        names = store.sinks()?.into_iter().map(|it| it.name).collect();
    }
    if names.is_empty() {
        return usage(
            "a sink is required: --sink NAME=ADDRESS, or register one with `stepwell sinks add`",
        );
    }
    let mut waited = 0;
    for name in &names {
        waited += store.backlog(name)?.0;
    }
    let dead = dead(&*store, &names)?;
    let outlet = args.sinks.publish(&store)?;
    let stop = interrupts(None)?.stop;
    let left = outlet.empty(&*store, Duration::from_secs(args.timeout), &stop)?;
    let given_up = self::dead(&*store, &names)?.saturating_sub(dead);
    tell_flushed(args.output, waited, given_up, &left)
}

/// What came of the deliveries that waited.
fn tell_flushed(
    output: OutputFormat,
    waited: u64,
    given_up: u64,
    left: &[(String, u64)],
) -> Result<Exit> {
    let rest: u64 = left.iter().map(|(_, count)| count).sum();
    let sent = waited.saturating_sub(rest + given_up);
    let mut text = match waited {
        0 => "no pending deliveries".to_owned(),
        _ => format!("{} delivered", deliveries(sent)),
    };
    if given_up > 0 {
        text.push_str(&format!(
            ", {given_up} failed for good (`stepwell dlq list`)"
        ));
    }
    for (sink, count) in left {
        text.push_str(&format!(", {count} still pending for {sink}"));
    }
    let by_sink: Vec<Json> = left
        .iter()
        .map(|(sink, count)| json!({ "sink": sink, "waiting": count }))
        .collect();
    let json = json!({ "delivered": sent, "givenUp": given_up, "left": by_sink });
    say(output, &text, &json)?;
    Ok(match rest + given_up {
        0 => Exit::Ok,
        _ => Exit::Problems,
    })
}

/// The number of dead letters of these sinks.
fn dead(store: &dyn Store, names: &[String]) -> Result<u64> {
    let letters = store.dead_letters(usize::MAX >> 1)?;
    let ours = letters.iter().filter(|it| names.contains(&it.marker.sink));
    Ok(ours.count() as u64)
}

fn deliveries(number: u64) -> String {
    match number {
        1 => "1 delivery".to_owned(),
        _ => format!("{number} deliveries"),
    }
}

/// One line per sink with pending deliveries and the command that delivers them.
pub(crate) fn left(left: &[(String, u64)], place: &StoreArgs, durable: bool) -> Vec<String> {
    let line = |(sink, count): &(String, u64)| {
        let what = format!("{} to {sink} pending", deliveries(*count));
        match durable {
            true => format!(
                "{what}; the next `run` or `resume` on this store delivers them, or use: {}",
                how(sink, place)
            ),
            false => format!("{what} and lost, because the store was in memory"),
        }
    };
    left.iter().map(line).collect()
}

/// The command that delivers the pending deliveries of a sink.
pub(crate) fn how(sink: &str, place: &StoreArgs) -> String {
    format!("stepwell outbox flush{}{}", flag(sink), place.flag())
}
