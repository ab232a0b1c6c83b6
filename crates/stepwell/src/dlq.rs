//! `stepwell dlq` and `stepwell alerts`: what could not be delivered, and what someone must be told.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::runs::say;
use crate::store::StoreArgs;
use crate::term::{self, Tone, one_line};
use crate::{outbox, usage};

/// How many dead letters are read at a time.
const PAGE: usize = 1_000;

/// Deliveries that were given up
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell dlq list
  stepwell dlq redrive 17                     deliver it once more
  stepwell dlq redrive --all

Exit codes: 0 done, 1 there is no such letter or the store cannot be used, 2 wrong usage.")]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    /// Deliveries that were given up, oldest first
    List(ListArgs),
    /// Put one, or all, back into the outbox
    Redrive {
        /// Its number
        #[arg(value_name = "ID", conflicts_with = "all")]
        id: Option<i64>,
        /// All of them
        #[arg(long)]
        all: bool,
        /// How to print the answer
        #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
        output: OutputFormat,
        #[command(flatten)]
        store: StoreArgs,
    },
}

/// What someone must be told
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell alerts list
  stepwell alerts list --limit 5 -o json

Exit codes: 0 done, 1 the store cannot be used, 2 wrong usage.")]
pub(crate) struct AlertsArgs {
    #[command(subcommand)]
    command: AlertsCommand,
}

#[derive(Debug, Subcommand)]
enum AlertsCommand {
    /// Alerts, newest first
    List(ListArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &DlqArgs) -> Result<Exit> {
    match &args.command {
        DlqCommand::List(args) => list(args),
        DlqCommand::Redrive {
            id,
            all,
            output,
            store,
        } => match (id, all) {
            (Some(id), false) => redrive(*id, *output, store),
            (None, true) => redrive_all(*output, store),
            _ => usage("name the letter's number, or --all"),
        },
    }
}

fn list(args: &ListArgs) -> Result<Exit> {
    let letters = args.store.read()?.dead_letters(args.limit)?;
    if args.output == OutputFormat::Json {
        let all: Vec<Json> = letters
            .iter()
            .map(|letter| {
                json!({ "id": letter.no, "sink": letter.marker.sink, "runId": letter.marker.run_id,
                    "firstSeq": letter.marker.first, "attempts": letter.marker.attempts,
                    "why": letter.why, "at": letter.at.to_rfc3339() })
            })
            .collect();
        say(args.output, "", &json!({ "letters": all }))?;
        return Ok(Exit::Ok);
    }
    if letters.is_empty() {
        term::print("no dead letters\n")?;
        return Ok(Exit::Ok);
    }
    let head = ["ID", "SINK", "RUN", "FROM", "ATTEMPTS", "WHY"];
    let rows = letters.iter().map(|letter| {
        let cells = [
            letter.no.to_string(),
            one_line(&letter.marker.sink),
            one_line(&letter.marker.run_id),
            letter.marker.first.to_string(),
            letter.marker.attempts.to_string(),
            one_line(&letter.why),
        ];
        (cells, Tone::Plain)
    });
    term::print(&term::table(head, rows.collect(), 5, term::stdout_paint()))?;
    Ok(Exit::Ok)
}

fn redrive(id: i64, output: OutputFormat, place: &StoreArgs) -> Result<Exit> {
    let store = place.own_existing()?;
    let letters = store.dead_letters(usize::MAX >> 1)?;
    let letter = letters.iter().find(|letter| letter.no == id);
    let sinks: BTreeSet<String> = letter
        .map(|it| it.marker.sink.clone())
        .into_iter()
        .collect();
    if !store.redrive(id)? {
        anyhow::bail!("there is no dead letter {id}; `stepwell dlq list` has those that there are");
    }
    let text = format!("{id} is in the outbox again{}", flush(&sinks, place));
    say(output, &text, &json!({ "redriven": [id] }))?;
    Ok(Exit::Ok)
}

fn redrive_all(output: OutputFormat, place: &StoreArgs) -> Result<Exit> {
    let store = place.own_existing()?;
    let mut done = Vec::new();
    let mut sinks = BTreeSet::new();
    loop {
        let letters = store.dead_letters(PAGE)?;
        if letters.is_empty() {
            break;
        }
        for letter in letters {
            store.redrive(letter.no)?;
            done.push(letter.no);
            sinks.insert(letter.marker.sink);
        }
    }
    let letters = term::count(done.len(), "letter");
    let text = format!("{letters} in the outbox again{}", flush(&sinks, place));
    say(output, &text, &json!({ "redriven": done }))?;
    Ok(Exit::Ok)
}

/// Nobody publishes here: how what is in the outbox gets out of it.
fn flush(sinks: &BTreeSet<String>, place: &StoreArgs) -> String {
    let commands: Vec<String> = sinks.iter().map(|sink| outbox::how(sink, place)).collect();
    match commands.is_empty() {
        true => String::new(),
        false => format!("; it goes out with {}", commands.join(" and ")),
    }
}

pub(crate) fn alerts(args: &AlertsArgs) -> Result<Exit> {
    let AlertsCommand::List(args) = &args.command;
    let alerts = args.store.read()?.alerts(args.limit)?;
    if args.output == OutputFormat::Json {
        let all: Vec<Json> = alerts
            .iter()
            .map(|alert| {
                json!({ "id": alert.no, "runId": alert.run_id, "code": alert.code,
                    "priority": format!("{:?}", alert.priority), "message": alert.message,
                    "at": alert.at.to_rfc3339() })
            })
            .collect();
        say(args.output, "", &json!({ "alerts": all }))?;
        return Ok(Exit::Ok);
    }
    if alerts.is_empty() {
        term::print("no alerts\n")?;
        return Ok(Exit::Ok);
    }
    let head = ["AT", "PRIORITY", "CODE", "RUN", "MESSAGE"];
    let rows = alerts.iter().map(|alert| {
        let cells = [
            alert.at.to_rfc3339(),
            format!("{:?}", alert.priority),
            one_line(&alert.code),
            one_line(alert.run_id.as_deref().unwrap_or("-")),
            one_line(&alert.message),
        ];
        (cells, Tone::Warn)
    });
    term::print(&term::table(head, rows.collect(), 1, term::stdout_paint()))?;
    Ok(Exit::Ok)
}
