//! Appends from outside: an engine that is not this one (Temporal, Conductor) reports what happened in
//! a run, at least once. The event's key decides: what is recorded under it already counts, and the
//! reporter gets that back, whatever it says now.

use std::sync::Arc;

use stepwell_kernel::contract::check_event;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::keys;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use crate::coordinator::{Config, HotRun};
use crate::error::Error;
use crate::store::{AppendResult, Batch, CommitId, Store};
use crate::{random, read};

/// How many times an append is made again because others were faster.
const TRIES: usize = 16;

/// The values that identify an event in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    pub event_id: String,
    /// Sequence number in the log of the run.
    pub seq: u64,
    /// The key that the event was recorded under.
    pub idempotency_key: String,
    pub event_type: &'static str,
    /// When it was recorded.
    pub at: Time,
}

/// Records an event of a run that exists, with the rows that follow from it and a marker for each of
/// `sinks`. If one is recorded under
/// its key already, nothing changes and that one is returned.
///
/// What the event would make the native engine do (dispatch work, start children) is not done: the engine that
/// reports what happened has done it.
pub fn record_outside(
    store: &dyn Store,
    plan: &Arc<Plan>,
    run_id: &str,
    body: &Body,
    sinks: &[String],
    now: Time,
) -> Result<RecordedEvent, Error> {
    let run = store.find(run_id)?;
    let run = run.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
    for _ in 0..TRIES {
        let stored = store.load(run)?;
        let stored = stored.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
        let mut hot = HotRun::read(stored, plan.clone(), || {
            Ok(store.chunks(run, 0, usize::MAX)?)
        })?;
        let event = Event {
            seq: hot.committed() + 1,
            // Time does not go back in a log.
            at: now.max(hot.state().last_at()),
            body: body.clone(),
        };
        // Before anything else: an event that does not fit its schema is refused as such (statement C43).
        check_event(&event).map_err(|source| Error::Schema {
            run_id: run_id.to_owned(),
            source,
        })?;
        let key = event.key(plan);
        if let Err(source) = hot.record(event.clone()) {
            // A report that came before cannot follow a second time: the first one counts.
            return match first_under(store, plan, run_id, &key)? {
                Some(first) => Ok(first),
                None => Err(Error::LogInvalid {
                    run_id: run_id.to_owned(),
                    source,
                }),
            };
        }
        let config = Config {
            sinks: sinks.to_vec(),
            ..Config::default()
        };
        let Some(mut append) = hot.seal_alone(&config, event.at)? else {
            return Err(Error::Contended(run_id.to_owned()));
        };
        // The owner of the run keeps it.
        let owner = hot
            .head()
            .session
            .filter(|_| !hot.state().phase().is_ended());
        if let (Some(head), Some(owner)) = (&mut append.head, owner) {
            head.session = Some(owner);
            head.wake_at = None;
        }
        let batch = Batch {
            id: CommitId {
                session: 0,
                // Two reporters must not take each other's commit for their own.
                number: (u64::from_le_bytes(random::bytes()?) >> 1) as i64,
            },
            session: None,
            now: event.at,
            appends: vec![append],
        };
        match store.commit(&batch)?.pop() {
            Some(AppendResult::Committed | AppendResult::Again) => {
                return Ok(recorded(plan, run_id, &event));
            }
            Some(AppendResult::KeyExists) => {
                if let Some(first) = first_under(store, plan, run_id, &key)? {
                    return Ok(first);
                }
            }
            Some(AppendResult::Refused(why)) => {
                return Err(Error::Refused {
                    run_id: run_id.to_owned(),
                    why,
                });
            }
            _ => {}
        }
    }
    Err(Error::Contended(run_id.to_owned()))
}

/// The event that is recorded under a key.
fn first_under(
    store: &dyn Store,
    plan: &Plan,
    run_id: &str,
    key: &keys::EventKey,
) -> Result<Option<RecordedEvent>, Error> {
    let events = read::events(store, run_id, 0)?;
    let first = events.iter().find(|it| it.key(plan) == *key);
    Ok(first.map(|first| recorded(plan, run_id, first)))
}

fn recorded(plan: &Plan, run_id: &str, event: &Event) -> RecordedEvent {
    let version = &plan.net().plan_version;
    RecordedEvent {
        event_id: keys::event_id(run_id, event.seq),
        seq: event.seq,
        idempotency_key: event.key(plan).digest(run_id, version),
        event_type: event.body.kind(),
        at: event.at,
    }
}
