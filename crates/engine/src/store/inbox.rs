//! The inbox: events from outside that are not addressed to a run, and the steps that wait for them.
//! A step begins and ends to wait by appends (`WaitChange`).

use stepwell_kernel::time::Time;

use super::{Result, RunNo, StoreError, StoreErrorKind};

/// Takes events from outside.
pub trait Inbox {
    /// Delivers events in their order, in one transaction, and answers in the same order. An event goes
    /// to the run that has waited longest for its type and key (by the time of the batch, then run and
    /// step), as a message; or it is kept until a step waits, which gets the oldest event (by time, then
    /// id). Delivery and wait meet under one lock, so neither misses the other.
    ///
    /// Durable on return: the events, and the messages to the runs that get them.
    ///
    /// Crash before the return: all events are there or none is; the sender delivers them again.
    ///
    /// Twice: the same id counts once, also inside one call; the second event is answered with `Again`.
    fn deliver_all(&self, events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>>;

    /// Delivers one event.
    ///
    /// Durable on return: the event. Crash before the return: as with `deliver_all`. Twice: counts once.
    fn deliver(&self, event: &OutsideEvent, now: Time) -> Result<Delivered> {
        let answers = self.deliver_all(std::slice::from_ref(event), now)?;
        let missing = || StoreError::new(StoreErrorKind::Internal, "a delivery has no answer");
        answers.first().copied().ok_or_else(missing)
    }
}

/// An event from outside that is not addressed to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideEvent {
    /// Unique: an id that is delivered twice counts once.
    pub id: String,
    /// What steps wait for.
    pub event_type: String,
    /// The `event_key` of the runs that may get it.
    pub key: String,
    /// The content, as JSON text.
    pub payload: String,
    /// The message to the run that gets it, as JSON text.
    pub mail: String,
}

/// The result of delivering an external event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// A run that waits has it in its mailbox.
    ToRun(RunNo),
    /// It is kept until a step waits.
    Kept,
    /// It had been delivered before.
    Again,
}
