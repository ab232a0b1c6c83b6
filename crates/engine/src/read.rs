//! Reading a run out of a store: its events, its plan, and the state that follows from them. This is the
//! one way to fold a run for those who only look at it; nobody need be running.

use std::fmt;
use std::sync::Arc;

use stepwell_kernel::contract::Record;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::evolve::{IllegalEvent, evolve};
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use crate::chain_check::ChainCheck;
use crate::chunk::{DIGESTS, UnknownPart};
use crate::error::Error;
use crate::store::{Head, PlanNo, PlanRow, Plans, RunNo, RunSummary, Store, StoredChunk};

/// Where logs of runs are read: a store, or a server that has one. Everything that shows a run is made from these four
/// answers, so a run looks the same wherever it is.
pub trait RunSource: fmt::Debug + Send + Sync {
    /// The number of a run. Numbers of two sources have nothing to do with each other.
    fn find_run(&self, run_id: &str) -> Result<Option<RunNo>, Error>;

    /// What is known of a run before its log is read.
    fn run_header(&self, run: RunNo) -> Result<Option<RunHeader>, Error>;

    /// Chunks of the log of a run that hold events after `after`, in order, at most `limit`.
    fn log_chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>, Error>;
}

/// What is known of a run before its log is read.
#[derive(Clone, Debug)]
pub struct RunHeader {
    pub run_id: String,
    pub head: Head,
    /// The plan of the run as it is kept; absent if it is missing.
    pub plan: Option<PlanRow>,
    /// Secrets that the plan has written out are masked: it is shown, and not the very plan that the log names.
    pub is_masked: bool,
    /// Why the run is in quarantine, if it is.
    pub damage: Option<String>,
}

impl<S: Store> RunSource for S {
    fn find_run(&self, run_id: &str) -> Result<Option<RunNo>, Error> {
        Ok(self.find(run_id)?)
    }

    fn run_header(&self, run: RunNo) -> Result<Option<RunHeader>, Error> {
        let Some(stored) = self.load(run)? else {
            return Ok(None);
        };
        let damaged = self.quarantined()?.into_iter().find(|it| it.0 == run);
        Ok(Some(RunHeader {
            plan: self.plan(stored.plan)?,
            run_id: stored.run_id,
            head: stored.head,
            is_masked: false,
            damage: damaged.map(|(_, why)| why),
        }))
    }

    fn log_chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>, Error> {
        Ok(self.chunks(run, after, limit)?)
    }
}

/// A run that is read from its log, as far as it was read.
#[derive(Debug)]
pub struct LoggedRun {
    /// The run's number in its store.
    pub run: RunNo,
    pub plan: Arc<Plan>,
    /// The state after the last event that was read.
    pub state: State,
    /// The run's head when the run was opened.
    pub head: Head,
    /// The hash chain, verified as far as the events were read.
    chain: ChainCheck,
    /// The event that ends the run was read.
    has_end: bool,
    /// The event that could not be folded, because a newer version wrote events before it that this version does not
    /// know. The state is that before the event.
    lost_track: Option<IllegalEvent>,
}

impl LoggedRun {
    /// Finds a run; none of its events is read yet.
    pub fn open(source: &dyn RunSource, run_id: &str) -> Result<LoggedRun, Error> {
        let unknown = || Error::UnknownRun(run_id.to_owned());
        LoggedRun::numbered(source, source.find_run(run_id)?.ok_or_else(unknown)?)
    }

    /// Finds a run by its number; none of its events is read yet.
    pub fn numbered(source: &dyn RunSource, run: RunNo) -> Result<LoggedRun, Error> {
        let found = source.run_header(run)?;
        let found = found.ok_or_else(|| Error::UnknownRun(format!("number {}", run.0)))?;
        let run_id = found.run_id;
        if let Some(why) = found.damage {
            return Err(Error::Quarantined { run_id, why });
        }
        let plan = compiled(found.plan, &run_id)?;
        Ok(LoggedRun {
            run,
            state: State::new(&run_id, &plan),
            chain: match found.is_masked {
                true => ChainCheck::of_shown_plan(&run_id),
                false => ChainCheck::new(&run_id),
            },
            plan,
            head: found.head,
            has_end: false,
            lost_track: None,
        })
    }

    /// The events of the run that were committed since the last call, with their hash chain verified. They
    /// are not folded: see `fold`.
    pub fn unread(&mut self, source: &dyn RunSource) -> Result<Vec<Event>, Error> {
        self.unread_chunks(source, usize::MAX)
    }

