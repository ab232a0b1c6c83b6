//! Who did what by hand in a run: who started it, who approved, and who answered for a step.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use stepwell_kernel::command::ManualOutcome;
use stepwell_kernel::decide::{approvals_needed, open_token};
use stepwell_kernel::event::{
    Body, WaitKind, notice_events, outcome_events, run_events, step_events, undo_events,
};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::state::Status;
use stepwell_kernel::time::Time;

use crate::RunView;

/// What a person did.
#[derive(Clone, Debug)]
pub struct Act {
    /// The step that the person answered for; absent for the approval of the run.
    pub step: Option<String>,
    /// `approved`, `rejected`, `succeeded`, `failed` or `cancelled`.
    pub word: &'static str,
    pub by: String,
    pub at: Time,
    /// Why, in the words of the person.
    notes: Option<String>,
    evidence: Vec<String>,
}

impl Act {
    pub fn text(&self) -> String {
        let of = match &self.step {
            Some(step) => format!("{step}: "),
            None => "the run: ".to_owned(),
        };
        let mut text = format!(
            "{of}{} by {} at {}",
            self.word,
            self.by,
            self.at.to_rfc3339()
        );
        if let Some(notes) = &self.notes {
            text.push_str(&format!(": {notes}"));
        }
        if !self.evidence.is_empty() {
            text.push_str(&format!(" (evidence: {})", self.evidence.join(", ")));
        }
        text
    }

    #[must_use]
    pub fn row(&self) -> ActRow {
        ActRow {
            step_id: self.step.clone(),
            outcome: self.word.to_owned(),
            by: self.by.clone(),
            at: self.at.to_rfc3339(),
            notes: self.notes.clone(),
            evidence_refs: self.evidence.clone(),
        }
    }
}

/// What a person did, for programs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActRow {
    /// The step that the person answered for; null for the approval of the run.
    pub step_id: Option<String>,
    /// `approved`, `rejected`, `succeeded`, `failed` or `cancelled`.
    pub outcome: String,
    pub by: String,
    pub at: String,
    /// Why, in the words of the person.
    pub notes: Option<String>,
    pub evidence_refs: Vec<String>,
}

/// What people did in a run, in the order of the log.
pub fn acts(view: &RunView) -> Vec<Act> {
    let mut acts = Vec::new();
    // What a person said is in the event before the one that follows from it. Older logs have only the latter.
    let mut said = (None, Vec::new());
    // Which steps were asked for an approval: their answers have other words than those of work.
    let mut asked = BTreeSet::new();
    for event in &view.events {
        if let Body::StepWaiting { step, wait, .. } = &event.body {
            match wait {
                WaitKind::Gate | WaitKind::Approval => asked.insert(*step),
                WaitKind::Manual
                | WaitKind::Event { .. }
                | WaitKind::Timer { .. }
                | WaitKind::Child { .. } => asked.remove(step),
            };
        }
        if let Body::StepAnswered {
            notes,
            evidence_refs,
            ..
        } = &event.body
        {
            said = (notes.clone(), evidence_refs.clone());
            continue;
        }
        let (notes, evidence) = std::mem::take(&mut said);
        let (step, word, by) = match &event.body {
            Body::RunApproved {
                by: Some(by),
                reason,
            } => {
                acts.push(Act {
                    step: None,
                    word: "approved",
                    by: by.clone(),
                    at: event.at,
                    notes: reason.clone(),
                    evidence,
                });
                continue;
            }
            Body::StepApproved { step, by, .. } => (Some(step), "approved", by),
            Body::StepWoken {
                step, by: Some(by), ..
            } => (Some(step), "approved", by),
            Body::StepCompleted {
                step, by: Some(by), ..
            } => {
                let is_approval = asked.contains(step);
                let word = if is_approval { "approved" } else { "succeeded" };
                (Some(step), word, by)
            }
            Body::StepFailed {
                step,
                by: Some(by),
                error,
                ..
            } => {
                let withdrawn = error.code == stepwell_kernel::codes::MANUAL_CANCELLED;
                let word = match (withdrawn, asked.contains(step)) {
                    (true, _) => "cancelled",
                    (false, true) => "rejected",
                    (false, false) => "failed",
                };
                (Some(step), word, by)
            }
            Body::Opaque(_)
            | run_events!()
            | notice_events!()
            | outcome_events!()
            | step_events!()
            | undo_events!() => continue,
        };
        acts.push(Act {
            step: step.map(|step| view.plan.step_id(*step)),
            word,
            by: by.clone(),
            at: event.at,
            notes,
            evidence,
        });
    }
    acts
}

/// The approvals of an open wait.
#[derive(Clone, Debug)]
pub struct Approvals {
    pub given: usize,
    pub needed: u32,
    /// Who has approved, and how many must.
    pub text: String,
}

/// How many approvals an open wait has and needs; none where one answer is enough.
pub fn approvals(view: &RunView, step: StepRef) -> Option<Approvals> {
    let run = view.state.run(step)?;
    let wait = run.wait().filter(|_| run.status() == Status::Waiting)?;
    let needed = approvals_needed(&view.plan, step, wait.kind());
    let given = wait.approvals();
    if needed < 2 {
        return None;
    }
    let missing = (needed as usize).saturating_sub(given.len());
    let others = match (given.len(), missing) {
        (0, _) => format!("{needed} different people must approve"),
        (_, 1) => "another person must approve".to_owned(),
        _ => format!("{missing} other people must approve"),
    };
    let by = match given {
        [] => String::new(),
        given => format!(" by {}", given.join(", ")),
    };
    Some(Approvals {
        given: given.len(),
        needed,
        text: format!("{} of {needed} approvals{by}; {others}", given.len()),
    })
}

/// How a person has answered the last wait of this logical attempt.
#[must_use]
pub fn answered(view: &RunView, at: StepRef) -> Option<ManualOutcome> {
    let run = view.state.run(at)?;
    let mut answers = run.answers().iter().rev();
    let last = answers.find(|answer| answer.logical() == run.logical())?;
    Some(last.outcome())
}

/// The completion tokens of the steps that wait for a person: the step and the token.
#[must_use]
pub fn tokens(view: &RunView, key: &TokenKey) -> Vec<(String, String)> {
    let (plan, state) = (&view.plan, &view.state);
    let token = |at| Some((plan.step_id(at), open_token(plan, state, at, key)?));
    let open = state.open().iter();
    open.filter_map(|at| token(*at)).collect()
}
