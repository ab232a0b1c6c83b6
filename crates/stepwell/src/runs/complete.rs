//! `stepwell runs complete`: the answer of a person to a step that waits for one.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};
use stepwell_engine::Error;
use stepwell_kernel::command::{Actor, AnswerDetails, Command, EarlierResult, ManualOutcome};
use stepwell_kernel::decide::{open_token, output_hash};
use stepwell_kernel::event::Body;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::time::Time;

use super::send::{self, Refused, Sent};
use super::{RunTargetArgs, read_json, say};
use crate::exit::Exit;
use crate::usage;
use stepwell_views::RunView;
use stepwell_views::may_see;
use stepwell_views::people;

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
    let output = read_json("--output-json", &args.output_json)?;
    let details = AnswerDetails {
        completed_at: args.completed_at.as_deref().map(read_time).transpose()?,
        notes: args.notes.clone().or_else(|| by.reason.clone()),
        evidence_refs: args.evidence.clone(),
    };
    let actor = by.actor()?;
    let outcome = ManualOutcome::from(args.outcome);
    let sent = send::send_if(&by.store, &args.on.run, by.patience(), |store, view| {
        may_see(&actor, view.state.context())?;
        let at = step_of(view, &args.step)?;
        let given = args.token.clone();
        let key = TokenKey(store.secret()?);
        let token = given.or_else(|| open_token(&view.plan, &view.state, at, &key));
        let Some(token) = token else {
            return match people::answered(view, at) {
                Some(first) => Ok(Err(Sent::Before(EarlierResult::Manual(first)))),
                // As the kernel says it, which is asked if the run ends at this moment.
                None if view.state.phase().is_ended() => {
                    let why = "the run has ended; start a new one, or send RETRY_RUN to repeat it";
                    Err(Rejection::new(Code::RunTerminal, why).into())
                }
                None => {
                    let why = format!("{} does not wait for a person", args.step);
                    Err(Rejection::new(Code::StepNotWaiting, why).into())
                }
            };
        };
        Ok(Ok(Command::CompleteManually {
            step: at,
            token,
            outcome,
            actor: actor.clone(),
            output: output.clone(),
            details: details.clone(),
        }))
    })?;
    report(args, &actor, outcome, (&output, &details), &sent)
}

/// Tells the result of the answer.
fn report(
    args: &CompleteArgs,
    actor: &Actor,
    outcome: ManualOutcome,
    said: (&Json, &AnswerDetails),
    sent: &Sent,
) -> Result<Exit> {
    let (by, run, step) = (&args.on.by, &args.on.run, &args.step);
    if *sent == Sent::Unanswered {
        let text = format!(
            "{run}: the owner of the run did not answer within {} s; the answer is in its mailbox and may still be \
             taken (check with `stepwell runs show {run}`)",
            by.timeout
        );
        let json = json!({ "runId": run, "command": "COMPLETE", "answer": "UNANSWERED" });
        say(by.output, &text, &json)?;
        return Ok(Exit::NoAnswer);
    }
    let view = RunView::read(&*by.store.read()?, run)?;
    let at = step_of(&view, step)?;
    let approvals = people::approvals(&view, at).filter(|it| it.given > 0);
    let left = match &approvals {
        Some(approvals) => format!(": {}", approvals.text),
        None => String::new(),
    };
    let first = match sent {
        Sent::Before(EarlierResult::Manual(first)) => Some(*first),
        Sent::Done | Sent::Before(_) | Sent::Unanswered => None,
    };
    let mut differs = Vec::new();
    let text = match (first, &approvals) {
        (None, None) => format!("{run} has the result of the step {step}"),
        (None, Some(_)) => format!(
            "{run} has the approval of the step {step} by {}{left}",
            actor.id
        ),
        (Some(first), _) => {
            let word = first.word().to_lowercase();
            // A person who has approved and is not the last has approved, also if others came later.
            let mine = |act: &&people::Act| approvals.is_none() || act.by == actor.id;
            let acts = people::acts(&view);
            let mut of = acts
                .iter()
                .filter(|it| it.step.as_ref() == Some(step))
                .filter(mine);
            let who = match of.next_back() {
                Some(act) => format!(" by {} at {}", act.by, act.at.to_rfc3339()),
                None => String::new(),
            };
            if first != outcome {
                let why = format!(
                    "{step} was answered before: {word}{who}; the answer {} changes nothing",
                    outcome.word().to_lowercase()
                );
                return Err(Refused::new("ANSWER_CONTRADICTED", &why).into());
            }
            differs = different(&view, at, actor, said);
            let but = match differs.is_empty() {
                true => String::new(),
                false => format!(
                    "; the first answer counts, this one has another {} and changes nothing",
                    differs.join(", ")
                ),
            };
            format!("{run} has the result of the step {step} already: {word}{who}{left}{but}")
        }
    };
    let json = json!({
        "runId": run,
        "command": "COMPLETE",
        "answer": if first.is_some() { "BEFORE" } else { "DONE" },
        "stepId": step,
        "outcome": first.unwrap_or(outcome).word(),
        "differs": differs,
        "approvals": approvals.as_ref().map(|it| it.given),
        "approvalsNeeded": approvals.as_ref().map(|it| it.needed),
    });
    say(by.output, &text, &json)?;
    Ok(Exit::Ok)
}

fn step_of(view: &RunView, step: &str) -> Result<StepRef, Error> {
    let at = view.plan.parse_step_id(step);
    at.ok_or_else(|| {
        let what = format!("the plan has no step {step:?}");
        Rejection::new(Code::StepUnknown, what).into()
    })
}

/// What a repeated answer says otherwise than the first one did. What it does not say is no difference.
fn different(
    view: &RunView,
    at: StepRef,
    actor: &Actor,
    (output, details): (&Json, &AnswerDetails),
) -> Vec<&'static str> {
    let answers = view.events.iter().rev().filter_map(|event| {
        let Body::StepAnswered {
            step,
            by,
            completed_at,
            notes,
            evidence_refs,
            output_sha256,
            ..
        } = &event.body
        else {
            return None;
        };
        (*step == at).then_some((by, completed_at, notes, evidence_refs, output_sha256))
    });
    // One's own answer where several people answer, else the one that counts.
    let answers: Vec<_> = answers.collect();
    let own = answers.iter().find(|answer| *answer.0 == actor.id);
    let Some((_, completed_at, notes, evidence_refs, hash)) = own.or(answers.first()) else {
        return Vec::new();
    };
    let given = output_hash(output);
    let parts = [
        ("output", given.is_some() && given != **hash),
        ("notes", details.notes.is_some() && details.notes != **notes),
        (
            "evidence",
            !details.evidence_refs.is_empty() && details.evidence_refs != **evidence_refs,
        ),
        (
            "completion time",
            details.completed_at.is_some_and(|it| it != **completed_at),
        ),
    ];
    let differing = parts.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(name, _)| name).collect()
}

fn read_time(text: &str) -> Result<Time> {
    match Time::from_rfc3339(text) {
        Some(time) => Ok(time),
        None => usage(format!(
            "--completed-at is a time like 2026-05-04T16:20:00Z, not {text:?}"
        )),
    }
}
