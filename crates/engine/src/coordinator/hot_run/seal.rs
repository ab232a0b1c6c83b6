//! Sealing: turns the draft of a run into what the store is to write. The chunk of the log, the head,
//! the rows of the run's language and the snapshot are made here, from the state as it is then.

use std::collections::BTreeSet;

use stepwell_dialects::{RunChange, document};
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::state::{Phase, Status};
use stepwell_kernel::time::Time;

use super::draft::{Draft, Flight, Uncommitted};
use super::{Decided, HotRun, sealed_state};
use crate::chunk::{self, ChunkWriter};
use crate::coordinator::request::Origin;
use crate::coordinator::{Config, Message, worker_of};
use crate::engine_routes::LATE_MS;
use crate::error::Error;
use crate::rows::target_name;
use crate::store::{Append, Guard, Head, KeyChange, SessionNo, StateSnapshot, TaskChange};

/// A run whose next wake-up is closer than this stays with its session: giving it away and taking it
/// back would be two writes for nothing.
const HOLD_MS: u64 = 2_000;

/// The result of sealing a draft.
#[derive(Debug)]
pub(in crate::coordinator) enum Sealed {
    /// The append must be written; the run is in flight.
    Append(Append),
    /// There is nothing to write and nothing to confirm.
    Nothing(Append, Flight),
    /// The draft cannot be written.
    Failed(Error, Uncommitted),
}

impl HotRun {
    /// Turns the draft into what the store is to write; `None` if nothing is decided. `alone`: nobody else can have changed
    /// the run since it was read.
    pub(in crate::coordinator) fn seal(
        &mut self,
        (session, alone): (SessionNo, bool),
        config: &Config,
        chunks: &mut ChunkWriter,
        now: Time,
    ) -> Option<Sealed> {
        // What another server has is left to it: its work is in flight there, and its session is the
        // lease. It is told below, and sees to the head.
        let foreign = self.other_owner(session).is_some() && !self.state.phase().is_ended();
        let mut draft = self.draft.take()?;
        if let Some(fault) = &self.fault {
            let error = Error::from(fault.clone());
            return Some(Sealed::Failed(error, draft.into_uncommitted()));
        }
        let head = match foreign {
            true => self.head.clone(),
            false => self.head_now(&draft, session, config, now),
        };
        let changed = head != self.head;
        let mine = self.head.session == Some(session);
        // Only what the owner alone can have changed is left as it is.
        let known = (mine || alone) && !draft.doubts_head;
        // A time may have been put off by who looked for what is due; the head has it again.
        let timed = !mine && head.wake_at.is_some();
        let owned = mine || head.session == Some(session);
        draft.append.taken.extend(taken(&draft.decided));
        if draft.events.is_empty() {
            if !changed && !asks(&draft) {
                let (append, flight) = draft.send_off(now);
                return Some(Sealed::Nothing(append, flight));
            }
            draft.append.head_version = Some(self.head_version);
            draft.append.head = changed.then_some(head);
        } else {
            if let Err(error) = self.write_chunk(&mut draft, chunks) {
                return Some(Sealed::Failed(error, draft.into_uncommitted()));
            }
            let create = draft.append.create.is_some();
            if changed || !(known || foreign) || timed || create {
                draft.append.head = Some(head);
            }
            draft.append.unique_key = self.key_change(create);
            draft.append.view_rows = document::view_rows(RunChange {
                plan: &self.plan,
                state: &self.state,
                events: &draft.events,
                event_key: &self.event_key,
            });
            draft.append.sinks.clone_from(&config.sinks);
            draft.append.snapshot = self.snapshot(&draft, config.snapshot_bytes);
            if !known && !create {
                let withdrawn = self.withdrawn(&draft, owned);
                draft.append.tasks.extend(withdrawn);
            }
            if foreign {
                // The current owner gets a message that the run has changed: there may be work for it.
                draft.send(Message::from(Command::Proceed).to(&self.run_id));
            }
        }
        if owned {
            draft.guard(&Guard::Session);
        }
        let (append, flight) = draft.send_off(now);
        self.flight = Some(flight);
        Some(Sealed::Append(append))
    }

