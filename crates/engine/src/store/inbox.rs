//! The inbox: events from outside that are not addressed to a run, and the steps that wait for them.
//! A step begins and ends to wait by appends (`WaitChange`).

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Takes events from outside.
pub trait Inbox {
    /// Delivers an event. It goes to the run that has waited longest for its type and key (by the time
    /// of the batch, then run and step), as a message; or it is kept until a step waits, which gets the
    /// oldest event (by time, then id). Delivery and wait meet under one lock, so neither misses the
    /// other.
    ///
    /// Durable on return: the event, and the message to the run that gets it.
    ///
    /// Crash before the return: the event is there as a whole or not at all; the sender delivers it again.
    ///
    /// Twice: the same id counts once; the second call is answered with `Again`.
    fn deliver(&self, event: &OutsideEvent, now: Time) -> Result<Delivered>;

    /// Delivers many events, in order, as `deliver` does one after the other, but in as few commits as the
    /// store can: a commit costs more than an event. The answers are in the order of the events.
    ///
    /// Durable on return: all events.
    ///
    /// Crash before the return, or an error: events may be there from the first on; the sender delivers all
    /// of them again.
    ///
    /// Twice: as for `deliver`.
    fn deliver_all(&self, events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>> {
        events.iter().map(|it| self.deliver(it, now)).collect()
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

/// What became of an event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// A run that waits has it in its mailbox.
    ToRun(RunNo),
    /// It is kept until a step waits.
    Kept,
    /// It had been delivered before.
    Again,
}
