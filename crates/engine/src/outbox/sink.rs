//! The port of the buses: what the publisher needs from wherever events go.

use std::fmt;
use std::time::Duration;

use serde_json::Value as Json;

pub use crate::chunk::Outbound;

/// Where events go: a webhook, a stream, a queue.
pub trait Sink: Send + fmt::Debug {
    /// What markers of the outbox know it by. It must stay the same while any wait.
    fn name(&self) -> &str;

    /// Takes a delivery; on success it is the sink's. The same delivery may come again.
    fn deliver(&self, delivery: &Delivery) -> Result<(), SinkError>;

    /// Takes deliveries of different runs together, where that is cheaper. As many results, in the same order.
    fn deliver_together(&self, deliveries: &[Delivery]) -> Vec<Result<(), SinkError>> {
        deliveries.iter().map(|it| self.deliver(it)).collect()
    }

    /// How many deliveries are better made together than one by one.
    fn together(&self) -> usize {
        1
    }

    /// `deliver` and `deliver_together` answer within this time.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// One chunk of a run: what one commit appended to its log.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub run_id: String,
    /// Sequence number of the first event.
    pub first_seq: u64,
    /// Sequence number of the last event.
    pub last_seq: u64,
    /// Which attempt at this delivery, from 1.
    pub attempt: u32,
    /// The contract's events, in order.
    pub events: Vec<Json>,
    /// What steps sent to the outside with them, in order.
    pub outbound: Vec<Outbound>,
    /// The changes of state that the events made, in the words of the run's language, in order; empty for languages
    /// without telemetry.
    pub telemetry: Vec<Json>,
}

impl Delivery {
    /// A key that is equal for each attempt, and for no other delivery to the same sink.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.run_id, self.first_seq)
    }
}

/// Why a sink did not take a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct SinkError {
    /// The reason, for the operator; it is stored with the marker and shown with the dead letter.
    pub why: String,
    /// The sink asks not to be tried before this time has passed.
    pub retry_after: Option<Duration>,
    /// The sink as a whole fails: other deliveries would fail too. The publisher makes no other attempt until a
    /// delivery succeeds.
    pub down: bool,
    /// The delivery will never be taken: it becomes a dead letter at once, so that the run's later events do not wait.
    pub is_final: bool,
}

impl SinkError {
    /// The sink refuses this delivery.
    pub fn refused(why: impl fmt::Display) -> SinkError {
        SinkError {
            why: why.to_string(),
            retry_after: None,
            down: false,
            is_final: false,
        }
    }

    /// The sink refuses this delivery, and will always do.
    pub fn never(why: impl fmt::Display) -> SinkError {
        SinkError {
            is_final: true,
            ..SinkError::refused(why)
        }
    }

    /// The sink takes nothing.
    pub fn down(why: impl fmt::Display) -> SinkError {
        SinkError {
            down: true,
            ..SinkError::refused(why)
        }
    }
}
