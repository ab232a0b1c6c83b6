//! An attempt: one execution of a step or of an undo, from its claim to its written result. The same on every engine outside;
//! an engine only says where the attempt happens and listens to its heartbeats.
//!
//! The claim is written before the work begins. If the store does not write it within the write budget, the work begins without
//! it (the contract calls this *fail open*): the claim is written as soon as the store answers, before the result. Until then the
//! heartbeats of the attempt carry the claim, so that the engine keeps it. A result never overtakes its claim. If the result
//! cannot be written within the budget, the attempt ends with the result as its value, and the engine keeps that.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stepwell_engine::Error;
use stepwell_engine::coordinator::{Assignment, HotRun};
use stepwell_engine::remote::{LeaseState, RemoteClaim};
use stepwell_engine::rows::parse_target;
use stepwell_engine::store::RunNo;
use stepwell_kernel::command::{Claimed, Command, Env, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::time::Time;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, TurnError};
use crate::turn::{KeptReport, Turn, WorkItem};

/// How long the lease of an attempt lasts without a heartbeat, in milliseconds.
pub const LEASE_MS: u64 = 10_000;
/// How often an attempt renews its lease in the store.
const RENEW: Duration = Duration::from_secs(3);
/// How often an attempt tells the engine outside that it is alive.
const BEAT: Duration = Duration::from_secs(1);
/// How long an attempt whose claim was refused waits before the engine asks again: the reason may last.
const REFUSED_WAIT: Duration = Duration::from_millis(500);
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

/// What is known of a piece of work before its claim is written.
struct Prepared {
    run: RunNo,
    command: Command,
    /// What the worker gets; exact unless others move the run first.
    expected: Result<Assignment, Rejection>,
}

/// A claim that is being written.
type Answer = oneshot::Receiver<Result<Reply, Error>>;

/// What a claim came to.
enum ClaimEnd {
    /// The work is to be done. The answer is still awaited if the claim is not written.
    Work(Box<Assignment>, Option<Answer>),
    /// There is nothing to do, or no longer.
    Nothing,
}

impl Driver {
    /// Does one attempt: claims the work, does it, and writes its result.
    pub async fn attempt(
        &self,
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
        self.end(&key);
        end
    }

    async fn claim_and_work(
        &self,
        run_id: &str,
        item: &WorkItem,
        watch: &impl AttemptWatch,
        stop: &CancellationToken,
    ) -> Result<AttemptEnd, TurnError> {
        match self.claim(run_id, item, watch).await? {
            ClaimEnd::Nothing => Ok(AttemptEnd::Written(self.turn(run_id, None, None).await?)),
            ClaimEnd::Work(assignment, answer) => {
                let claim = RemoteClaim::of(&assignment);
                let result = self.work(*assignment, answer, item, watch, stop).await;
                match result {
                    Some(command) => self.deliver(run_id, item, &claim, command, watch).await,
                    // The lease was lost: others do the work, and the result counts no longer.
                    None => Ok(AttemptEnd::Written(self.turn(run_id, None, None).await?)),
                }
            }
        }
    }

    /// Claims the work. Waits for the store as long as the write budget allows.
    async fn claim(
        &self,
        run_id: &str,
        item: &WorkItem,
        watch: &impl AttemptWatch,
    ) -> Result<ClaimEnd, TurnError> {
        let Some(prepared) = self.prepare(run_id, item).await? else {
            return Ok(ClaimEnd::Nothing);
        };
        let (tell, mut answer) = oneshot::channel();
        let on_answer = move |reply| drop(tell.send(reply));
        self.setup
            .handle
            .submit_with(run_id, prepared.command.clone(), on_answer)?;
        let mut beats = tokio::time::interval(BEAT);
        let budget = tokio::time::sleep(self.setup.write_budget);
        tokio::pin!(budget);
        loop {
            tokio::select! {
                reply = &mut answer => return self.claimed(run_id, reply).await,
                _ = beats.tick() => watch.beat(None).await,
                () = &mut budget => break,
            }
        }
        let expected = match prepared.expected {
            Ok(expected) => expected,
            // Nothing can be begun without the store's answer.
            Err(_) => loop {
                tokio::select! {
                    reply = &mut answer => return self.claimed(run_id, reply).await,
                    _ = beats.tick() => watch.beat(None).await,
                }
            },
        };
        tracing::warn!(
            run = run_id,
            step = item.target,
            number = prepared.run.0,
            "the store did not write the start of a step within the write budget; the step begins, and its start is written \
             when the store answers"
        );
        Ok(ClaimEnd::Work(Box::new(expected), Some(answer)))
    }

