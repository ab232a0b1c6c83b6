//! What an engine outside kept while the store did not answer, and how it is written afterwards: once, in order, also if several
//! processes bring it, or one brings it several times. A start and its result that are both unwritten are one commit, so that
//! nobody takes the step for lost between them.

use std::sync::Arc;

use stepwell_engine::Error;
use stepwell_engine::coordinator::HotRun;
use stepwell_engine::remote::{LeaseState, RemoteClaim};
use stepwell_engine::rows::parse_target;
use stepwell_kernel::codes;
use stepwell_kernel::command::{Actor, Command, LeaseEnd, Role};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::StepError;
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;
use tokio::sync::oneshot;

use crate::attempt::LEASE_MS;
use crate::claim::claim_of;
use crate::driver::{AWAY, AttemptKey, Driver, TurnError};
use crate::turn::KeptReport;

impl Driver {
    /// Writes what the engine keeps of an attempt as soon as the store answers, and ends the attempt then. The engine brings it
    /// too; this process is sooner if it lives.
    pub(crate) fn write_soon(self: &Arc<Self>, key: AttemptKey, report: KeptReport) {
        let driver = self.clone();
        tokio::spawn(async move {
            while let Err(TurnError::Later(error)) = driver.write(&key.0, report.clone()).await {
                if matches!(error, Error::Stopping) {
                    break;
                }
                tokio::time::sleep(AWAY).await;
            }
            driver.end(&key);
        });
    }

