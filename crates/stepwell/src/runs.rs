//! `stepwell runs`: look at runs and send them commands, on any store, whoever owns it.

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

/// Look at runs and send them commands
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs list --open
  stepwell runs show RUN                      its steps, and why it is not moving
  stepwell runs events RUN --follow           its log as JSON lines
  stepwell runs logs RUN fetch                what a step has said
  stepwell runs approve RUN
  stepwell runs pause RUN
  stepwell runs cancel RUN --compensate --reason 'wrong customer'
  stepwell runs retry RUN --step charge-card
  stepwell runs complete RUN sign-off --outcome succeeded
  stepwell runs signal RUN UPDATE_PARAMS --payload '{\"params\": {\"limit\": 5}}' --reason why
  stepwell runs signal --event payment.received --id evt-17 --key order-42

Reading works while another process runs on the store. A command goes to the process that owns the
SQLite store, or that has the run on PostgreSQL, which answers it; where nobody does, it is decided
here. Nothing is executed here: `stepwell resume RUN` goes on with a run.

Exit codes: 0 done, 1 refused, no such run, or the store cannot be used, 2 wrong usage, 6 whoever
has the run did not answer in time: the command lies there and may still be done.")]
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
    /// Approve a run whose definition asks for that before it starts
    Approve(RunTargetArgs),
    /// Let nothing new start; what is in flight ends
    Pause(RunTargetArgs),
    /// Let a paused run go on
    Resume(RunTargetArgs),
    /// Stop a run for good
    Cancel {
        /// Undo what was done
        #[arg(long)]
        compensate: bool,
        #[command(flatten)]
        on: RunTargetArgs,
    },
    /// Repeat a run that has ended as a new one, or with --step a failed step
    Retry {
        /// The step
        #[arg(long, value_name = "STEP")]
        step: Option<String>,
        #[command(flatten)]
        on: RunTargetArgs,
    },
    /// Pass a step over
    Skip {
        #[command(flatten)]
        on: RunTargetArgs,
        /// The step
        #[arg(value_name = "STEP")]
        step: String,
    },
    /// Complete or approve a step that waits for a person
    Complete {
        #[command(flatten)]
        on: RunTargetArgs,
        /// The step
        #[arg(value_name = "STEP")]
        step: String,
        /// What became of it
        #[arg(long, value_enum)]
        outcome: CompletionWord,
        /// What came of it, as JSON
        #[arg(long, value_name = "JSON", default_value = "null")]
        output_json: String,
    },
    /// Send a signal of the contract, or an event from outside
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

/// A run and who sends it something.
#[derive(Debug, Args)]
struct RunTargetArgs {
    /// The run's id
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    by: SenderArgs,
}

/// Who sends something, and how.
#[derive(Debug, Args)]
struct SenderArgs {
    /// Who does this, for the log [default: the variable USER]
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Why, for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// How many seconds to wait for the process that has the run
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
struct SignalArgs {
    /// The run's id; not needed for an event with --key
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// The signal: PAUSE, RESUME, CANCEL, RETRY_STEP, RETRY_RUN, SKIP_STEP, UPDATE_PARAMS,
    /// INJECT_OVERRIDE, UPDATE_TARGET or EMERGENCY_STOP
    #[arg(value_name = "TYPE")]
    signal: Option<String>,
    /// What it says, as JSON
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// An event of this type from outside, instead of a signal
    #[arg(long, value_name = "TYPE", conflicts_with = "signal")]
    event: Option<String>,
    /// The signal's or event's own id: sent twice, it counts once
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// For the run that waits for this key (the business key of a linear run, else a run's id)
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
            // Whoever may write the store may do everything with what is in it.
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
        RunsCommand::Pause(on) => signal(on, "PAUSE", json!({}), "paused"),
        RunsCommand::Resume(on) => signal(on, "RESUME", json!({}), "goes on"),
        RunsCommand::Cancel { compensate, on } => cancel(on, *compensate),
        RunsCommand::Retry { step, on } => match step {
            Some(step) => signal(on, "RETRY_STEP", json!({ "stepId": step }), "retries"),
            None => signal(on, "RETRY_RUN", json!({}), "repeated"),
        },
        RunsCommand::Skip { on, step } => {
            signal(on, "SKIP_STEP", json!({ "stepId": step }), "skips")
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
        let what = "its definition asks for no approval of the run";
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
    tell(&on.by, &on.run, "CANCEL", "stops", command)
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
    answer(&on.by, &on.run, "COMPLETE", "answered", &sent, None)
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
            tell(&args.by, run, &name, "has the signal", command)
        }
        (run, None, Some(event_type)) => {
            let Some(event_id) = args.id.clone() else {
                return usage("an event needs --id: delivered twice, it counts once");
            };
            let command = Command::DeliverEvent {
                event_id: event_id.clone(),
                event_type: event_type.clone(),
                payload: payload.clone(),
            };
            match (run, &args.key) {
                (Some(run), _) => tell(&args.by, run, event_type, "has the event", command),
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
                (None, None) => usage("whom is the event for? Name a RUN, or a --key"),
            }
        }
        _ => usage("name a RUN and a signal's TYPE, or an --event with its --id"),
    }
}

fn deliver(by: &SenderArgs, event: &OutsideEvent) -> Result<Exit> {
    let (delivered, to) = send::deliver(&by.store, event)?;
    let (word, text) = match (delivered, &to) {
        (Delivered::ToRun(_), Some(run)) => ("TO_RUN", format!("{run} has the event")),
        (Delivered::ToRun(_), None) => ("TO_RUN", "a run has the event".to_owned()),
        (Delivered::Kept, _) => ("KEPT", "nobody waits for it yet; it is kept".to_owned()),
        (Delivered::Again, _) => ("AGAIN", "it had been delivered before".to_owned()),
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
    // Its id follows from the signal's, whoever has decided it.
    let repeated = signal_id
        .filter(|_| name == "RETRY_RUN" && *sent != Sent::Unanswered)
        .map(|id| run_id_for(&format!("{run}|RETRY_RUN|{id}")));
    let text = match (sent, &repeated) {
        (Sent::Unanswered, _) => format!(
            "{run}: the process that has it did not answer within {} s; the command lies in its \
             mailbox and may still be done (`stepwell runs show {run}`)",
            by.timeout
        ),
        (_, Some(repeated)) => format!("{run} is repeated as {repeated}"),
        (Sent::Before, None) => format!("{run}: that had been done before"),
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

/// One thing, for people or for programs.
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
    match read.with_context(|| format!("{flag} is not JSON")) {
        Ok(json) => Ok(json),
        Err(error) => usage(format!("{error:#}")),
    }
}
