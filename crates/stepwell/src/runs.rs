//! `stepwell runs`: shows runs and sends commands to runs. Works on every store, also while another
//! process owns it.

mod events;
mod list;
pub(crate) mod logs;
mod send;
mod show;
mod why;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value as Json, json};
use stepwell_engine::coordinator::Message;
use stepwell_engine::store::{Delivered, OutsideEvent};
use stepwell_engine::{Error, run_id_for};
use stepwell_kernel::command::{Actor, Command, ManualOutcome, Role};
use stepwell_kernel::decide::open_token;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::rejection::{Code, Rejection};

use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::store::StoreArgs;
use crate::{term, usage};
use send::Sent;

pub(crate) use send::Refused;
pub(crate) use why::waits_for_someone;

/// Show runs and send commands to runs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs list --open
  stepwell runs show RUN                      the steps of a run and what the run waits for
  stepwell runs events RUN --follow           the event log as JSON lines
  stepwell runs logs RUN fetch                the output of a step
  stepwell runs approve RUN
  stepwell runs pause RUN
  stepwell runs cancel RUN --compensate --reason 'wrong customer'
  stepwell runs retry RUN --step charge-card
  stepwell runs complete RUN sign-off --outcome succeeded
  stepwell runs signal RUN UPDATE_PARAMS --payload '{\"params\": {\"limit\": 5}}' --reason why
  stepwell runs signal --event payment.received --id evt-17 --key order-42

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
    Logs(logs::LogsArgs),
    /// Approve a run whose definition requires an approval before the start
    Approve(RunTargetArgs),
    /// Pause a run: start no new work; work in flight continues to its end
    Pause(RunTargetArgs),
    /// Resume a paused run
    Resume(RunTargetArgs),
    /// Cancel a run
    Cancel {
        /// Undo the completed steps
        #[arg(long)]
        compensate: bool,
        #[command(flatten)]
        on: RunTargetArgs,
    },
    /// Repeat an ended run as a new run, or retry a failed step with --step
    Retry {
        /// Step id
        #[arg(long, value_name = "STEP")]
        step: Option<String>,
        #[command(flatten)]
        on: RunTargetArgs,
    },
    /// Skip a step
    Skip {
        #[command(flatten)]
        on: RunTargetArgs,
        /// Step id
        #[arg(value_name = "STEP")]
        step: String,
    },
    /// Complete or approve a step that waits for a person
    Complete {
        #[command(flatten)]
        on: RunTargetArgs,
        /// Step id
        #[arg(value_name = "STEP")]
        step: String,
        /// Result of the step
        #[arg(long, value_enum)]
        outcome: CompletionWord,
        /// Output of the step, as JSON
        #[arg(long, value_name = "JSON", default_value = "null")]
        output_json: String,
    },
    /// Send a signal to a run, or deliver an external event
    Signal(SignalArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompletionWord {
    /// Done, or approved
    #[value(alias = "approved")]
    Succeeded,
    /// Not done, or rejected
    #[value(alias = "rejected")]
    Failed,
    /// Withdrawn
    Cancelled,
}

/// A run and the options of the sender.
#[derive(Debug, Args)]
struct RunTargetArgs {
    /// Run id
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    by: SenderArgs,
}

/// Options of commands that are sent to a run.
#[derive(Debug, Args)]
struct SenderArgs {
    /// Name of the sender, for the log [default: the variable USER]
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
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
    store: StoreArgs,
}

#[derive(Debug, Args)]
struct SignalArgs {
    /// Run id; not needed for an event with --key
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Signal type: PAUSE, RESUME, CANCEL, RETRY_STEP, RETRY_RUN, SKIP_STEP, UPDATE_PARAMS,
    /// INJECT_OVERRIDE, UPDATE_TARGET or EMERGENCY_STOP
    #[arg(value_name = "TYPE")]
    signal: Option<String>,
    /// Payload, as JSON
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

impl SenderArgs {
    fn actor(&self) -> Actor {
        let user = || std::env::var("USER").ok().filter(|it| !it.is_empty());
        let id = self.actor.clone().or_else(user);
        Actor {
            id: id.unwrap_or_else(|| "cli".to_owned()),
            // A user with write permission for the store may change every run in it.
            role: Role::Admin,
            tenant: None,
        }
    }

    fn signal(&self, id: Option<&str>, signal: &str, payload: Json) -> Command {
        let fresh = || format!("cli-{}", uuid::Uuid::now_v7());
        Command::Signal {
            signal_id: id.map_or_else(fresh, str::to_owned),
            signal: signal.to_owned(),
            payload,
            reason: self.reason.clone(),
            actor: self.actor(),
        }
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
        RunsCommand::Logs(args) => logs::run(args),
        RunsCommand::Approve(on) => approve(on),
        RunsCommand::Pause(on) => signal(on, "PAUSE", json!({}), "is paused"),
        RunsCommand::Resume(on) => signal(on, "RESUME", json!({}), "is resumed"),
        RunsCommand::Cancel { compensate, on } => cancel(on, *compensate),
        RunsCommand::Retry { step, on } => match step {
            Some(step) => signal(
                on,
                "RETRY_STEP",
                json!({ "stepId": step }),
                "retries the step",
            ),
            None => signal(on, "RETRY_RUN", json!({}), "is repeated"),
        },
        RunsCommand::Skip { on, step } => {
            signal(on, "SKIP_STEP", json!({ "stepId": step }), "skips the step")
        }
        RunsCommand::Complete {
            on,
            step,
            outcome,
            output_json,
        } => complete(on, step, *outcome, output_json),
        RunsCommand::Signal(args) => from_outside(args),
    }
}

fn signal(on: &RunTargetArgs, name: &str, payload: Json, done: &str) -> Result<Exit> {
    let command = on.by.signal(None, name, payload);
    tell(&on.by, &on.run, name, done, command)
}

fn approve(on: &RunTargetArgs) -> Result<Exit> {
    let actor = on.by.actor();
    let sent = send::send(&on.by.store, &on.run, on.by.patience(), |_, view| {
        if view.plan.policy().needs_approval {
            return Ok(Command::ApproveRun { actor });
        }
        let what = "the definition of the run requires no approval";
        Err(Rejection::new(Code::InvalidTransition, what).into())
    })?;
    answer(&on.by, &on.run, "APPROVE", "is approved", &sent, None)
}

fn cancel(on: &RunTargetArgs, compensate: bool) -> Result<Exit> {
    let command = Command::CancelRun {
        actor: on.by.actor(),
        reason: on.by.reason.clone(),
        compensate,
    };
    tell(&on.by, &on.run, "CANCEL", "is being cancelled", command)
}

fn complete(on: &RunTargetArgs, step: &str, outcome: CompletionWord, output: &str) -> Result<Exit> {
    let output: Json = read_json("--output-json", output)?;
    let sent = send::send(&on.by.store, &on.run, on.by.patience(), |store, view| {
        let (plan, state) = (&view.plan, &view.state);
        let refuse = |code, what: String| Error::from(Rejection::new(code, what));
        let at = plan.parse_step_id(step);
        let at = at.ok_or_else(|| {
            let what = format!("the plan has no step {step:?}");
            refuse(Code::StepUnknown, what)
        })?;
        let key = TokenKey(store.secret()?);
        let token = open_token(plan, state, at, &key).ok_or_else(|| {
            let what = format!("{step} does not wait for a person");
            refuse(Code::StepNotWaiting, what)
        })?;
        Ok(Command::CompleteManually {
            step: at,
            token,
            outcome: match outcome {
                CompletionWord::Succeeded => ManualOutcome::Succeeded,
                CompletionWord::Failed => ManualOutcome::Failed,
                CompletionWord::Cancelled => ManualOutcome::Cancelled,
            },
            actor: on.by.actor(),
            output,
        })
    })?;
    answer(&on.by, &on.run, "COMPLETE", "has the answer", &sent, None)
}

fn from_outside(args: &SignalArgs) -> Result<Exit> {
    let payload = match &args.payload {
        Some(text) => read_json("--payload", text)?,
        None => Json::Object(Map::new()),
    };
    match (&args.run, &args.signal, &args.event) {
        (Some(run), Some(signal), None) => {
            let name = signal.to_uppercase();
            let command = args.by.signal(args.id.as_deref(), &name, payload);
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
            match (run, &args.key) {
                (Some(run), _) => tell(&args.by, run, event_type, "received the event", command),
                (None, Some(key)) => {
                    let event = OutsideEvent {
                        id: event_id,
                        event_type: event_type.clone(),
                        key: key.clone(),
                        payload: payload.to_string(),
                        mail: Message::from(command).body(),
                    };
                    deliver(&args.by, &event)
                }
                (None, None) => {
                    usage("the receiver of the event is missing: give RUN or --key KEY")
                }
            }
        }
        _ => usage("give RUN and a signal TYPE, or --event TYPE with --id ID"),
    }
}

fn deliver(by: &SenderArgs, event: &OutsideEvent) -> Result<Exit> {
    let (delivered, to) = send::deliver(&by.store, event)?;
    let (word, text) = match (delivered, &to) {
        (Delivered::ToRun(_), Some(run)) => ("TO_RUN", format!("{run} received the event")),
        (Delivered::ToRun(_), None) => ("TO_RUN", "a run received the event".to_owned()),
        (Delivered::Kept, _) => (
            "KEPT",
            "no run waits for the event yet; the event is kept".to_owned(),
        ),
        (Delivered::Again, _) => ("AGAIN", "the event was already delivered".to_owned()),
    };
    let json = json!({ "eventId": event.id, "delivered": word, "runId": to });
    say(by.output, &text, &json)?;
    Ok(Exit::Ok)
}

fn tell(by: &SenderArgs, run: &str, name: &str, done: &str, command: Command) -> Result<Exit> {
    let signal_id = match &command {
        Command::Signal { signal_id, .. } => Some(signal_id.clone()),
        _ => None,
    };
    let sent = send::send(&by.store, run, by.patience(), |_, _| Ok(command))?;
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
        (Sent::Before, None) => format!("{run}: the command was already executed before"),
        (Sent::Done, None) => format!("{run} {done}"),
    };
    let word = match sent {
        Sent::Done => "DONE",
        Sent::Before => "BEFORE",
        Sent::Unanswered => "UNANSWERED",
    };
    let json = json!({ "runId": run, "command": name, "answer": word, "signalId": signal_id,
        "repeatedAs": repeated });
    say(by.output, &text, &json)?;
    Ok(match sent {
        Sent::Unanswered => Exit::NoAnswer,
        Sent::Done | Sent::Before => Exit::Ok,
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
