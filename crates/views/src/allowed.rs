//! What a person may do to a run now. The kernel is asked, on a copy of the state: nobody else knows its rules.

use serde_json::json;
use stepwell_kernel::command::{Actor, AnswerDetails, Command, Env, ManualOutcome, Reply};
use stepwell_kernel::decide::{decide, open_token};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::signal::SignalKind;
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

use crate::RunView;

/// Something that can be done to a run, and whether the kernel would do it now.
#[derive(Clone, Debug)]
pub struct Action {
    /// The name of a signal, `APPROVE` or `COMPLETE`.
    pub name: &'static str,
    /// The step that it is done to; absent: the run.
    pub step: Option<String>,
    /// Why the kernel would refuse; absent if it would not.
    pub refused: Option<Rejection>,
}

/// What the actor may do to the run, and to one of its steps.
#[must_use]
pub fn actions(
    view: &RunView,
    actor: &Actor,
    key: &TokenKey,
    now: Time,
    step: Option<&str>,
) -> Vec<Action> {
    let asked = Asked {
        view,
        actor,
        env: Env {
            now,
            key: key.clone(),
        },
    };
    let of_run = [
        SignalKind::Pause,
        SignalKind::Resume,
        SignalKind::Cancel,
        SignalKind::RetryRun,
    ];
    let mut all: Vec<Action> = of_run.map(|it| asked.signal(it, None)).into();
    if view.plan.policy().needs_approval {
        all.push(asked.about(
            "APPROVE",
            None,
            Command::ApproveRun {
                actor: actor.clone(),
                reason: None,
            },
        ));
    }
    let Some(step) = step else { return all };
    all.push(asked.signal(SignalKind::RetryStep, Some(step)));
    all.push(asked.signal(SignalKind::SkipStep, Some(step)));
    let at = view.plan.parse_step_id(step);
    let token = at.and_then(|at| Some((at, open_token(&view.plan, &view.state, at, key)?)));
    if let Some((at, token)) = token {
        all.push(asked.about(
            "COMPLETE",
            Some(step),
            Command::CompleteManually {
                step: at,
                token,
                outcome: ManualOutcome::Succeeded,
                actor: actor.clone(),
                output: json!(null),
                details: AnswerDetails::default(),
            },
        ));
    }
    all
}

struct Asked<'a> {
    view: &'a RunView,
    actor: &'a Actor,
    env: Env,
}

impl Asked<'_> {
    fn signal(&self, signal: SignalKind, step: Option<&str>) -> Action {
        let payload = match step {
            Some(step) => json!({ "stepId": step }),
            None => json!({}),
        };
        let command = Command::Signal {
            signal_id: "asked-and-not-sent".to_owned(),
            signal: signal.name().to_owned(),
            payload,
            reason: None,
            actor: self.actor.clone(),
        };
        self.about(signal.name(), step, command)
    }

    fn about(&self, name: &'static str, step: Option<&str>, command: Command) -> Action {
        let before = if let Command::CompleteManually { step, .. } = &command {
            approved_before(&self.view.state, *step, &self.actor.id)
        } else {
            None
        };
        let before = before.map(|why| Rejection::new(Code::SodDenied, why));
        Action {
            name,
            step: step.map(str::to_owned),
            refused: before.or_else(|| refusal(self.view, command, &self.env)),
        }
    }
}

/// Why a person who has approved a step is not asked again. The kernel takes a second approval of the same person as the first one
/// said again: nothing would come of it, so it is not offered.
#[must_use]
pub fn approved_before(state: &State, step: StepRef, who: &str) -> Option<String> {
    let wait = state.run(step)?.wait()?;
    let has_approved = wait.approvals().iter().any(|it| it == who);
    has_approved.then(|| format!("{who} has approved already; another person must approve"))
}

/// Why the kernel would refuse a command now; none if it would not. Nothing is changed.
#[must_use]
pub fn refusal(view: &RunView, command: Command, env: &Env) -> Option<Rejection> {
    let mut copy = view.state.clone();
    match decide(&view.plan, &mut copy, command, env) {
        Ok(decision) => match decision.reply {
            Reply::Refused(rejection) => Some(rejection),
            Reply::Done
            | Reply::Created { .. }
            | Reply::Claimed(_)
            | Reply::Duplicate(_)
            | Reply::RetryRun { .. } => None,
        },
        Err(rejection) => Some(rejection),
    }
}
