//! The claim of an attempt: it is sent to the store until the store has taken or refused it. Work begins without it when the store
//! takes longer than the write budget (statement C37); the claim goes on meanwhile.

use std::pin::Pin;

use stepwell_engine::Error;
use stepwell_engine::coordinator::{Assignment, HotRun};
use stepwell_engine::remote::RemoteClaim;
use stepwell_engine::rows::parse_target;
use stepwell_kernel::command::{Claimed, Command, Env, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::time::Time;

use crate::attempt::{AttemptWatch, BEAT, LEASE_MS};
use crate::driver::{AWAY, Driver, TurnError};
use crate::turn::WorkItem;

/// How long an attempt whose claim was refused waits before the engine asks again: the reason may last.
pub(crate) const REFUSED_WAIT: std::time::Duration = std::time::Duration::from_millis(500);

/// A claim that is on its way to the store. It ends when the store has taken or refused it.
pub(crate) type Claiming<'a> =
    Pin<Box<dyn Future<Output = Result<ClaimAnswer, Error>> + Send + 'a>>;

/// What the store says to a claim.
pub(crate) enum ClaimAnswer {
    /// It is written; what the worker gets, unless an earlier sending of the same claim had been written.
    Ours(Option<Box<Claimed>>),
    /// There is nothing to work on, as in a loop over nothing.
    NoWork,
    Refused(Rejection),
}

/// What is known of a piece of work before its claim is written.
struct Prepared {
    target: Target,
    /// What the worker gets; exact unless others move the run first.
    expected: Result<Assignment, Rejection>,
}

/// What a claim came to.
pub(crate) enum ClaimEnd<'a> {
    /// The work is to be done. The claim is still on its way if the store has not taken it.
    Work(Box<Assignment>, Option<Claiming<'a>>),
    /// There is nothing to do, or no longer.
    Nothing,
}

impl Driver {
    /// Claims the work. Waits for the store as long as the write budget allows.
    pub(crate) async fn claim<'a>(
        &'a self,
        run_id: &'a str,
        item: &'a WorkItem,
        watch: &impl AttemptWatch,
    ) -> Result<ClaimEnd<'a>, TurnError> {
        let Some(prepared) = self.prepare(run_id, item).await? else {
            return Ok(ClaimEnd::Nothing);
        };
        let mut claiming: Claiming<'a> = Box::pin(self.write_claim(run_id, item, prepared.target));
        let mut beats = tokio::time::interval(BEAT);
        let budget = tokio::time::sleep(self.setup.write_budget);
        tokio::pin!(budget);
        let mut expected = prepared.expected.ok();
        loop {
            tokio::select! {
                answer = &mut claiming => return self.claimed(run_id, expected, answer?).await,
                _ = beats.tick() => watch.beat(None).await,
                // Without something to begin with, the store's answer is waited for.
                () = &mut budget, if expected.is_some() => break,
            }
        }
        tracing::warn!(
            run = run_id,
            step = item.target,
            "the store did not write the start of a step within the write budget; the step begins, and its start is written \
             when the store answers"
        );
        Ok(match expected.take() {
            Some(expected) => ClaimEnd::Work(Box::new(expected), Some(claiming)),
            None => ClaimEnd::Nothing,
        })
    }

    async fn claimed<'a>(
        &self,
        run_id: &str,
        expected: Option<Assignment>,
        answer: ClaimAnswer,
    ) -> Result<ClaimEnd<'a>, TurnError> {
        Ok(match (answer, expected) {
            (ClaimAnswer::Ours(Some(claimed)), _) => {
                let assign = move |hot: &HotRun| hot.assignment(*claimed);
                let assignment = self.visit(run_id, false, assign).await?;
                ClaimEnd::Work(Box::new(assignment), None)
            }
            (ClaimAnswer::Ours(None), Some(expected)) => ClaimEnd::Work(Box::new(expected), None),
            (ClaimAnswer::Refused(why), _) => {
                tracing::debug!(run = run_id, code = why.code.name(), "a claim was refused");
                tokio::time::sleep(REFUSED_WAIT).await;
                ClaimEnd::Nothing
            }
            (ClaimAnswer::NoWork | ClaimAnswer::Ours(None), _) => ClaimEnd::Nothing,
        })
    }

    /// What the claim of an item will give; none if the execution is out of date.
    async fn prepare(&self, run_id: &str, item: &WorkItem) -> Result<Option<Prepared>, Error> {
        let (name, execution) = (item.target.clone(), item.execution);
        let (worker, now) = (self.setup.worker.clone(), self.setup.clock.now());
        let env = Env {
            now,
            key: self.key.clone(),
        };
        let look = move |hot: &HotRun| {
            let target = parse_target(hot.plan(), &name)?;
            let done = hot.state().target(target).map_or(0, |it| it.execution());
            if done + 1 != execution {
                return None;
            }
            let command = claim_of(target, worker, now.max(hot.state().last_at()));
            let expected = hot.expected_claim(&command, &env);
            Some(Prepared {
                target,
                expected: expected.map(|claimed: Claimed| hot.assignment(claimed)),
            })
        };
        self.visit(run_id, false, look).await
    }

    /// Sends a claim until the store has taken or refused it. The answer to an earlier sending may have been lost.
    async fn write_claim(
        &self,
        run_id: &str,
        item: &WorkItem,
        target: Target,
    ) -> Result<ClaimAnswer, Error> {
        loop {
            let command = claim_of(
                target,
                self.setup.worker.clone(),
                self.log_time(run_id).await,
            );
            match self.submit(run_id, command).await {
                Ok(Reply::Claimed(claimed)) => return Ok(ClaimAnswer::Ours(Some(claimed))),
                Ok(_) => return Ok(ClaimAnswer::NoWork),
                Err(Error::Rejected(why)) => {
                    return Ok(match self.has_lease(run_id, item, target).await? {
                        true => ClaimAnswer::Ours(None),
                        false => ClaimAnswer::Refused(why),
                    });
                }
                Err(error) if TurnError::is_passing(&error) => tokio::time::sleep(AWAY).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// The time by the clock and by the log of a run, as far as it is known.
    async fn log_time(&self, run_id: &str) -> Time {
        let now = self.setup.clock.now();
        let last = self.visit(run_id, false, |hot: &HotRun| hot.state().last_at());
        last.await.map_or(now, |last| now.max(last))
    }

    /// Whether the log says that this process has this execution.
    async fn has_lease(
        &self,
        run_id: &str,
        item: &WorkItem,
        target: Target,
    ) -> Result<bool, Error> {
        let (worker, execution) = (self.setup.worker.clone(), item.execution);
        let look = move |hot: &HotRun| {
            let it = hot.state().target(target);
            it.is_some_and(|it| {
                it.execution() == execution && it.lease().is_some_and(|it| it.worker == worker)
            })
        };
        self.visit(run_id, false, look).await
    }

    /// The claim that a result names.
    pub(crate) async fn remote_claim(
        &self,
        run_id: &str,
        name: String,
        execution: u32,
        worker: String,
    ) -> Result<RemoteClaim, Error> {
        let id = run_id.to_owned();
        let find = move |hot: &HotRun| {
            let target = parse_target(hot.plan(), &name);
            target.map(|target| RemoteClaim {
                run: hot.run(),
                run_id: hot.run_id().to_string(),
                target,
                name,
                execution,
                worker,
            })
        };
        let found = self.visit(run_id, false, find).await?;
        found.ok_or(Error::UnknownRun(id))
    }
}

/// The command that claims a target, with a lease from `now` on.
pub(crate) fn claim_of(target: Target, worker: String, now: Time) -> Command {
    Command::ClaimStep {
        target,
        worker,
        lease_until: now.plus(LEASE_MS),
    }
}
