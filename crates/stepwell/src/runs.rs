//! `stepwell runs`: shows runs and sends commands to runs. Works on every store, also while another
//! process owns it.

mod complete;
mod events;
mod evidence;
mod list;
pub(crate) mod logs;
mod send;
mod server_send;
mod show;
mod watch;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Map, Value as Json, json};
use stepwell_engine::coordinator::Message;
use stepwell_engine::store::{Delivered, OutsideEvent, TRIGGER_KEY};
use stepwell_engine::{Error, run_id_for};
use stepwell_kernel::command::{Actor, Command, EarlierResult, Role};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::signal::SignalKind;

use crate::actor::{self, ActorArgs};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::{term, usage};
use send::Sent;
use stepwell_engine::read::RunSource as _;
use stepwell_views::{RunView, may_see};

pub(crate) use send::Refused;
pub(crate) use server_send::send as send_to_server;

/// Show runs and send commands to runs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs list --open
  stepwell runs show RUN                      the steps of a run and what the run waits for
  stepwell runs events RUN --follow           the event log as JSON lines
  stepwell runs watch RUN                     the snapshot of the contract, whenever the run changes
  stepwell runs evidence RUN                  every attempt and every end, for an auditor
  stepwell runs logs RUN fetch                the output of a step
  stepwell runs approve RUN
  stepwell runs pause RUN
  stepwell runs cancel RUN --compensate --reason 'wrong customer'
  stepwell runs retry RUN --step charge-card
  stepwell runs complete RUN sign-off --outcome succeeded --as ada
  stepwell runs signal RUN UPDATE_PARAMS --payload '{\"params\": {\"limit\": 5}}' --reason why
  stepwell runs signal --event payment.received --id evt-17 --key order-42
  stepwell runs signal --event contract.signed --id evt-18     start the runs that it triggers

Reading works while another process uses the store. A command is sent to the process that owns the
SQLite store, or that owns the run on PostgreSQL, and this process answers. If there is no owner, the
command is decided here. No step is executed here: `stepwell resume RUN` continues a run.

Exit codes: 0 done, 1 refused, run not found, or the store cannot be used, 2 wrong usage, 6 the owner of
the run did not answer in time: the command stays in its mailbox and may still be executed.")]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Events(events::EventsArgs),
    Evidence(evidence::EvidenceArgs),
    Logs(logs::LogsArgs),
    Watch(watch::WatchArgs),
    /// Approve a run whose definition requires an approval before the start
    Approve(RunTargetArgs),
    /// Pause a run: start no new work; work in flight continues to its end
    Pause(RunTargetArgs),
    /// Resume a paused run
    Resume(RunTargetArgs),
    /// Cancel a run: the run ends without its remaining steps
    Cancel {
        /// Undo the completed steps
        #[arg(long)]
        compensate: bool,
        #[command(flatten)]
        on: RunTargetArgs,
    },
    /// Repeat an ended run as a new run, or retry a failed step with --step
    Retry {
        /// Retry only this step; the step id as `stepwell runs show` lists it
        #[arg(long, value_name = "STEP")]
        step: Option<String>,
        #[command(flatten)]
        on: RunTargetArgs,
    },
    /// Skip a step that has not ended; the steps that depend on it can start
    Skip {
        #[command(flatten)]
        on: RunTargetArgs,
        /// Step id, as `stepwell runs show` lists it
        #[arg(value_name = "STEP")]
        step: String,
    },
    Complete(complete::CompleteArgs),
    /// Send a signal to a run, or deliver an external event
    Signal(SignalArgs),
}

/// A run and the options of the sender.
#[derive(Debug, Args)]
struct RunTargetArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    by: SenderArgs,
}

/// Options of commands that are sent to a run.
#[derive(Debug, Args)]
struct SenderArgs {
    #[command(flatten)]
    actor: ActorArgs,
    /// Reason, for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Maximum time in seconds to wait for the owner of the run
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: PlaceArgs,
}

#[derive(Debug, Args)]
struct SignalArgs {
    /// Run id, as `stepwell runs list` shows it; an event without RUN and --key starts runs that wait for it with
    /// `run --idle`
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[arg(value_name = "TYPE", help = signal_help())]
    signal: Option<String>,
    /// Payload of the signal or event, as JSON
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Type of an external event, instead of a signal
    #[arg(long, value_name = "TYPE", conflicts_with = "signal")]
    event: Option<String>,
    /// Id of the signal or event; a repeated id is processed once
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Deliver to the run that waits for this key (the business key of a linear run, else a run id)
    #[arg(long, value_name = "KEY", requires = "event", conflicts_with = "run")]
    key: Option<String>,
    #[command(flatten)]
    by: SenderArgs,
}

fn signal_help() -> String {
    let (people, others): (Vec<_>, Vec<_>) = SignalKind::ALL
        .iter()
        .partition(|it| it.role() <= Role::Admin);
    let names = |kinds: Vec<&SignalKind>| {
        let names: Vec<&str> = kinds.into_iter().map(|it| it.name()).collect();
        names.join(", ")
    };
    format!(
        "Signal type: {}; {} is for the engine and for programs with the role system, and is refused from people",
        names(people),
        names(others)
    )
}

