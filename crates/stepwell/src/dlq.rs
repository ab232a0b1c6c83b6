//! `stepwell dlq` and `stepwell alerts`: dead letters (failed deliveries) and alerts.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use stepwell_engine::store::NoticeFilter;
use stepwell_kernel::command::Actor;

use crate::actor::{self, ActorArgs};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::runs::say;
use crate::store::StoreArgs;
use crate::term::{self, Tone, one_line};
use crate::{outbox, text_table, usage};

/// No limit, for databases whose numbers have a sign.
const ALL: usize = usize::MAX >> 1;

/// List and redrive dead letters (deliveries that failed for good)
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell dlq list
  stepwell dlq redrive 17                     put the dead letter back into the outbox
  stepwell dlq redrive --all

Exit codes: 0 done, 1 dead letter not found or the store cannot be used, 2 wrong usage.")]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    /// List dead letters, oldest first
    List(ListArgs),
    /// Put dead letters back into the outbox
    Redrive {
        /// Id of the dead letter
        #[arg(value_name = "ID", conflicts_with = "all")]
        id: Option<i64>,
        /// Redrive all dead letters
        #[arg(long)]
        all: bool,
        /// Output format
        #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
        output: OutputFormat,
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        actor: ActorArgs,
    },
}

/// List alerts
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
    /// List alerts, newest first
    List(ListArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    actor: ActorArgs,
}

/// What the actor may see: the runs of the actor's tenant, and alerts about the store itself.
fn visible(who: &Actor, limit: usize) -> NoticeFilter {
    NoticeFilter {
        tenant: who.tenant.clone(),
        ..NoticeFilter::all(limit)
    }
}

pub(crate) fn run(args: &DlqArgs) -> Result<Exit> {
    match &args.command {
        DlqCommand::List(args) => list(args),
        DlqCommand::Redrive {
            id,
            all,
            output,
            store,
            actor,
        } => {
            let who = actor.actor(None)?;
            actor::may_act(&who, "redriving dead letters")?;
            match (id, all) {
                (Some(id), false) => redrive(*id, *output, store, &who),
                (None, true) => redrive_all(*output, store, &who),
                _ => usage("give the id of a dead letter, or --all"),
            }
        }
    }
}

fn list(args: &ListArgs) -> Result<Exit> {
    let store = args.store.read()?;
    let letters = store.list_dead_letters(&visible(&args.actor.actor(None)?, args.limit))?;
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
    let head = ["ID", "SINK", "RUN", "FIRST SEQ", "ATTEMPTS", "REASON"];
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
    term::print(&text_table::render(&head, rows, 5, term::stdout_paint()))?;
    Ok(Exit::Ok)
}

fn redrive(id: i64, output: OutputFormat, place: &StoreArgs, who: &Actor) -> Result<Exit> {
    let store = place.own_existing()?.patient();
    let letters = store.list_dead_letters(&NoticeFilter {
        past: Some(id.saturating_sub(1)),
        ..visible(who, 1)
    })?;
    let letter = letters.iter().find(|letter| letter.no == id);
    let sinks: BTreeSet<String> = letter
        .map(|it| it.marker.sink.clone())
        .into_iter()
        .collect();
    if letter.is_none() || !store.redrive(id)? {
        anyhow::bail!("dead letter {id} was not found; `stepwell dlq list` shows all dead letters");
    }
    let text = format!(
        "dead letter {id} is in the outbox again{}",
        flush(&sinks, place)
    );
    say(output, &text, &json!({ "redriven": [id] }))?;
    Ok(Exit::Ok)
}

fn redrive_all(output: OutputFormat, place: &StoreArgs, who: &Actor) -> Result<Exit> {
    let store = place.own_existing()?.patient();
    let mut done = Vec::new();
    let mut sinks = BTreeSet::new();
    for letter in store.list_dead_letters(&visible(who, ALL))? {
        store.redrive(letter.no)?;
        done.push(letter.no);
        sinks.insert(letter.marker.sink);
    }
    let letters = term::count(done.len(), "dead letter");
    let text = format!("{letters} put back into the outbox{}", flush(&sinks, place));
    say(output, &text, &json!({ "redriven": done }))?;
    Ok(Exit::Ok)
}

/// The commands that deliver the outbox. `dlq` itself delivers nothing.
fn flush(sinks: &BTreeSet<String>, place: &StoreArgs) -> String {
    let commands: Vec<String> = sinks.iter().map(|sink| outbox::how(sink, place)).collect();
    match commands.is_empty() {
        true => String::new(),
        false => format!("; deliver with {}", commands.join(" and ")),
    }
}

pub(crate) fn alerts(args: &AlertsArgs) -> Result<Exit> {
    let AlertsCommand::List(args) = &args.command;
    let store = args.store.read()?;
    let alerts = store.list_alerts(&visible(&args.actor.actor(None)?, args.limit))?;
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
    term::print(&text_table::render(&head, rows, 1, term::stdout_paint()))?;
    Ok(Exit::Ok)
}
