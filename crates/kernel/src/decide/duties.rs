//! Separation of duties: who may not decide about a step, and why. A person whom a duty keeps from answering must not get the
//! same by another road: by skipping the step, or by changing what others have approved.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | people are asked, an answer of a person whom a duty forbids it | – | `SOD_DENIED` |
//! | a decision of people about a step is open, SKIP_STEP by someone who could not give it alone | – | `SOD_DENIED`, `AUTHZ_DENIED` |
//! | people have decided, a change of parameters, overrides, targets or ctx by someone who could not have decided alone | – | `SOD_DENIED` |

use super::{Decider, reject};
use crate::command::{Actor, ManualOutcome};
use crate::event::WaitKind;
use crate::plan::{Duty, Plan, StepNo, StepRef, WaitOn, Work};
use crate::rejection::{Code, Rejection};
use crate::state::{ManualAnswer, State, Status, StepRun};

/// Why separation of duties keeps a person from answering the open wait of a step-run; absent if nothing does.
#[must_use]
pub fn barred(plan: &Plan, state: &State, step: StepRef, who: &str) -> Option<String> {
    let wait = state.run(step)?.wait()?;
    forbids(plan, state, duties(plan, step, wait.kind()), who)
}

/// Why separation of duties keeps a person from approving the run before it starts; absent if nothing does.
#[must_use]
pub fn barred_from_run(plan: &Plan, state: &State, who: &str) -> Option<String> {
    forbids(plan, state, &plan.policy().duties, who)
}

/// How many people must approve the open wait of a step-run; 1 where one person's answer is enough.
#[must_use]
pub fn approvals_needed(plan: &Plan, step: StepRef, wait: &WaitKind) -> u32 {
    people_needed(duties(plan, step, wait))
}

/// The duties of those who answer a wait.
#[must_use]
pub fn duties<'a>(plan: &'a Plan, step: StepRef, wait: &WaitKind) -> &'a [Duty] {
    let step = plan.step(step.step);
    match &step.gate {
        Some(gate) if *wait == WaitKind::Gate => &gate.duties,
        _ => &step.duties,
    }
}

fn people_needed(duties: &[Duty]) -> u32 {
    let counts = duties.iter().filter_map(|duty| match duty {
        Duty::DistinctApprovers { count } => Some(*count),
        Duty::MakerChecker | Duty::IncompatibleDuties { .. } => None,
    });
    counts.max().unwrap_or(1)
}

fn forbids(plan: &Plan, state: &State, duties: &[Duty], who: &str) -> Option<String> {
    duties.iter().find_map(|duty| match duty {
        Duty::MakerChecker => {
            let is_maker = state.context().triggered_by.as_deref() == Some(who);
            is_maker.then(|| format!("{who} started the run; another person must do this"))
        }
        Duty::IncompatibleDuties { keys } => {
            let mut acted = state.acted().iter();
            let (step, _) =
                acted.find(|(step, by)| by == who && keys.contains(&plan.step(*step).name))?;
            let name = &plan.step(*step).name;
            Some(format!("{who} did {name}; another person must do this"))
        }
        Duty::DistinctApprovers { .. } => None,
    })
}

impl Decider<'_> {
    pub(super) fn check_duties(&self, duties: &[Duty], actor: &Actor) -> Result<(), Rejection> {
        match forbids(self.plan, self.state, duties, &actor.id) {
            Some(why) => reject(Code::SodDenied, why),
            None => Ok(()),
        }
    }

    /// Who skips a step decides about it, so only those may skip it who could give the decision that is still open.
    pub(super) fn check_skip(&self, at: StepRef, actor: &Actor) -> Result<(), Rejection> {
        let step = self.plan.step(at.step);
        let run = self.state.run(at);
        let passed = at.item.is_some() || run.is_some_and(said_yes);
        let gate = step.gate.as_ref().filter(|_| !passed);
        let asks = matches!(&step.work, Work::Wait(spec) if spec.on == WaitOn::Approval);
        if gate.is_none() && step.duties.is_empty() && !asks {
            return Ok(());
        }
        if !actor.may_answer {
            return reject(
                Code::AuthzDenied,
                "the step needs the decision of a person; only who may answer for steps may skip it",
            );
        }
        let of_gate = gate.map_or(&[][..], |gate| &gate.duties[..]);
        let wait = run.and_then(|run| run.wait());
        let given = wait.map_or(&[][..], |wait| wait.approvals());
        for duties in [of_gate, &step.duties[..]] {
            self.check_alone(duties, given, actor)?;
        }
        Ok(())
    }

    /// What people have approved stays as it was when they approved it, unless someone changes it who could have approved it
    /// alone.
    pub(super) fn check_change(&self, actor: &Actor) -> Result<(), Rejection> {
        if self.state.approved() {
            self.check_alone(&self.plan.policy().duties, &[], actor)?;
        }
        for (step, _) in self.state.acted() {
            if !self.is_decided(*step) {
                continue;
            }
            let step = self.plan.step(*step);
            let of_gate = step.gate.as_ref().map_or(&[][..], |gate| &gate.duties[..]);
            for duties in [of_gate, &step.duties[..]] {
                let told = |mut refused: Rejection| {
                    refused.message =
                        format!("{} was decided about: {}", step.name, refused.message);
                    refused
                };
                self.check_alone(duties, &[], actor).map_err(told)?;
            }
        }
        Ok(())
    }

    /// Refuses who could not decide with no one but those who have: a duty forbids it, or more people are needed.
    fn check_alone(
        &self,
        duties: &[Duty],
        given: &[String],
        actor: &Actor,
    ) -> Result<(), Rejection> {
        self.check_duties(duties, actor)?;
        let needed = people_needed(duties);
        let others = given.iter().filter(|it| **it != actor.id).count();
        if others.saturating_add(1) < needed as usize {
            return reject(
                Code::SodDenied,
                format!(
                    "{needed} different people must decide about it; one person alone cannot do this"
                ),
            );
        }
        Ok(())
    }

    /// Whether someone has approved or completed a step, and it need not be done again since.
    fn is_decided(&self, step: StepNo) -> bool {
        let mut visits = self.state.step(step).visits().iter();
        visits.any(|visit| {
            let items = visit.each().map(|each| each.active().values());
            let mut runs = items.into_iter().flatten().chain([visit.run()]);
            let closed = visit.each().is_some_and(|each| each.ended() > 0);
            closed || runs.any(|run| said_yes(run) || has_approvals(run))
        })
    }
}

/// Whether people have said yes in the attempt that counts, as many as are needed.
fn said_yes(run: &StepRun) -> bool {
    let yes = |it: &ManualAnswer| {
        it.logical() == run.logical() && it.outcome() == ManualOutcome::Succeeded
    };
    run.answers().iter().any(yes)
}

/// Whether people have said yes, and more are needed.
fn has_approvals(run: &StepRun) -> bool {
    let wait = run.wait().filter(|_| run.status() == Status::Waiting);
    wait.is_some_and(|wait| !wait.approvals().is_empty())
}
