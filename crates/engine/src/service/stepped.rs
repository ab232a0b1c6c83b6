//! The engine without threads, for the simulator: the same loops and the same actors as a service has, but their owner
//! says which of them takes the next step, and when the answer of an actor reaches its loop. With a clock and a store that
//! the owner controls, the same steps give the same log.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use stepwell_kernel::command::{Command, Reply};

use super::actor::{Actor, Answer, Step};
use super::committer::CommitPipeline;
use super::service_loop::{ShardSetup, Turn};
use super::shared::SharedWorker;
use super::stats::Stats;
use super::{Handle, Input, ServiceLoop, Setup, Worker, share_out};
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::session_renewer::SessionRenewer;
use crate::shard::Shard;
use crate::store::{Guard, RunNo, StoreError};

/// An engine whose owner steps it.
pub struct SteppedService<W> {
    handle: Handle,
    loops: Vec<ServiceLoop<SharedWorker<W>>>,
    actors: Vec<Box<dyn Actor>>,
    /// What keeps the sessions of the loops, where other processes share the store.
    renewers: Vec<SessionRenewer>,
    /// Answers that the loops have not got yet.
    answers: Vec<Answer>,
    _pipeline: CommitPipeline,
}

/// What a loop did in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The loop took the inputs that had come in.
    Busy,
    /// The loop has nothing to do for so long, unless an input comes.
    Idle(Duration),
    /// The loop has stopped, as it was asked to.
    Ended,
}

impl<W> std::fmt::Debug for SteppedService<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteppedService")
            .field("shards", &self.loops.len())
            .field("answers", &self.answers.len())
            .finish_non_exhaustive()
    }
}

impl<W: Worker> SteppedService<W> {
    /// Opens the sessions of all shards. The clock must not be virtual: the loops are to do what they do in a service.
    pub fn open(setup: Setup<W>) -> Result<SteppedService<W>, StoreError> {
        let shards: Vec<Shard> = Shard::all(setup.shards).collect();
        let (handle, inputs) = Handle::new(shards.len());
        let (pipeline, committing) = CommitPipeline::new(&setup.store);
        let stats = Arc::<Stats>::default();
        let parts = ShardSetup::all(&shards, &handle, inputs, Some(&pipeline), &stats);
        let loops: Result<Vec<_>, StoreError> = share_out(setup, parts).collect();
        let mut loops = loops?;
        let mut actors: Vec<Box<dyn Actor>> = Vec::new();
        actors.extend(committing.into_iter().map(|it| Box::new(it) as Box<_>));
        for service_loop in &mut loops {
            let actor = service_loop.deliveries.actor(&service_loop.inbox);
            actors.push(Box::new(actor));
        }
        let renewers = loops.iter().filter_map(ServiceLoop::renewer).collect();
        Ok(SteppedService {
            renewers,
            handle,
            loops,
            actors,
            answers: Vec::new(),
            _pipeline: pipeline,
        })
    }

