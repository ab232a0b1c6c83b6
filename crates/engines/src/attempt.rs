//! An attempt: one execution of a step or of an undo, from its claim to its written result. The same on every engine outside;
//! an engine only says where the attempt happens and listens to its heartbeats.
//!
//! The claim is written before the work begins. If the store does not write it within the write budget, the work begins without
//! it (the contract calls this *fail open*): the claim is written as soon as the store answers, before the result (`claim`). Until
//! then the heartbeats of the attempt carry the claim, so that the engine keeps it. A result never overtakes its claim. If the
//! result cannot be written within the budget, the attempt ends with the result as its value, and the engine keeps that (`kept`).
//!
//! A lease that could not be renewed because the store was away is revived, unless someone has ended it: the time that the store
//! was away is nobody's loss, and the service ends no lease right after it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stepwell_engine::Error;
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::remote::{LeaseState, RemoteClaim};
use stepwell_kernel::command::Command;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::claim::{ClaimAnswer, ClaimEnd, Claiming, REFUSED_WAIT};
use crate::driver::{Driver, TurnError};
use crate::turn::{KeptReport, Turn, WorkItem};

/// How long the lease of an attempt lasts without a heartbeat, in milliseconds.
pub const LEASE_MS: u64 = 10_000;
/// How often an attempt renews its lease in the store.
const RENEW: Duration = Duration::from_secs(3);
/// How often an attempt tells the engine outside that it is alive.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// How often an attempt looks whether the one before has ended.
const EARLIER: Duration = Duration::from_millis(50);
/// The largest result that is left with the engine, in bytes of JSON. A larger one waits for the store.
const MAX_KEPT: usize = 512 * 1024;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AttemptEnd {
    /// Everything is in the store; this is what the run waits for now.
    Written(Turn),
    /// The store did not answer in time: the engine keeps this and brings it with the next turn.
    Kept(KeptReport),
}

/// Who watches an attempt: the engine outside.
pub trait AttemptWatch: Send + Sync {
    /// The attempt is alive. `unwritten`: its claim is not in the store yet, and the engine keeps it with the heartbeat.
    fn beat(&self, unwritten: Option<&KeptReport>) -> impl Future<Output = ()> + Send;
    /// Ends when the engine wants the attempt to stop.
    fn stopped(&self) -> impl Future<Output = ()> + Send;
}

impl Driver {
    /// Does one attempt: claims the work, does it, and writes its result.
    pub async fn attempt(
        self: &Arc<Self>,
        run_id: &str,
        item: &WorkItem,
        watch: &impl AttemptWatch,
    ) -> Result<AttemptEnd, TurnError> {
        let key = (run_id.to_owned(), item.target.clone(), item.execution);
        let Some(stop) = self.begin(&key) else {
            // The engine has started it twice; the other one reports.
            tokio::time::sleep(REFUSED_WAIT).await;
            return Ok(AttemptEnd::Written(self.turn(run_id, None, None).await?));
        };
        // The next attempt begins when nothing of the one before is left, whatever the one before does with its time to stop.
        while self.has_earlier(&key) {
            watch.beat(None).await;
            tokio::time::sleep(EARLIER).await;
        }
        let end = self.claim_and_work(run_id, item, watch, &stop).await;
        if let Err(error) = &end {
            tracing::debug!(run = run_id, step = item.target, %error, "an attempt could not be made yet");
        }
        match &end {
            // It is under way until the store has its result: an engine that starts it again finds it here.
            Ok(AttemptEnd::Kept(report)) => self.write_soon(key, report.clone()),
            Ok(AttemptEnd::Written(_)) | Err(_) => self.end(&key),
        }
        end
    }

    async fn claim_and_work(
        self: &Arc<Self>,
        run_id: &str,
        item: &WorkItem,
        watch: &impl AttemptWatch,
        stop: &CancellationToken,
    ) -> Result<AttemptEnd, TurnError> {
        let ClaimEnd::Work(assignment, mut claiming) = self.claim(run_id, item, watch).await?
        else {
            return Ok(AttemptEnd::Written(self.turn(run_id, None, None).await?));
        };
        let claim = RemoteClaim::of(&assignment);
        let worked = self.work(*assignment, &mut claiming, item, watch, stop);
        let Some(command) = worked.await else {
            // The lease was lost: others do the work, and the result counts no longer.
            return Ok(AttemptEnd::Written(self.turn(run_id, None, None).await?));
        };
        if self
            .deliver(&claim, claiming, &command, item, watch)
            .await?
        {
            return Ok(AttemptEnd::Written(self.turn(run_id, None, None).await?));
        }
        tracing::warn!(
            run = run_id,
            step = item.target,
            "the store did not write a result within the write budget; the engine keeps the result until it does"
        );
        Ok(AttemptEnd::Kept(KeptReport::Result {
            target: item.target.clone(),
            execution: item.execution,
            worker: self.setup.worker.clone(),
            command: Box::new(command),
        }))
    }