    /// Turns the draft into an append that nobody's session stands for; `None` if there is nothing to
    /// write.
    pub(crate) fn seal_alone(
        &mut self,
        config: &Config,
        now: Time,
    ) -> Result<Option<Append>, Error> {
        // Numbers of real sessions begin at 1.
        let nobody = (SessionNo(0), false);
        match self.seal(nobody, config, &mut ChunkWriter::default(), now) {
            Some(Sealed::Append(append)) => Ok(Some(append)),
            Some(Sealed::Failed(error, _)) => Err(error),
            Some(Sealed::Nothing(..)) | None => Ok(None),
        }
    }

    /// The head as it should be now.
    fn head_now(&self, draft: &Draft, session: SessionNo, config: &Config, now: Time) -> Head {
        // What is due by the time of the log is due, though the clock may have been set back since.
        let now = now.max(self.state.last_at());
        let (status, substatus) = document::contract_words(&self.state);
        let slots = draft.holds.as_ref().unwrap_or(&self.head.slots);
        let mut head = Head {
            status: status.to_owned(),
            substatus: substatus.map(str::to_owned),
            slots: slots.clone(),
            ..Head::default()
        };
        if self.state.phase().is_ended() {
            head.ended_at = self.state.ended_at();
            return head;
        }
        let due = self.due();
        let shared = self.work.is_shared();
        let claimable = !shared && self.work.first_ready().is_some_and(|at| at <= now);
        let owns = self.head.session == Some(session);
        let busy = self.work.has_jobs() || self.proceed || claimable;
        let busy = busy || (owns && self.has_lease_of(session));
        let mine = owns && !shared;
        if busy || (mine && due.is_some_and(|due| due <= now.plus(HOLD_MS))) {
            head.session = Some(session);
            return head;
        }
        let waits = matches!(self.state.phase(), Phase::Created | Phase::Queued);
        head.queued = self.state.phase() == Phase::Queued
            && (self.state.approved() || !self.plan.policy().needs_approval);
        // A run whose start time has passed waits for a slot or an approval, not for time.
        let due = due.filter(|due| !waits || *due > now);
        head.wake_at = match config.is_routed(self) {
            true => self.late_at(config),
            // Work that nobody begins is noticed too, though only a process that serves the engine can begin it.
            false if !config.is_of_this_engine(self) => {
                due.into_iter().chain(self.late_at(config)).min()
            }
            false => due,
        };
        head
    }

    /// When the engine outside that moves the run is late: it may have lost the run, or never have heard of it.
    fn late_at(&self, config: &Config) -> Option<Time> {
        let times = wake_sources(&self.plan, &self.state)
            .into_iter()
            .filter_map(|source| match source {
                WakeSource::Task {
                    target, visible_at, ..
                } => {
                    // What the tools of the processes of another engine can do is not known here.
                    let may = !config.is_of_this_engine(self) || config.has_tool(self, target);
                    may.then_some(visible_at)
                }
                WakeSource::Timer { due, .. } => Some(due),
                WakeSource::Proceed
                | WakeSource::Lease { .. }
                | WakeSource::Queue
                | WakeSource::Outside { .. }
                | WakeSource::Child { .. }
                | WakeSource::Operator
                | WakeSource::Ctx { .. } => None,
            });
        times.min().map(|at| at.plus(LATE_MS))
    }