impl SenderArgs {
    fn actor(&self) -> Result<Actor> {
        self.actor.actor(None)
    }

    fn signal(&self, id: Option<&str>, signal: &str, payload: Json) -> Result<Command> {
        let fresh = || format!("cli-{}", uuid::Uuid::now_v7());
        Ok(Command::Signal {
            signal_id: id.map_or_else(fresh, str::to_owned),
            signal: signal.to_owned(),
            payload,
            reason: self.reason.clone(),
            actor: self.actor()?,
        })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

pub(crate) fn run(args: &RunsArgs) -> Result<Exit> {
    match &args.command {
        RunsCommand::List(args) => list::run(args),
        RunsCommand::Show(args) => show::run(args),
        RunsCommand::Events(args) => events::run(args),
        RunsCommand::Evidence(args) => evidence::run(args),
        RunsCommand::Logs(args) => logs::run(args),
        RunsCommand::Watch(args) => watch::run(args),
        RunsCommand::Approve(on) => approve(on),
        RunsCommand::Pause(on) => signal(on, "PAUSE", json!({}), "is paused"),
        RunsCommand::Resume(on) => signal(on, "RESUME", json!({}), "is resumed"),
        RunsCommand::Cancel { compensate, on } => cancel(on, *compensate),
        RunsCommand::Retry { step, on } => match step {
            Some(step) => signal(
                on,
                "RETRY_STEP",
                json!({ "stepId": step }),
                &format!("retries the step {step}"),
            ),
            None => signal(on, "RETRY_RUN", json!({}), "is repeated"),
        },
        RunsCommand::Skip { on, step } => {
            let done = format!("continues without the step {step}");
            signal(on, "SKIP_STEP", json!({ "stepId": step }), &done)
        }
        RunsCommand::Complete(args) => complete::run(args),
        RunsCommand::Signal(args) => from_outside(args),
    }
}

fn signal(on: &RunTargetArgs, name: &str, payload: Json, done: &str) -> Result<Exit> {
    let command = on.by.signal(None, name, payload)?;
    tell(&on.by, &on.run, name, done, command)
}

fn approve(on: &RunTargetArgs) -> Result<Exit> {
    let actor = on.by.actor()?;
    let command = Command::ApproveRun {
        actor: actor.clone(),
        reason: on.by.reason.clone(),
    };
    let sent = send(&on.by, &on.run, command, |view| {
        may_see(&actor, view.state.context())?;
        if view.plan.policy().needs_approval {
            return Ok(());
        }
        let what = "the definition of the run requires no approval";
        Err(Rejection::new(Code::InvalidTransition, what).into())
    })?;
    answer(&on.by, &on.run, "APPROVE", "is approved", &sent, None)
}

fn cancel(on: &RunTargetArgs, compensate: bool) -> Result<Exit> {
    let command = Command::CancelRun {
        actor: on.by.actor()?,
        reason: on.by.reason.clone(),
        compensate,
        keep_undo: false,
    };
    tell(&on.by, &on.run, "CANCEL", "is being cancelled", command)
}

fn from_outside(args: &SignalArgs) -> Result<Exit> {
    let payload = match &args.payload {
        Some(text) => read_json("--payload", text)?,
        None => Json::Object(Map::new()),
    };
    match (&args.run, &args.signal, &args.event) {
        (Some(run), Some(signal), None) => {
            let name = signal.to_uppercase();
            let command = args.by.signal(args.id.as_deref(), &name, payload)?;
            tell(&args.by, run, &name, "received the signal", command)
        }
        (run, None, Some(event_type)) => {
            let Some(event_id) = args.id.clone() else {
                return usage(
                    "an event needs --id ID, so that a repeated delivery is processed once",
                );
            };
            let command = Command::DeliverEvent {
                event_id: event_id.clone(),
                event_type: event_type.clone(),
                payload: payload.clone(),
            };
            // An event may come before its run: then it is kept under the id of the run.
            let early = match run {
                Some(run) => Some(run).filter(|run| !has_run(&args.by, run).unwrap_or(true)),
                None => None,
            };
            let key = args.key.as_ref().or(early).map(String::as_str);
            if let (Some(run), None) = (run, key) {
                return tell(&args.by, run, event_type, "received the event", command);
            }
            let event = OutsideEvent {
                tenant: actor::context_of(&args.by.actor()?).tenant_id,
                id: event_id,
                event_type: event_type.clone(),
                // Without a receiver it is for everyone: it starts runs of the definitions that it triggers.
                key: key.unwrap_or(TRIGGER_KEY).to_owned(),
                payload: payload.to_string(),
                mail: Message::from(command).body(),
            };
            deliver(&args.by, &event)
        }
        _ => usage("give RUN and a signal TYPE, or --event TYPE with --id ID"),
    }
}

fn has_run(by: &SenderArgs, run: &str) -> Result<bool> {
    match by.store.place(&by.actor)? {
        Place::Store(store) => send::has_run(store, run),
        Place::Server(server) => Ok(server.find_run(run)?.is_some()),
    }
}

fn deliver(by: &SenderArgs, event: &OutsideEvent) -> Result<Exit> {
    actor::may_act(&by.actor()?, "delivering an event")?;
    Command::check_event(&event.id, &event.event_type).map_err(Error::from)?;
    let (delivered, to) = match by.store.place(&by.actor)? {
        Place::Store(store) => send::deliver(store, event)?,
        Place::Server(server) => server_send::deliver(&server, event)?,
    };
    let (word, text) = match (delivered, &to) {
        (Delivered::ToRun(_), Some(run)) => ("TO_RUN", format!("{run} received the event")),
        (Delivered::ToRun(_), None) => ("TO_RUN", "a run received the event".to_owned()),
        (Delivered::Kept, _) if event.key == TRIGGER_KEY => (
            "KEPT",
            "the event is kept; it starts runs of the definitions that it triggers, where `stepwell run --idle` waits"
                .to_owned(),
        ),
        (Delivered::Kept, Some(run)) => (
            "KEPT",
            format!("{run} waited for the event and ended before it came; the event is kept for the next run that waits for it"),
        ),
        (Delivered::Kept, None) => (
            "KEPT",
            "no run waits for the event yet; the event is kept".to_owned(),
        ),
        (Delivered::Again, _) => (
            "AGAIN",
            "an event with this id is known; it is already stored".to_owned(),
        ),
    };
    let json = json!({ "eventId": event.id, "delivered": word, "runId": to });
    say(by.output, &text, &json)?;
    Ok(Exit::Ok)
}

/// Sends a command to a run: to the server, or to who can decide it on the store after a look at the run.
fn send(
    by: &SenderArgs,
    run: &str,
    command: Command,
    may: impl FnOnce(&RunView) -> Result<(), Error>,
) -> Result<Sent> {
    match by.store.place(&by.actor)? {
        Place::Server(server) => server_send::send(&server, run, &command),
        Place::Store(store) => send::send(store, run, by.patience(), |_, view| {
            may(view)?;
            Ok(command)
        }),
    }
}

fn tell(by: &SenderArgs, run: &str, name: &str, done: &str, command: Command) -> Result<Exit> {
    let mut signal_id = None;
    if let Command::Signal { signal_id: id, .. } = &command {
        signal_id = Some(id.clone());
    }
    let who = by.actor()?;
    let is_event = matches!(command, Command::DeliverEvent { .. });
    let sent = send(by, run, command, |view| {
        if is_event {
            may_see(&who, view.state.context())?;
            actor::may_act(&who, "delivering an event")?;
        }
        Ok(())
    })?;
    answer(by, run, name, done, &sent, signal_id.as_deref())
}

fn answer(
    by: &SenderArgs,
    run: &str,
    name: &str,
    done: &str,
    sent: &Sent,
    signal_id: Option<&str>,
) -> Result<Exit> {
    // The id of the new run is derived from the id of the signal.
    let repeated = signal_id
        .filter(|_| name == "RETRY_RUN" && *sent != Sent::Unanswered)
        .map(|id| run_id_for(&format!("{run}|RETRY_RUN|{id}")));
    let text = match (sent, &repeated) {
        (Sent::Unanswered, _) => format!(
            "{run}: the owner of the run did not answer within {} s; the command is in its mailbox \
             and may still be executed (check with `stepwell runs show {run}`)",
            by.timeout
        ),
        (_, Some(repeated)) => format!("{run} is repeated as {repeated}"),
        (Sent::Before(EarlierResult::Event), None) => {
            format!("{run}: an event with this id is known; it was received before")
        }
        (Sent::Before(EarlierResult::SignalAccepted), None) => {
            format!("{run}: a signal with this id is known; it was accepted before")
        }
        (Sent::Before(_), None) => format!("{run}: the command was already executed before"),
        (Sent::Done, None) => format!("{run} {done}"),
    };
    let word = match sent {
        Sent::Done => "DONE",
        Sent::Before(_) => "BEFORE",
        Sent::Unanswered => "UNANSWERED",
    };
    let json = json!({ "runId": run, "command": name, "answer": word, "signalId": signal_id,
        "repeatedAs": repeated });
    say(by.output, &text, &json)?;
    Ok(match sent {
        Sent::Unanswered => Exit::NoAnswer,
        Sent::Done | Sent::Before(_) => Exit::Ok,
    })
}

/// Prints one message as text or as JSON.
pub(crate) fn say(output: OutputFormat, text: &str, json: &Json) -> Result<()> {
    let text = match output {
        OutputFormat::Human => term::one_line(text),
        OutputFormat::Json => serde_json::to_string_pretty(json)?,
    };
    term::print(&format!("{text}\n"))?;
    Ok(())
}

fn read_json(flag: &str, text: &str) -> Result<Json> {
    let read = serde_json::from_str(text);
    match read.with_context(|| format!("{flag} is not valid JSON")) {
        Ok(json) => Ok(json),
        Err(error) => usage(format!("{error:#}")),
    }
}
