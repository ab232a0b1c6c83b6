//! The answer of a person to a step that waits for one: the command that it is, and what it came to. Who repeats an answer
//! gets the same answer once more; one that contradicts the first is refused.

use serde_json::Value as Json;
use stepwell_engine::Error;
use stepwell_kernel::command::{Actor, AnswerDetails, Command, ManualOutcome};
use stepwell_kernel::decide::{open_token, output_hash};
use stepwell_kernel::event::Body;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::rejection::{Code, Rejection};

use crate::RunView;
use crate::people::{self, Approvals};

/// The code of an answer that contradicts the first one.
pub const ANSWER_CONTRADICTED: &str = "ANSWER_CONTRADICTED";

/// What a person says.
#[derive(Clone, Debug)]
pub struct GivenAnswer {
    /// The id of the step.
    pub step: String,
    pub outcome: ManualOutcome,
    pub output: Json,
    pub details: AnswerDetails,
    pub actor: Actor,
    /// The completion token; absent: that of the open wait.
    pub token: Option<String>,
}

/// What an answer came to.
#[derive(Clone, Debug)]
pub struct AnswerResult {
    /// Whether someone had answered before: that answer counts.
    pub is_repeated: bool,
    /// The outcome that counts.
    pub outcome: ManualOutcome,
    /// What a repeated answer says otherwise than the first one did.
    pub differs: Vec<&'static str>,
    /// The approvals so far, where more than one is needed.
    pub approvals: Option<Approvals>,
    /// The result in a sentence.
    pub text: String,
}

/// Why an answer was refused: it contradicts the first one.
#[derive(Clone, Debug)]
pub struct Contradiction(pub String);

impl GivenAnswer {
    /// The command that the answer is, or how the step was answered before if it does not wait any more.
    pub fn command(
        &self,
        view: &RunView,
        key: &TokenKey,
    ) -> Result<Result<Command, ManualOutcome>, Error> {
        let at = self.step_of(view)?;
        let open = || open_token(&view.plan, &view.state, at, key);
        if let Some(token) = self.token.clone().or_else(open) {
            return Ok(Ok(Command::CompleteManually {
                step: at,
                token,
                outcome: self.outcome,
                actor: self.actor.clone(),
                output: self.output.clone(),
                details: self.details.clone(),
            }));
        }
        match people::answered(view, at) {
            Some(first) => Ok(Err(first)),
            // As the kernel says it, which is asked if the run ends at this moment.
            None if view.state.phase().is_ended() => {
                let why = "the run has ended; start a new one, or send RETRY_RUN to repeat it";
                Err(Rejection::new(Code::RunTerminal, why).into())
            }
            None => {
                let why = format!("{} does not wait for a person", self.step);
                Err(Rejection::new(Code::StepNotWaiting, why).into())
            }
        }
    }

    fn step_of(&self, view: &RunView) -> Result<StepRef, Error> {
        let at = view.plan.parse_step_id(&self.step);
        at.ok_or_else(|| {
            let what = format!("the plan has no step {:?}", self.step);
            Rejection::new(Code::StepUnknown, what).into()
        })
    }

    /// What the answer came to in the run as it is after it. `first`: how the step was answered before.
    pub fn came_to(
        &self,
        view: &RunView,
        first: Option<ManualOutcome>,
    ) -> Result<Result<AnswerResult, Contradiction>, Error> {
        let at = self.step_of(view)?;
        let (run, step, actor) = (view.state.run_id(), &self.step, &self.actor);
        let approvals = people::approvals(view, at).filter(|it| it.given > 0);
        let left = match &approvals {
            Some(approvals) => format!(": {}", approvals.text),
            None => String::new(),
        };
        let mut differs = Vec::new();
        let text = match (first, &approvals) {
            (None, None) => format!("{run} has the result of the step {step}"),
            (None, Some(_)) => format!(
                "{run} has the approval of the step {step} by {}{left}",
                actor.id
            ),
            (Some(first), _) => {
                let said = first.word().to_lowercase();
                // A person who has approved and is not the last has approved, also if others came later.
                let mine = |act: &&people::Act| approvals.is_none() || act.by == actor.id;
                let acts = people::acts(view);
                let mut of = acts
                    .iter()
                    .filter(|it| it.step.as_ref() == Some(step))
                    .filter(mine);
                let last = of.next_back();
                let who = match last {
                    Some(act) => format!(" by {} at {}", act.by, act.at.to_rfc3339()),
                    None => String::new(),
                };
                let word = last.map_or(said.as_str(), |act| act.word);
                if first != self.outcome {
                    return Ok(Err(Contradiction(format!(
                        "`{step}` was answered before: {word}{who}; the answer {} changes nothing",
                        told(self.outcome, word)
                    ))));
                }
                differs = self.different(view, at);
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
        Ok(Ok(AnswerResult {
            is_repeated: first.is_some(),
            outcome: first.unwrap_or(self.outcome),
            differs,
            approvals,
            text,
        }))
    }

    /// What a repeated answer says otherwise than the first one did. What it does not say is no difference.
    fn different(&self, view: &RunView, at: StepRef) -> Vec<&'static str> {
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
        let own = answers.iter().find(|answer| *answer.0 == self.actor.id);
        let Some((_, completed_at, notes, evidence_refs, hash)) = own.or(answers.first()) else {
            return Vec::new();
        };
        let (given, details) = (output_hash(&self.output), &self.details);
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
}

/// An answer in the words of the one that counts: approvals are approved and rejected.
fn told(outcome: ManualOutcome, first: &str) -> &'static str {
    match (outcome, first) {
        (ManualOutcome::Succeeded, "rejected") => "approved",
        (ManualOutcome::Succeeded, _) => "succeeded",
        (ManualOutcome::Failed, "approved") => "rejected",
        (ManualOutcome::Failed, _) => "failed",
        (ManualOutcome::Cancelled, _) => "cancelled",
    }
}
