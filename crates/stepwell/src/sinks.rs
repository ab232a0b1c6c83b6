//! `stepwell sinks`: the sinks that the store knows. Every event of every run is delivered to them, no matter which process commits it.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use stepwell_bus::shown_address;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::store::SinkStart;

use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::runs::{Refused, say};
use crate::sink;
use crate::term::{self, Tone, one_line};
use crate::text_table;

/// Register, list and remove the sinks that get every event
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell sinks add audit webhook:https://example.com/events
  stepwell sinks add audit webhook:https://example.com/events --from beginning
  stepwell sinks add stream nats://nats.example/EVENTS?auth=nats-user
  stepwell sinks list
  stepwell sinks remove audit

A registered sink gets every event of every run, no matter who commits it: `run`, `resume`, a command such as
`runs cancel`, a program with the engine. `run`, `resume` and `outbox flush` deliver. The address is kept
in the store: readers of the store can read it. A password is never in the address of a broker: `auth` names a
secret of the process that delivers. The variable STEPWELL_SINK_SECRET of that process signs the bodies of
webhooks. docs/sinks.md lists the addresses.

Exit codes: 0 done, 1 the sink is unknown or the store cannot be used, 2 wrong usage.")]
pub(crate) struct SinksArgs {
    #[command(subcommand)]
    command: SinksCommand,
}