    /// The same for this many commits at most, so that a reader who is far behind need not have all of it in memory.
    /// Nothing is left to read if the answer is empty.
    pub fn unread_chunks(
        &mut self,
        source: &dyn RunSource,
        most: usize,
    ) -> Result<Vec<Event>, Error> {
        let events = verified(source, self.run, &self.plan, &mut self.chain, most)?;
        let is_end = |it: &Event| {
            matches!(
                it.body,
                Body::RunCompleted { .. } | Body::RunFailed { .. } | Body::RunCancelled { .. }
            )
        };
        self.has_end |= events.iter().any(is_end);
        // The head was read before the log: a run has a first event, and one that has ended has a last one.
        let is_all = most == usize::MAX || events.is_empty();
        let is_short = self.chain.seq() == 0 || (self.head.ended_at.is_some() && !self.has_end);
        if is_all && is_short {
            return Err(self.chain.missing());
        }
        Ok(events)
    }

    /// The sequence number of the last event that was read.
    #[must_use]
    pub fn last_read(&self) -> u64 {
        self.chain.seq()
    }

    /// Folds the next event of the run. An event that cannot follow means that the log is damaged, or that a newer
    /// version wrote events before it that this version does not know; the state is then not folded any further.
    pub fn fold(&mut self, event: &Event) -> Result<(), Error> {
        if self.lost_track.is_some() {
            return Ok(());
        }
        match evolve(&self.plan, &mut self.state, event, &mut Vec::new()) {
            Ok(()) => Ok(()),
            Err(source) if !self.chain.unknown().is_empty() => {
                self.lost_track = Some(source);
                Ok(())
            }
            Err(source) => Err(Error::LogInvalid {
                run_id: self.state.run_id().to_owned(),
                source,
            }),
        }
    }

    /// What the log has that this version does not know, in words; empty if it knows everything. A newer version wrote
    /// it, and this version passes it over.
    #[must_use]
    pub fn unknown_to_this_version(&self) -> Vec<String> {
        let unknown = self.chain.unknown().iter();
        let mut notes: Vec<String> = unknown.map(UnknownPart::to_string).collect();
        let lost = self.lost_track.as_ref();
        notes.extend(lost.map(|illegal| {
            format!(
                "{illegal}; what is shown is the run before that event: use the newer version that wrote the run"
            )
        }));
        notes
    }

    /// Reads and folds the events that were committed since the run was last read, and returns them.
    pub fn catch_up(&mut self, source: &dyn RunSource) -> Result<Vec<Event>, Error> {
        let unread = self.unread(source)?;
        for event in &unread {
            self.fold(event)?;
        }
        Ok(unread)
    }
}

/// Refuses a run that is in quarantine.
fn is_served(store: &dyn Store, run: RunNo, run_id: &str) -> Result<(), Error> {
    let damaged = store.quarantined()?.into_iter().find(|it| it.0 == run);
    match damaged {
        Some((_, why)) => Err(Error::Quarantined {
            run_id: run_id.to_owned(),
            why,
        }),
        None => Ok(()),
    }
}

/// The types of the events that end a run.
const ENDS: [&str; 3] = ["RunCompleted", "RunFailed", "RunCancelled"];

/// The log of a run as it is stored, record by record: also what this version does not know.
#[derive(Debug)]
pub struct LogRecords {
    run: RunNo,
    /// The version of the run's plan.
    version: String,
    chain: ChainCheck,
    /// The event that ends the run must be read yet: its head says that it has ended.
    awaits_end: bool,
    /// The event that ends the run was read.
    has_end: bool,
    /// What was read and this version does not know; absent if nobody asks.
    unknown: Option<Vec<UnknownPart>>,
}

impl LogRecords {
    /// The log of a run, from its first event on.
    #[must_use]
    pub fn of(logged: &LoggedRun) -> LogRecords {
        LogRecords {
            run: logged.run,
            version: logged.plan.net().plan_version.clone(),
            chain: ChainCheck::new(logged.state.run_id()),
            // Who has read the run has looked for its end.
            awaits_end: false,
            has_end: false,
            unknown: None,
        }
    }

    /// The log of a run after one of its events: see `after`. None if the log has no such event yet.
    pub fn of_after(
        source: &dyn RunSource,
        logged: &LoggedRun,
        seq: u64,
    ) -> Result<Option<LogRecords>, Error> {
        let (run_id, whole) = (logged.state.run_id(), LogRecords::of(logged));
        let chain = ChainCheck::from_source(source, logged.run, run_id, seq)?;
        Ok(chain.map(|chain| LogRecords {
            chain,
            // A reader that begins later may begin after the end.
            awaits_end: seq == 0 && logged.head.ended_at.is_some(),
            ..whole
        }))
    }

