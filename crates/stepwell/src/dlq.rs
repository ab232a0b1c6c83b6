//! `stepwell dlq` and `stepwell alerts`: dead letters (failed deliveries) and alerts.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use stepwell_engine::store::{AlertRow, DeadLetter, NoticeFilter};
use stepwell_kernel::command::Actor;

use crate::actor::{self, ActorArgs};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::remote::Remote;
use crate::runs::say;
use crate::store::StoreArgs;
use crate::term::{self, Tone, one_line};
use crate::{outbox, text_table, usage};

/// No limit, for databases whose numbers have a sign.
const ALL: usize = usize::MAX >> 1;
/// The most rows of an answer of a server.
const SERVER_ROWS: usize = 1_000;

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
        store: PlaceArgs,
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
    store: PlaceArgs,
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
            let wanted = match (id, all) {
                (Some(id), false) => Some(*id),
                (None, true) => None,
                _ => return usage("give the id of a dead letter, or --all"),
            };
            let done = match store.place(actor)? {
                Place::Store(store) => redrive_in(store, &who, wanted)?,
                Place::Server(server) => redrive_on(&server, wanted)?,
            };
            tell_redriven(wanted, &done, *output)
        }
    }
}

/// A dead letter in the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LetterRow {
    no: i64,
    sink: String,
    run_id: String,
    first_seq: u64,
    attempts: u32,
    reason: String,
    at: String,
}

impl From<DeadLetter> for LetterRow {
    fn from(letter: DeadLetter) -> LetterRow {
        LetterRow {
            no: letter.no,
            sink: letter.marker.sink,
            run_id: letter.marker.run_id,
            first_seq: letter.marker.first,
            attempts: letter.marker.attempts,
            reason: letter.why,
            at: letter.at.to_rfc3339(),
        }
    }
}

fn list(args: &ListArgs) -> Result<Exit> {
    let letters: Vec<LetterRow> = match args.store.place(&args.actor)? {
        Place::Store(store) => {
            let filter = visible(&args.actor.actor(None)?, args.limit);
            let letters = store.read()?.list_dead_letters(&filter)?;
            letters.into_iter().map(LetterRow::from).collect()
        }
        Place::Server(server) => letters_of(&server, args.limit)?,
    };
    if args.output == OutputFormat::Json {
        let all: Vec<Json> = letters
            .iter()
            .map(|letter| {
                json!({ "id": letter.no, "sink": letter.sink, "runId": letter.run_id,
                    "firstSeq": letter.first_seq, "attempts": letter.attempts,
                    "why": letter.reason, "at": letter.at })
            })
            .collect();
        say(args.output, "", &json!({ "letters": all }))?;
        return Ok(Exit::Ok);
    }
    if letters.is_empty() {
        term::print(&args.actor.none_of("dead letters")?)?;
        return Ok(Exit::Ok);
    }
    let head = ["ID", "SINK", "RUN", "FIRST SEQ", "ATTEMPTS", "REASON"];
    let rows = letters.iter().map(|letter| {
        let cells = [
            letter.no.to_string(),
            one_line(&letter.sink),
            one_line(&letter.run_id),
            letter.first_seq.to_string(),
            letter.attempts.to_string(),
            one_line(&letter.reason),
        ];
        (cells, Tone::Plain)
    });
    term::print(&text_table::render(&head, rows, 5, term::stdout_paint()))?;
    Ok(Exit::Ok)
}

fn letters_of(server: &Remote, limit: usize) -> Result<Vec<LetterRow>> {
    let limit = limit.clamp(1, SERVER_ROWS);
    let letters = server.ask(|it| async move { it.dead_letters(limit).await })?;
    Ok(serde_json::from_value(letters)?)
}

/// What was put back into the outbox, and the commands that deliver it.
#[derive(Default)]
struct Redriven {
    done: Vec<i64>,
    commands: Vec<String>,
}