    /// Writes what the engine kept while the store did not answer. What is written already, or no longer counts, is left.
    pub(crate) async fn write(&self, run_id: &str, report: KeptReport) -> Result<(), TurnError> {
        match report {
            KeptReport::Cancel { reason } => {
                let cancel = Command::CancelRun {
                    actor: self.actor(),
                    reason,
                    compensate: false,
                    keep_undo: false,
                };
                Ok(accepted(self.submit(run_id, cancel).await)?)
            }
            KeptReport::Begun {
                target,
                execution,
                worker,
            } => {
                let key = (run_id.to_owned(), target.clone(), execution);
                if worker == self.setup.worker && self.has(&key) {
                    // The engine takes the attempt for lost, and it is not: it writes its start itself.
                    return Ok(());
                }
                let Some((target, now)) = self.next_target(run_id, target, execution).await? else {
                    return Ok(());
                };
                // A worker that lives has so long to be heard of; then the loss is recorded.
                let claim = claim_of(target, worker, now);
                Ok(accepted(self.submit(run_id, claim).await)?)
            }
            KeptReport::Result {
                target,
                execution,
                worker,
                command,
            } => {
                let next = self.next_target(run_id, target.clone(), execution).await?;
                if let Some((target, now)) = next {
                    let claim = claim_of(target, worker.clone(), now);
                    match self.together(run_id, claim, (*command).clone()).await {
                        Ok(()) => return Ok(()),
                        // Written by others meanwhile, or the step cannot have this result.
                        Err(Error::Rejected(_) | Error::Refused { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                let claim = self.remote_claim(run_id, target, execution, worker).await?;
                Ok(self.report(&claim, *command).await?)
            }
        }
    }

    /// The target of this name, if this execution of it is still to be claimed, and the time of its log.
    async fn next_target(
        &self,
        run_id: &str,
        name: String,
        execution: u32,
    ) -> Result<Option<(Target, Time)>, Error> {
        let now = self.setup.clock.now();
        let find = move |hot: &HotRun| {
            let target = parse_target(hot.plan(), &name)?;
            let done = hot.state().target(target).map_or(0, |it| it.execution());
            (done < execution).then_some((target, now.max(hot.state().last_at())))
        };
        self.visit(run_id, true, find).await
    }

    /// The actor of a cancel at the engine outside: an operator of the engine may cancel runs there, and so here.
    fn actor(&self) -> Actor {
        Actor {
            id: self.setup.engine.to_owned(),
            role: Role::Operator,
            tenant: None,
            may_answer: false,
        }
    }

    /// Writes a claim and its result in one commit.
    async fn together(&self, run_id: &str, claim: Command, result: Command) -> Result<(), Error> {
        let (tell, told) = oneshot::channel();
        let on_answer = move |answer| drop(tell.send(answer));
        self.setup
            .handle
            .submit_together(run_id, (claim, result), on_answer)?;
        told.await.unwrap_or(Err(Error::Stopping)).map(drop)
    }

    /// Reports a result. A result that no longer counts is an answer too: the run has moved on without it.
    pub(crate) async fn report(&self, claim: &RemoteClaim, command: Command) -> Result<(), Error> {
        let mut answer = self.report_once(claim, command.clone()).await;
        // The time of the lease was over before the store could take the result, and nobody has ended the lease.
        if let Err(Error::Rejected(why)) = &answer
            && why.code == Code::LeaseLost
            && self.revive(claim).await? == LeaseState::Held
        {
            answer = self.report_once(claim, command.clone()).await;
        }
        let (code, why) = match answer {
            Err(Error::Rejected(why)) if is_late(why.code) => return Ok(()),
            // The step cannot have this result, such as a wait where none is allowed: it fails instead.
            Err(Error::Rejected(why)) => (why.code.name(), why.message),
            Err(Error::Refused { why, .. }) => (codes::VALUE_REFUSED, why),
            answer => return answer,
        };
        let Some(failure) = failure_of(&command, code, why) else {
            if matches!(command, Command::ConfirmKill { .. }) {
                self.give_back(claim).await?;
            }
            return Ok(());
        };
        match self.report_once(claim, failure).await {
            Err(Error::Rejected(_)) => Ok(()),
            answer => answer,
        }
    }

    /// Extends a lease that nobody has ended, also if its time is over.
    pub(crate) async fn revive(&self, claim: &RemoteClaim) -> Result<LeaseState, Error> {
        let (remote, claim) = (self.remote.clone(), claim.clone());
        let asked = tokio::task::spawn_blocking(move || remote.revive(&claim, LEASE_MS));
        Ok(asked.await.map_err(|_| Error::Stopping)??)
    }

    /// Work was stopped because this process stops, not because the run wants it: it is offered again at once, and nobody is to
    /// blame.
    async fn give_back(&self, claim: &RemoteClaim) -> Result<(), Error> {
        let expire = Command::ExpireLease {
            target: claim.target,
            execution: claim.execution,
            lease_until: Some(Time(self.setup.clock.now().0 - 1)),
            cause: LeaseEnd::OwnSession,
        };
        accepted(self.submit(&claim.run_id, expire).await)
    }

    async fn report_once(&self, claim: &RemoteClaim, command: Command) -> Result<(), Error> {
        let (tell, told) = oneshot::channel();
        self.remote
            .report(claim, command, move |answer| drop(tell.send(answer)))?;
        told.await.unwrap_or(Err(Error::Stopping)).map(drop)
    }
}

/// A command that is refused has nothing more to change.
fn accepted<T>(answer: Result<T, Error>) -> Result<(), Error> {
    match answer {
        Ok(_) | Err(Error::Rejected(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a result was refused because the execution is over.
fn is_late(code: Code) -> bool {
    matches!(
        code,
        Code::LeaseLost
            | Code::StaleExecution
            | Code::StepNotRunning
            | Code::StepTerminal
            | Code::RunTerminal
    )
}

/// The failure that is recorded instead of a result that cannot be.
fn failure_of(command: &Command, code: &str, why: String) -> Option<Command> {
    let (Command::CompleteStep { claim, .. } | Command::WaitStep { claim, .. }) = command else {
        return None;
    };
    Some(Command::FailStep {
        claim: claim.clone(),
        error: StepError::new(ErrorClass::Validation, code, why),
        retryable: None,
        delay_ms: None,
        ctx: Default::default(),
    })
}