    /// The log of a run after one of its events, or after its last one. Nothing before is read: the hash chain is
    /// verified from there on.
    pub fn after(store: &dyn Store, run: &RunSummary, seq: u64) -> Result<LogRecords, Error> {
        is_served(store, run.run, &run.run_id)?;
        let from = seq.min(run.last_seq);
        let chain = ChainCheck::from_store(store, run.run, &run.run_id, from)?;
        Ok(LogRecords {
            run: run.run,
            version: run.plan_version.clone(),
            chain: chain
                .ok_or_else(|| ChainCheck::at(&run.run_id, from, String::new()).missing())?,
            // A reader that begins later may begin after the end.
            awaits_end: from == 0 && run.head.ended_at.is_some(),
            has_end: false,
            unknown: None,
        })
    }

    /// Also finds out what this version does not know.
    #[must_use]
    pub fn noting_unknown(self) -> LogRecords {
        LogRecords {
            unknown: Some(Vec::new()),
            ..self
        }
    }

    /// What was read and this version does not know, in words.
    #[must_use]
    pub fn unknown_to_this_version(&self) -> Vec<String> {
        let unknown = self.unknown.iter().flatten();
        unknown.map(UnknownPart::to_string).collect()
    }

    /// Whether the event that ends the run was read.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.has_end
    }

    /// The records of so many commits at most that were not read yet, with their hash chain verified.
    pub fn unread(&mut self, source: &dyn RunSource, most: usize) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        for chunk in source.log_chunks(self.run, self.chain.seq(), most)? {
            let (known, mut prev_hash) = (self.chain.seq(), self.chain.hash().to_owned());
            let parts = self.chain.verify_parts(&self.version, &chunk)?;
            if let Some(unknown) = &mut self.unknown {
                unknown.extend(self.chain.unknown_in(&chunk, &parts, known)?);
            }
            let hashes = chunk
                .digests
                .chunks_exact(DIGESTS)
                .map(|it| hex(&it[DIGESTS - 32..]));
            for (seq, ((contract, ext), hash)) in (chunk.first..).zip(parts.into_iter().zip(hashes))
            {
                if seq > known {
                    let event_type = contract["eventType"].as_str();
                    self.has_end |= event_type.is_some_and(|it| ENDS.contains(&it));
                    records.push(Record {
                        contract,
                        ext,
                        prev_hash: std::mem::replace(&mut prev_hash, hash.clone()),
                        hash,
                    });
                }
            }
        }
        // A run has a first event, and one that has ended has a last one.
        let lacks_end = self.awaits_end && !self.has_end;
        match records.is_empty() && (self.chain.seq() == 0 || lacks_end) {
            true => Err(self.chain.missing()),
            false => Ok(records),
        }
    }
}

/// The events of a run after the sequence number `after`. The hash chain is verified from the first event
/// on.
pub fn events(source: &dyn RunSource, run_id: &str, after: u64) -> Result<Vec<Event>, Error> {
    let mut logged = LoggedRun::open(source, run_id)?;
    let mut events = logged.unread(source)?;
    events.retain(|event| event.seq > after);
    Ok(events)
}

/// The events of a run after those that were verified.
fn verified(
    source: &dyn RunSource,
    run: RunNo,
    plan: &Plan,
    chain: &mut ChainCheck,
    most: usize,
) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    for chunk in source.log_chunks(run, chain.seq(), most)? {
        events.extend(chain.read(plan, &chunk)?);
    }
    Ok(events)
}

/// A plan that is kept in a store; the run is named in errors.
pub fn plan(store: &dyn Plans, no: PlanNo, run_id: &str) -> Result<Arc<Plan>, Error> {
    compiled(store.plan(no)?, run_id)
}

/// The plan of a row that was kept; the run is named in errors.
fn compiled(row: Option<PlanRow>, run_id: &str) -> Result<Arc<Plan>, Error> {
    let fault = |why: String| Error::Plan {
        run_id: run_id.to_owned(),
        why,
    };
    let row = row.ok_or_else(|| fault("it is not kept".to_owned()))?;
    let net = serde_json::from_str(&row.net).map_err(|error| fault(error.to_string()))?;
    let plan = Plan::new(net).map_err(|error| fault(error.to_string()))?;
    if plan.hash() != row.hash {
        return Err(fault("it is not what its hash says".to_owned()));
    }
    let net = plan.net();
    if net.plan_id != row.plan_id || net.plan_version != row.version {
        return Err(fault("its id or version is not that of its row".to_owned()));
    }
    Ok(Arc::new(plan))
}