    /// Whether the log says that the session has some of the run's work: the session is the lease, and nobody would
    /// notice its end in a head that does not name it. The work may have ended, with a result that waits.
    fn has_lease_of(&self, session: SessionNo) -> bool {
        let worker = worker_of(session);
        let open = self.state.open().iter().copied().map(Target::Step);
        let undo = self.state.undoing().and_then(|it| it.current());
        let mut targets = open.chain(undo.map(Target::Undo));
        targets.any(|target| {
            let run = self.state.target(target);
            let runs = run.filter(|it| it.status() == Status::Running);
            let lease = runs.and_then(|it| it.lease());
            lease.is_some_and(|lease| lease.worker == worker)
        })
    }

    /// A run takes its unique key with its creation and frees it with its end.
    fn key_change(&self, create: bool) -> Option<Box<KeyChange>> {
        let change = match (create, self.state.phase().is_ended()) {
            (true, false) => KeyChange::Take,
            (false, true) => KeyChange::Free,
            // It keeps what it has; or it is over before anyone could meet it.
            (false, false) | (true, true) => return None,
        };
        let tenant = &self.state.context().tenant_id;
        let key = self
            .plan
            .unique_key(tenant, &self.run_id, &self.event_key)?;
        Some(Box::new(change(key)))
    }

    /// What this append ends or pauses, or what this process is going to do itself, is offered to nobody any more.
    /// Another server may have offered it since the run was read: that writes no event, so an append of
    /// someone who does not own the run does not notice.
    fn withdrawn(&self, draft: &Draft, owned: bool) -> Vec<TaskChange> {
        let mut targets: BTreeSet<Target> = BTreeSet::new();
        for step in draft.events.iter().filter_map(|event| event.body.step()) {
            targets.extend([Target::Step(step), Target::Undo(step)]);
        }
        if owned {
            targets.extend(self.work.ready());
        }
        let pauses = |event: &Event| matches!(event.body, Body::RunPaused { .. });
        if draft.events.iter().any(pauses) {
            targets.extend(self.unclaimed());
        }
        let changed = |name: &String| draft.append.tasks.iter().any(|it| it.target() == name);
        let names = targets.into_iter().map(|at| target_name(&self.plan, at));
        names
            .filter(|name| !self.rows.has_task_named(name) && !changed(name))
            .map(|target| TaskChange::Delete { target })
            .collect()
    }

    /// The steps that are ready and that nobody has. Undos are not paused.
    fn unclaimed(&self) -> impl Iterator<Item = Target> + '_ {
        let open = self.state.open().iter().copied().map(Target::Step);
        open.filter(|target| {
            let run = self.state.target(*target);
            run.is_some_and(|it| matches!(it.status(), Status::Ready | Status::Waiting))
        })
    }

    fn write_chunk(&mut self, draft: &mut Draft, chunks: &mut ChunkWriter) -> Result<(), Error> {
        self.recorder.head().clone_into(&mut draft.before);
        let written = chunks.write(&mut self.recorder, &self.plan, &draft.events);
        let chunk = written.map_err(|source| Error::Schema {
            run_id: self.run_id.to_string(),
            source,
        })?;
        if let Some(depth) = chunk::too_deep(&chunk.body) {
            return Err(Error::Refused {
                run_id: self.run_id.to_string(),
                why: format!(
                    "it is nested {depth} deep in the log, which takes {}",
                    chunk::MAX_DEPTH
                ),
            });
        }
        draft.append.chunk = Some(chunk);
        Ok(())
    }

    /// The state, when the log since the last snapshot is longer than that was.
    fn snapshot(&self, draft: &Draft, at_least: usize) -> Option<StateSnapshot> {
        let chunk = draft.append.chunk.as_ref()?;
        let log = self.log_bytes + chunk.body.len();
        if log < at_least
            || log < self.snapshot_bytes.saturating_mul(4)
            || self.state.phase().is_ended()
        {
            return None;
        }
        let hash = chunk.digests.last_chunk()?;
        Some(sealed_state::seal(&self.state, hash))
    }
}

