//! `stepwell runs complete`: the answer of a person to a step that waits for one.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use stepwell_kernel::command::{AnswerDetails, EarlierResult, ManualOutcome};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::time::Time;
use stepwell_views::answers::{ANSWER_CONTRADICTED, Contradiction, GivenAnswer};
use stepwell_views::{RunView, may_see};

use super::send::{self, Refused, Sent};
use super::{RunTargetArgs, read_json, say};
use crate::exit::Exit;
use crate::place::Place;
use crate::remote::Remote;
use crate::store::StoreArgs;
use crate::usage;

/// Complete or approve a step that waits for a person
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs complete RUN sign-off --outcome succeeded --as ada
  stepwell runs complete RUN sign-off --outcome failed --notes 'page 2 is missing'
  stepwell runs complete RUN repair --outcome succeeded --evidence photo-17 --evidence s3://audit/17.pdf \\
    --completed-at 2026-05-04T16:20:00Z --token TOKEN --output-json '{\"part\": 4711}'

The answer is in the log of the run as the event StepAnswered. Who repeats an answer gets the same answer once
more: the first answer counts, also if the second has another output, and the command says so. An answer that contradicts the first one is refused with ANSWER_CONTRADICTED, which names the first one, and
changes nothing. With --token (`runs show --tokens` shows it) the answer is for this wait only: a later wait of the
same step has another token.")]
pub(super) struct CompleteArgs {
    #[command(flatten)]
    on: RunTargetArgs,
    /// Step id, as `stepwell runs show` lists it
    #[arg(value_name = "STEP")]
    step: String,
    /// Result of the step
    #[arg(long, value_enum)]
    outcome: CompletionWord,
    /// Output of the step, as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    output_json: String,
    /// Completion token of the wait [default: the token of the open wait]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Notes for the log: why, or what was seen [default: the value of --reason]
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    /// Id of evidence, or a reference to it; can be repeated
    #[arg(long, value_name = "REF")]
    evidence: Vec<String>,
    /// When the work was completed, as 2026-05-04T16:20:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    completed_at: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompletionWord {
    /// The work is done, or the approval is given
    #[value(alias = "approved")]
    Succeeded,
    /// The work failed, or the approval is refused
    #[value(alias = "rejected")]
    Failed,
    /// The work is no longer needed
    Cancelled,
}

impl From<CompletionWord> for ManualOutcome {
    fn from(word: CompletionWord) -> ManualOutcome {
        match word {
            CompletionWord::Succeeded => ManualOutcome::Succeeded,
            CompletionWord::Failed => ManualOutcome::Failed,
            CompletionWord::Cancelled => ManualOutcome::Cancelled,
        }
    }
}

pub(super) fn run(args: &CompleteArgs) -> Result<Exit> {
    let by = &args.on.by;
    let given = GivenAnswer {
        step: args.step.clone(),
        outcome: args.outcome.into(),
        output: read_json("--output-json", &args.output_json)?,
        details: AnswerDetails {
            completed_at: args.completed_at.as_deref().map(read_time).transpose()?,
            notes: args.notes.clone().or_else(|| by.reason.clone()),
            evidence_refs: args.evidence.clone(),
        },
        actor: by.actor()?,
        token: args.token.clone(),
    };
    match by.store.place(&by.actor)? {
        Place::Store(store) => on_store(args, store, &given),
        Place::Server(server) => on_server(args, &server, &given),
    }
}

fn on_store(args: &CompleteArgs, place: &StoreArgs, given: &GivenAnswer) -> Result<Exit> {
    let (by, run) = (&args.on.by, &args.on.run);
    let sent = send::send_if(place, run, by.patience(), |store, view| {
        may_see(&given.actor, view.state.context())?;
        let known = |first| Sent::Before(EarlierResult::Manual(first));
        let command = given.command(view, &TokenKey(store.secret()?))?;
        Ok(command.map_err(known))
    })?;
    let first = match sent {
        Sent::Unanswered => return unanswered(args),
        Sent::Before(EarlierResult::Manual(first)) => Some(first),
        Sent::Done | Sent::Before(_) => None,
    };
    let view = RunView::read(&*place.read()?, run)?;
    let result = given.came_to(&view, first)?;
    let result = result.map_err(|Contradiction(why)| Refused::new(ANSWER_CONTRADICTED, &why))?;
    let json = json!({
        "runId": run,
        "command": "COMPLETE",
        "answer": if result.is_repeated { "BEFORE" } else { "DONE" },
        "stepId": given.step,
        "outcome": result.outcome.word(),
        "differs": result.differs,
        "approvals": result.approvals.as_ref().map(|it| it.given),
        "approvalsNeeded": result.approvals.as_ref().map(|it| it.needed),
    });
    say(by.output, &result.text, &json)?;
    Ok(Exit::Ok)
}

fn on_server(args: &CompleteArgs, server: &Remote, given: &GivenAnswer) -> Result<Exit> {
    let (run, step, details) = (&args.on.run, &given.step, &given.details);
    let body = json!({
        "outcome": given.outcome.word().to_lowercase(),
        "output": given.output,
        "token": given.token,
        "notes": details.notes,
        "evidenceRefs": details.evidence_refs,
        "completedAt": details.completed_at.map(Time::to_rfc3339),
    });
    let body = &body;
    // The same answer of the same person is known again, so a server that dies before it says so may be told again.
    let answer = match server.repeat(|it| async move { it.complete(run, step, body).await }) {
        Err(error) if error.status() == Some(504) => return unanswered(args),
        answer => answer?,
    };
    let json = json!({
        "runId": run,
        "command": "COMPLETE",
        "answer": answer["answer"],
        "stepId": step,
        "outcome": answer["outcome"],
        "differs": answer.get("differs").unwrap_or(&json!([])),
        "approvals": answer["approvals"],
        "approvalsNeeded": answer["approvalsNeeded"],
    });
    let text = answer["message"].as_str().unwrap_or_default();
    say(args.on.by.output, text, &json)?;
    Ok(Exit::Ok)
}

fn unanswered(args: &CompleteArgs) -> Result<Exit> {
    let (by, run) = (&args.on.by, &args.on.run);
    let text = format!(
        "{run}: the owner of the run did not answer within {} s; the answer is in its mailbox and may still be \
         taken (check with `stepwell runs show {run}`)",
        by.timeout
    );
    let json = json!({ "runId": run, "command": "COMPLETE", "answer": "UNANSWERED" });
    say(by.output, &text, &json)?;
    Ok(Exit::NoAnswer)
}

fn read_time(text: &str) -> Result<Time> {
    match Time::from_rfc3339(text) {
        Some(time) => Ok(time),
        None => usage(format!(
            "--completed-at is a time like 2026-05-04T16:20:00Z, not {text:?}"
        )),
    }
}