#[derive(Debug, Subcommand)]
enum SinksCommand {
    /// Register a sink, or change the address of a registered one
    Add {
        /// Name of the sink: letters, digits, `-`, `_` and `.`
        #[arg(value_name = "NAME")]
        name: String,
        /// Address of the sink: `webhook:https://…`, `nats://…`, `redis://…`, `kafka://…`, `amqp://…`, `snowflake://…`
        #[arg(value_name = "ADDRESS")]
        address: String,
        /// Which events the sink gets
        #[arg(long, value_enum, default_value_t = FromWord::Now)]
        from: FromWord,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// List the registered sinks and their pending deliveries
    List {
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Forget a sink and its pending deliveries
    Remove {
        /// Name of the sink, as `stepwell sinks list` shows it
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        common: CommonArgs,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FromWord {
    /// All events that are in the store, and those that follow
    Beginning,
    /// Only events that are committed from now on
    Now,
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: PlaceArgs,
}

pub(crate) fn run(args: &SinksArgs) -> Result<Exit> {
    match &args.command {
        SinksCommand::Add {
            name,
            address,
            from,
            common,
        } => add(name, address, *from, common),
        SinksCommand::List { common } => list(common),
        SinksCommand::Remove { name, common } => remove(name, common),
    }
}

fn add(name: &str, address: &str, from: FromWord, on: &CommonArgs) -> Result<Exit> {
    let now = SystemClock.now();
    let sink = sink::row(name, address, now)?;
    // The address that a sink of this name had, which is changed.
    let (marked, before) = match on.store.place(&ActorArgs::default())? {
        Place::Store(store) => {
            // Who wants every event registers the sink before the first run, and so before there is a store.
            let (open, _) = store.own_new_or_visit()?;
            let start = match from {
                FromWord::Beginning => SinkStart::Beginning,
                FromWord::Now => SinkStart::Now,
            };
            let store = open.patient();
            let mut known = store.sinks()?.into_iter();
            let before = known.find(|it| it.name == name).map(|it| it.address);
            (store.add_sink(&sink, start, now)?, before)
        }
        Place::Server(server) => {
            let all = matches!(from, FromWord::Beginning);
            let known = server.ask(|it| async move { it.sinks().await })?;
            let known: Vec<SinkLine> = serde_json::from_value(known)?;
            let before = known.into_iter().find(|it| it.name == name);
            let added = server.ask(|it| async move { it.add_sink(name, address, all).await })?;
            let marked = added["marked"].as_u64().unwrap_or_default();
            (marked, before.map(|it| it.address))
        }
    };
    let (now_at, before) = (shown_address(address), before.map(|it| shown_address(&it)));
    let registered = match before {
        Some(before) => format!(
            "{name} is changed from {before} to {now_at}, where its pending deliveries go now, too"
        ),
        None => format!("{name} is registered"),
    };
    let text = match from {
        FromWord::Beginning => format!(
            "{registered}; {marked} commits that are in the store are pending for it, and every event from now \
             on is delivered to it"
        ),
        FromWord::Now => {
            format!("{registered}; every event from now on is delivered to it")
        }
    };
    let json = json!({ "sink": name, "pending": marked });
    say(on.output, &text, &json)?;
    Ok(Exit::Ok)
}

/// How many dead letters of a sink are counted.
const MOST_COUNTED: usize = 1_000;

/// A sink in the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SinkLine {
    name: String,
    /// Without what may be a secret.
    address: String,
    since: String,
    pending: u64,
    /// A server of an earlier version does not tell.
    #[serde(default)]
    dead_letters: usize,
    /// Why nothing arrives there.
    problem: Option<Json>,
}

fn list(on: &CommonArgs) -> Result<Exit> {
    let rows: Vec<SinkLine> = match on.store.place(&ActorArgs::default())? {
        Place::Store(store) => {
            let store = store.read()?;
            let mut rows = Vec::new();
            for sink in store.sinks()? {
                let (pending, _) = store.backlog(&sink.name)?;
                rows.push(SinkLine {
                    address: shown_address(&sink.address),
                    since: sink.since.to_rfc3339(),
                    problem: store.delivery_failure(&sink.name)?.map(|it| {
                        json!({ "message": it.why, "attempts": it.attempts, "nextAt": it.due_at.to_rfc3339() })
                    }),
                    dead_letters: store.count_dead_letters(&sink.name, MOST_COUNTED)?,
                    name: sink.name,
                    pending,
                });
            }
            rows
        }
        Place::Server(server) => {
            serde_json::from_value(server.ask(|it| async move { it.sinks().await })?)?
        }
    };
    if on.output == OutputFormat::Json {
        let all: Vec<Json> = rows
            .iter()
            .map(|it| {
                json!({ "sink": it.name, "address": it.address, "since": it.since, "pending": it.pending,
                    "deadLetters": it.dead_letters, "problem": it.problem })
            })
            .collect();
        say(on.output, "", &json!({ "sinks": all }))?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        term::print("no registered sinks\n")?;
        return Ok(Exit::Ok);
    }
    let rows = rows.into_iter().map(|it| {
        let row = [
            one_line(&it.name),
            one_line(&it.address),
            it.pending.to_string(),
            it.dead_letters.to_string(),
            it.since,
            one_line(
                it.problem
                    .as_ref()
                    .and_then(|it| it["message"].as_str())
                    .unwrap_or("-"),
            ),
        ];
        (row, Tone::Plain)
    });
    let head = [
        "SINK",
        "ADDRESS",
        "PENDING",
        "DEAD LETTERS",
        "SINCE",
        "PROBLEM",
    ];
    term::print(&text_table::render(&head, rows, 0, term::stdout_paint()))?;
    Ok(Exit::Ok)
}

fn remove(name: &str, on: &CommonArgs) -> Result<Exit> {
    let dropped = match on.store.place(&ActorArgs::default())? {
        Place::Store(store) => store.own_or_visit()?.0.patient().remove_sink(name)?,
        Place::Server(server) => match server.ask(|it| async move { it.remove_sink(name).await }) {
            Err(error) if error.code() == "SINK_UNKNOWN" => None,
            removed => removed?["dropped"].as_u64(),
        },
    };
    let Some(dropped) = dropped else {
        let what = format!("there is no registered sink {name}; `stepwell sinks list` lists them");
        return Err(Refused(what).into());
    };
    let text = match dropped {
        0 => format!("{name} is removed"),
        _ => format!("{name} is removed, and {dropped} pending deliveries to it"),
    };
    say(
        on.output,
        &text,
        &json!({ "sink": name, "dropped": dropped }),
    )?;
    Ok(Exit::Ok)
}