    /// Does the work of an assignment; none if the lease was lost meanwhile.
    async fn work(
        &self,
        assignment: Assignment,
        claiming: &mut Option<Claiming<'_>>,
        item: &WorkItem,
        watch: &impl AttemptWatch,
        stop: &CancellationToken,
    ) -> Option<Command> {
        let claim = RemoteClaim::of(&assignment);
        let (run, target, execution) = (claim.run, claim.target, claim.execution);
        let crew = &self.setup.crew;
        let (tell, mut told) = oneshot::channel();
        crew.begin(assignment, move |_, result| drop(tell.send(result)));
        let (mut beats, mut renew_at) = (tokio::time::interval(BEAT), Instant::now() + RENEW);
        let (mut told_to_stop, mut lost) = (false, false);
        loop {
            tokio::select! {
                result = &mut told => {
                    // Work whose claim others have won counts for nothing.
                    return result.ok().filter(|_| !lost);
                }
                answer = answer_of(claiming) => match answer {
                    Ok(ClaimAnswer::Ours(_)) => {
                        *claiming = None;
                        renew_at = Instant::now();
                    }
                    // This process stops: the engine keeps what is known.
                    Err(Error::Stopping) => *claiming = Some(Box::pin(std::future::pending())),
                    Ok(ClaimAnswer::Refused(_) | ClaimAnswer::NoWork) | Err(_) => {
                        *claiming = None;
                        lost = true;
                        crew.stop(run, target, execution);
                    }
                },
                () = stop.cancelled(), if !told_to_stop => {
                    told_to_stop = true;
                    crew.stop(run, target, execution);
                }
                () = watch.stopped(), if !told_to_stop => {
                    told_to_stop = true;
                    crew.stop(run, target, execution);
                }
                _ = beats.tick() => {
                    let begun = self.begun(item);
                    watch.beat(claiming.is_some().then_some(&begun)).await;
                    if claiming.is_none() && Instant::now() >= renew_at {
                        renew_at = Instant::now() + RENEW;
                        match self.renew(&claim).await {
                            Some(LeaseState::Lost) => {
                                lost = true;
                                crew.stop(run, target, execution);
                            }
                            Some(LeaseState::Stopping) => {
                                told_to_stop = true;
                                crew.stop(run, target, execution);
                            }
                            Some(LeaseState::Held) | None => {}
                        }
                    }
                }
            }
        }
    }

    /// Extends the lease; none if the store does not answer: the lease is revived when it does.
    async fn renew(&self, claim: &RemoteClaim) -> Option<LeaseState> {
        // A store that hangs must not keep the attempt from its heartbeats.
        let asked = tokio::time::timeout(self.setup.write_budget, self.revive(claim));
        asked.await.ok()?.ok()
    }

    fn begun(&self, item: &WorkItem) -> KeptReport {
        KeptReport::Begun {
            target: item.target.clone(),
            execution: item.execution,
            worker: self.setup.worker.clone(),
        }
    }

    /// Writes the result, after its claim. Says whether that was done within the budget; the engine keeps what was not, unless it is
    /// too large for the engine: then the store is waited for.
    async fn deliver(
        &self,
        claim: &RemoteClaim,
        claiming: Option<Claiming<'_>>,
        command: &Command,
        item: &WorkItem,
        watch: &impl AttemptWatch,
    ) -> Result<bool, TurnError> {
        let size = serde_json::to_vec(command).map_or(usize::MAX, |json| json.len());
        let can_keep = size <= MAX_KEPT;
        let mut beats = tokio::time::interval(BEAT);
        let budget = tokio::time::sleep(self.setup.write_budget);
        let is_unwritten = claiming.is_some();
        let writing = async {
            if let Some(claiming) = claiming {
                claiming.await?;
            }
            self.report(claim, command.clone()).await
        };
        tokio::pin!(budget, writing);
        loop {
            tokio::select! {
                written = &mut writing => return match written {
                    Ok(()) => Ok(true),
                    Err(error) if can_keep => {
                        tracing::debug!(run = claim.run_id, %error, "a result could not be written yet");
                        Ok(false)
                    }
                    Err(error) => Err(error.into()),
                },
                _ = beats.tick() => {
                    let begun = self.begun(item);
                    watch.beat(is_unwritten.then_some(&begun)).await;
                }
                () = &mut budget, if can_keep => return Ok(false),
            }
        }
    }
}

/// Waits for the answer to a claim; never ends if none is awaited.
async fn answer_of(claiming: &mut Option<Claiming<'_>>) -> Result<ClaimAnswer, Error> {
    match claiming {
        Some(claiming) => claiming.await,
        None => std::future::pending().await,
    }
}