    /// A handle to talk to the engine. Its answers come in later steps.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How many loops there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.loops.len()
    }

    /// The coordinator of a shard, to look at.
    #[must_use]
    pub fn coordinator(&self, shard: usize) -> &Coordinator {
        self.loops[shard % self.loops.len()].coordinator()
    }

    /// One turn of the loop of a shard, with all inputs that are there.
    pub fn turn(&mut self, shard: usize) -> Turned {
        let index = shard % self.loops.len();
        let service_loop = &mut self.loops[index];
        match service_loop.turn() {
            Turn::Take(input) => {
                service_loop.take_waiting(Some(input));
                Turned::Busy
            }
            Turn::Wait(nap) => Turned::Idle(nap),
            Turn::Ended => Turned::Ended,
        }
    }

    /// How many actors there are.
    #[must_use]
    pub fn actors(&self) -> usize {
        self.actors.len()
    }

    /// One step of an actor. Its answers wait until they are delivered. Says whether there was work.
    pub fn step(&mut self, actor: usize) -> bool {
        let index = actor % self.actors.len();
        match self.actors[index].step(false) {
            Step::Done(answers) => {
                self.answers.extend(answers);
                true
            }
            Step::Idle | Step::Ended => false,
        }
    }

    /// Lets a renewer look after its session, as its thread does in time. Says whether there was one.
    pub fn renew(&mut self, renewer: usize) -> bool {
        let count = self.renewers.len().max(1);
        let renewer = self.renewers.get_mut(renewer % count);
        renewer.map(SessionRenewer::poll).is_some()
    }

    /// How many answers wait to be delivered.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// Delivers one of the answers to its loop. Says whether there was one.
    pub fn deliver(&mut self, answer: usize) -> bool {
        if answer >= self.answers.len() {
            return false;
        }
        self.answers.remove(answer).deliver();
        true
    }

    /// One of the answers never arrives, as after a bug. Says whether there was one.
    pub fn lose(&mut self, answer: usize) -> bool {
        let there = answer < self.answers.len();
        if there {
            self.answers.remove(answer);
        }
        there
    }

    /// Asks all loops to stop, with no time for work in flight: their next turns end them.
    pub fn ask_to_stop(&self) {
        let (answer, _) = mpsc::channel();
        for inbox in &*self.handle.inboxes {
            let _ = inbox.send(Input::Stop(Duration::ZERO, answer.clone()));
        }
    }

    /// A command of a worker in another process, which counts only if `guard` holds when the command is committed.
    pub fn submit_guarded(
        &mut self,
        (run, run_id): (RunNo, &str),
        command: Command,
        guard: Guard,
        on_answer: impl FnOnce(Result<Reply, Error>) + Send + 'static,
    ) {
        let shard = Shard::of_run(run, self.loops.len());
        let service_loop = &mut self.loops[shard];
        let now = service_loop.clock().now();
        let ticket = service_loop.ticket(Box::new(on_answer));
        let coordinator = service_loop.coordinator_mut();
        coordinator.submit_guarded(run_id, command, guard, ticket, now);
        service_loop.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use stepwell_dialects::{Source, load};
    use stepwell_kernel::event::Patch;

    use super::*;
    use crate::coordinator::{Assignment, Serves};
    use crate::service::Reporter;
    use crate::start::StartRequest;
    use crate::store::{MemoryStore, RunFilter, RunReader as _};

    /// Completes all work at once.
    struct Quick;

    impl Worker for Quick {
        fn start(&mut self, assignment: Assignment, reporter: &Reporter) {
            let result = Command::CompleteStep {
                claim: assignment.claimed.claim.clone(),
                output: serde_json::Value::Null,
                ctx: Patch::new(),
                artifacts: Vec::new(),
            };
            reporter.report(&assignment, result);
        }
    }

    #[test]
    fn nothing_is_committed_or_answered_before_its_step() {
        let text =
            b"workflowType: a.b\nworkflowVersion: 1\nsteps: [{stepType: PACK}, {stepType: SHIP}]\n";
        let source = Source::from_bytes("a.yaml", text).unwrap();
        let plan = Arc::new(load(&source).plan.unwrap());
        let store = Arc::new(MemoryStore::default());
        let mut setup = Setup::new(store.clone(), Quick);
        setup.shards = 2;
        setup.config.serves = Serves::Everything;
        let mut engine = SteppedService::open(setup).unwrap();
        let request = StartRequest {
            run_id: "run_a".into(),
            ..StartRequest::default()
        };
        let started = engine.handle().start_later(&plan, request).unwrap();
        let turn_all = |engine: &mut SteppedService<Quick>| {
            for _ in 0..4 {
                for shard in 0..2 {
                    engine.turn(shard);
                }
            }
        };
        turn_all(&mut engine);
        assert_eq!(store.find("run_a").unwrap(), None, "no actor had a step");
        assert!((0..engine.actors()).any(|actor| engine.step(actor)));
        assert!(store.find("run_a").unwrap().is_some());
        turn_all(&mut engine);
        assert!(started.try_recv().is_err(), "the answer is on its way");
        for _ in 0..50 {
            while engine.deliver(0) {}
            turn_all(&mut engine);
            for actor in 0..engine.actors() {
                engine.step(actor);
            }
        }
        assert_eq!(started.try_recv().unwrap().unwrap(), "run_a");
        let all = RunFilter {
            limit: 9,
            ..RunFilter::default()
        };
        let rows = store.list(&all).unwrap();
        assert!(rows[0].head.ended_at.is_some(), "{rows:?}");
        engine.ask_to_stop();
        assert_eq!(
            [engine.turn(0), engine.turn(0)],
            [Turned::Busy, Turned::Ended]
        );
    }
}