/// One dead letter, or all of them. `dlq` itself delivers nothing.
fn redrive_in(place: &StoreArgs, who: &Actor, wanted: Option<i64>) -> Result<Redriven> {
    let store = place.own_existing()?.patient();
    let filter = match wanted {
        Some(id) => NoticeFilter {
            past: Some(id.saturating_sub(1)),
            ..visible(who, 1)
        },
        None => visible(who, ALL),
    };
    let mut letters = store.list_dead_letters(&filter)?;
    letters.retain(|letter| wanted.is_none_or(|id| letter.no == id));
    let mut sinks = BTreeSet::new();
    let mut done = Vec::new();
    for letter in letters {
        if store.redrive(letter.no)? {
            done.push(letter.no);
            sinks.insert(letter.marker.sink);
        }
    }
    let commands = sinks.iter().map(|sink| outbox::how(sink, place));
    Ok(Redriven {
        done,
        commands: commands.collect(),
    })
}

/// The server delivers by itself what was put back.
fn redrive_on(server: &Remote, wanted: Option<i64>) -> Result<Redriven> {
    let ids: Vec<i64> = match wanted {
        Some(id) => vec![id],
        None => letters_of(server, ALL)?.iter().map(|it| it.no).collect(),
    };
    let mut redriven = Redriven::default();
    for id in ids {
        match server.tell(|it| async move { it.redrive(id).await }) {
            Err(error) if error.status() == Some(404) => {}
            done => {
                done?;
                redriven.done.push(id);
            }
        }
    }
    Ok(redriven)
}

fn tell_redriven(wanted: Option<i64>, redriven: &Redriven, output: OutputFormat) -> Result<Exit> {
    let done = &redriven.done;
    let flush = match redriven.commands.is_empty() {
        true => String::new(),
        false => format!("; deliver with {}", redriven.commands.join(" and ")),
    };
    let text = match wanted {
        Some(id) if done.is_empty() => {
            anyhow::bail!(
                "dead letter {id} was not found; `stepwell dlq list` shows all dead letters"
            )
        }
        Some(id) => format!("dead letter {id} is in the outbox again{flush}"),
        None => {
            let letters = term::count(done.len(), "dead letter");
            format!("{letters} put back into the outbox{flush}")
        }
    };
    say(output, &text, &json!({ "redriven": done }))?;
    Ok(Exit::Ok)
}

/// An alert in the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AlertLine {
    no: i64,
    run_id: Option<String>,
    code: String,
    priority: String,
    message: String,
    at: String,
}

impl From<AlertRow> for AlertLine {
    fn from(alert: AlertRow) -> AlertLine {
        AlertLine {
            no: alert.no,
            run_id: alert.run_id,
            code: alert.code,
            priority: format!("{:?}", alert.priority),
            message: alert.message,
            at: alert.at.to_rfc3339(),
        }
    }
}

pub(crate) fn alerts(args: &AlertsArgs) -> Result<Exit> {
    let AlertsCommand::List(args) = &args.command;
    let alerts: Vec<AlertLine> = match args.store.place(&args.actor)? {
        Place::Store(store) => {
            let filter = visible(&args.actor.actor(None)?, args.limit);
            let alerts = store.read()?.list_alerts(&filter)?;
            alerts.into_iter().map(AlertLine::from).collect()
        }
        Place::Server(server) => {
            let limit = args.limit.clamp(1, SERVER_ROWS);
            let alerts = server.ask(|it| async move { it.alerts(limit).await })?;
            serde_json::from_value(alerts)?
        }
    };
    if args.output == OutputFormat::Json {
        let all: Vec<Json> = alerts
            .iter()
            .map(|alert| {
                json!({ "id": alert.no, "runId": alert.run_id, "code": alert.code,
                    "priority": alert.priority, "message": alert.message, "at": alert.at })
            })
            .collect();
        say(args.output, "", &json!({ "alerts": all }))?;
        return Ok(Exit::Ok);
    }
    if alerts.is_empty() {
        term::print(&args.actor.none_of("alerts")?)?;
        return Ok(Exit::Ok);
    }
    let head = ["AT", "PRIORITY", "CODE", "RUN", "MESSAGE"];
    let rows = alerts.iter().map(|alert| {
        let cells = [
            alert.at.clone(),
            alert.priority.clone(),
            one_line(&alert.code),
            one_line(alert.run_id.as_deref().unwrap_or("-")),
            one_line(&alert.message),
        ];
        (cells, Tone::Warn)
    });
    term::print(&text_table::render(&head, rows, 1, term::stdout_paint()))?;
    Ok(Exit::Ok)
}