/// Messages that are done with the commit: those whose command was decided, and those that were refused or decided
/// before and whose sender looks for no answer. An event that goes back is taken by the store when it goes.
fn taken(decided: &[Decided]) -> impl Iterator<Item = crate::store::MessageNo> + '_ {
    let stays = decided.iter().filter(|it| !it.goes_back());
    stays.filter_map(|it| match it.request.origin {
        Origin::Message { no, reply } if !(reply && is_told(&it.answer)) => Some(no),
        Origin::Message { .. }
        | Origin::Sender(_)
        | Origin::Parent { .. }
        | Origin::Coordinator => None,
    })
}

/// Whether an answer says more than that the command was decided.
fn is_told(answer: &Result<Reply, Rejection>) -> bool {
    match answer {
        Ok(reply) => matches!(reply, Reply::Duplicate(_)),
        Err(_) => true,
    }
}

/// Whether a draft without events has something to write, or someone who waits for its confirmation.
fn asks(draft: &Draft) -> bool {
    let append = &draft.append;
    let asked = |it: &Decided| it.request.origin != Origin::Coordinator;
    !append.tasks.is_empty()
        || !append.mail.is_empty()
        || !append.taken.is_empty()
        || draft.decided.iter().any(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::{hot, store_with};
    use crate::coordinator::request::Request;
    use crate::coordinator::run_cache::{Room, RunCache};
    use crate::store::{MessageNo, RunNo};
    use stepwell_kernel::command::Reply;

    const MINE: SessionNo = SessionNo(41);

    fn stored() -> (RunCache, RunNo) {
        let (store, runs) = store_with(1);
        let mut cache = RunCache::new(store);
        let room = Room {
            limit: 9,
            session: MINE,
        };
        cache.load(runs[0], room).unwrap();
        (cache, runs[0])
    }

    fn seal(hot: &mut HotRun, now: Time) -> Option<Sealed> {
        let mine = (MINE, false);
        hot.seal(mine, &Config::default(), &mut ChunkWriter::default(), now)
    }

    fn sealed(hot: &mut HotRun) -> Append {
        match seal(hot, Time(2_000)) {
            Some(Sealed::Append(append)) => append,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_without_a_draft_has_nothing_to_seal() {
        let mut hot = hot(1, &["a"]);
        assert!(seal(&mut hot, Time(1)).is_none());
    }

    #[test]
    fn an_empty_draft_of_an_unchanged_run_writes_nothing() {
        let (mut cache, run) = stored();
        let hot = cache.get_mut(run).unwrap();
        hot.draft();
        let sealed = seal(hot, Time(2_000));
        assert!(matches!(sealed, Some(Sealed::Nothing(..))));
        assert!(!hot.is_changing());
    }

    #[test]
    fn a_refused_command_of_a_sender_is_confirmed_by_the_version_of_the_head() {
        let (mut cache, run) = stored();
        let hot = cache.get_mut(run).unwrap();
        let origin = Origin::Message {
            no: MessageNo(3),
            reply: false,
        };
        hot.decided(Request::new(Command::Proceed, origin), Ok(Reply::Done));
        let append = sealed(hot);
        assert!(append.chunk.is_none() && append.head.is_none());
        assert_eq!(append.taken, [MessageNo(3)]);
        assert!(append.head_version.is_some());
        assert!(hot.is_in_flight());
        let (before, flight) = (append.head_version, hot.land());
        assert!(flight.is_some());
        hot.settle(&append);
        hot.decided(Request::new(Command::Proceed, origin), Ok(Reply::Done));
        let next = sealed(hot).head_version;
        assert_eq!(next, before.map(|version| version + 1));
    }

    #[test]
    fn work_for_this_process_makes_the_run_its_own() {
        let (mut cache, run) = stored();
        let hot = cache.get_mut(run).unwrap();
        hot.add_ready(crate::coordinator::fixture::target(0), Time(0));
        hot.draft();
        let append = sealed(hot);
        assert_eq!(append.head.unwrap().session, Some(MINE));
        assert_eq!(append.guards, [Guard::Session]);
    }
}
