//! `stepwell dlq` and `stepwell alerts`: dead letters (failed deliveries) and alerts.

use std::collections::{BTreeSet, HashSet};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use stepwell_engine::store::{AlertRow, DeadLetter, RunFilter, Store};
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

/// The runs of the actor's tenant.
struct Visible {
    /// Absent if the actor has no tenant and sees all runs.
    runs: Option<HashSet<String>>,
}

impl Visible {
    fn of(store: &dyn Store, who: &Actor) -> Result<Visible> {
        if who.tenant.is_none() {
            return Ok(Visible { runs: None });
        }
        let filter = RunFilter {
            tenant: who.tenant.clone(),
            limit: ALL,
            ..RunFilter::default()
        };
        let runs = store.list(&filter)?.into_iter().map(|run| run.run_id);
        Ok(Visible {
            runs: Some(runs.collect()),
        })
    }

    fn has(&self, run_id: &str) -> bool {
        self.runs.as_ref().is_none_or(|runs| runs.contains(run_id))
    }

    /// How many rows of the store must be read to show so many.
    fn to_read(&self, limit: usize) -> usize {
        match self.runs {
            None => limit,
            Some(_) => ALL,
        }
    }

    fn letters(&self, store: &dyn Store, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut letters = store.dead_letters(self.to_read(limit))?;
        letters.retain(|it| self.has(&it.marker.run_id));
        letters.truncate(limit);
        Ok(letters)
    }

    /// Alerts of these runs, and those about the store itself.
    fn alerts(&self, store: &dyn Store, limit: usize) -> Result<Vec<AlertRow>> {
        let mut alerts = store.alerts(self.to_read(limit))?;
        alerts.retain(|it| it.run_id.as_deref().is_none_or(|run_id| self.has(run_id)));
        alerts.truncate(limit);
        Ok(alerts)
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
    let visible = Visible::of(&*store, &args.actor.actor(None)?)?;
    let letters = visible.letters(&*store, args.limit)?;
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
    let letters = Visible::of(&*store, who)?.letters(&*store, ALL)?;
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
    for letter in Visible::of(&*store, who)?.letters(&*store, ALL)? {
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
    let visible = Visible::of(&*store, &args.actor.actor(None)?)?;
    let alerts = visible.alerts(&*store, args.limit)?;
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