    async fn claimed(
        &self,
        run_id: &str,
        reply: Result<Result<Reply, Error>, oneshot::error::RecvError>,
    ) -> Result<ClaimEnd, TurnError> {
        match reply.unwrap_or(Err(Error::Stopping)) {
            Ok(Reply::Claimed(claimed)) => {
                let assign = move |hot: &HotRun| hot.assignment(*claimed);
                let assignment = self.visit(run_id, false, assign).await?;
                Ok(ClaimEnd::Work(Box::new(assignment), None))
            }
            // The step ended without work, as one that has nothing to loop over.
            Ok(_) => Ok(ClaimEnd::Nothing),
            Err(Error::Rejected(why)) => {
                tracing::debug!(run = run_id, code = why.code.name(), "a claim was refused");
                tokio::time::sleep(REFUSED_WAIT).await;
                Ok(ClaimEnd::Nothing)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the claim of an item is, and what it will give; none if the execution is out of date.
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
            let command = claim_of(
                target,
                worker,
                now.max(hot.state().last_at()).plus(LEASE_MS),
            );
            let expected = hot.expected_claim(&command, &env);
            Some(Prepared {
                run: hot.run(),
                command,
                expected: expected.map(|claimed: Claimed| hot.assignment(claimed)),
            })
        };
        self.visit(run_id, false, look).await
    }

    /// Does the work of an assignment; none if the lease was lost meanwhile.
    async fn work(
        &self,
        assignment: Assignment,
        mut answer: Option<Answer>,
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
                reply = wait_for(&mut answer) => {
                    answer = None;
                    if !matches!(reply, Ok(Reply::Claimed(_))) {
                        lost = true;
                        crew.stop(run, target, execution);
                    }
                }
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
                    watch.beat(answer.is_some().then_some(&begun)).await;
                    if answer.is_none() && Instant::now() >= renew_at {
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

    /// Extends the lease; none if the store does not answer, and nobody can take the lease away meanwhile.
    async fn renew(&self, claim: &RemoteClaim) -> Option<LeaseState> {
        let (remote, claim) = (self.remote.clone(), claim.clone());
        let asked = tokio::task::spawn_blocking(move || remote.heartbeat(&claim, LEASE_MS));
        // A store that hangs must not keep the attempt from its heartbeats.
        match tokio::time::timeout(self.setup.write_budget, asked).await {
            Ok(Ok(Ok(state))) => Some(state),
            Ok(_) | Err(_) => None,
        }
    }

    fn begun(&self, item: &WorkItem) -> KeptReport {
        KeptReport::Begun {
            target: item.target.clone(),
            execution: item.execution,
            worker: self.setup.worker.clone(),
        }
    }

    /// Writes the result. If the store does not answer within the budget, the engine keeps the result.
    async fn deliver(
        &self,
        run_id: &str,
        item: &WorkItem,
        claim: &RemoteClaim,
        command: Command,
        watch: &impl AttemptWatch,
    ) -> Result<AttemptEnd, TurnError> {
        let size = serde_json::to_vec(&command).map_or(usize::MAX, |json| json.len());
        let mut beats = tokio::time::interval(BEAT);
        let budget = tokio::time::sleep(self.setup.write_budget);
        let writing = self.report(claim, command.clone());
        tokio::pin!(budget, writing);
        let mut in_time = true;
        loop {
            tokio::select! {
                written = &mut writing => match written {
                    Ok(()) => return Ok(AttemptEnd::Written(self.turn(run_id, None, None).await?)),
                    Err(_) if size <= MAX_KEPT => break,
                    Err(error) => return Err(error.into()),
                },
                _ = beats.tick() => watch.beat(None).await,
                () = &mut budget, if in_time => {
                    in_time = false;
                    if size <= MAX_KEPT {
                        break;
                    }
                }
            }
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

fn claim_of(target: Target, worker: String, lease_until: Time) -> Command {
    Command::ClaimStep {
        target,
        worker,
        lease_until,
    }
}

/// Waits for the answer to a claim; never ends if none is awaited.
async fn wait_for(answer: &mut Option<Answer>) -> Result<Reply, Error> {
    match answer {
        Some(answer) => answer.await.unwrap_or(Err(Error::Stopping)),
        None => std::future::pending().await,
    }
}
