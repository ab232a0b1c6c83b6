//! Which runs have changed: the engine tells, streams listen. A listener may miss something, as it may miss what other
//! servers commit; it reads the store, and asks again now and then.

use std::sync::Arc;

use stepwell_engine::coordinator::Notice;
use stepwell_engine::projector;
use stepwell_engine::service::Observer;
use stepwell_engine::store::{RunNo, StoreError};
use tokio::sync::{Notify, broadcast};

use crate::deliveries::Bell;
use crate::metrics::Metrics;
use crate::telemetry::Telemetry;

/// How many changes a listener may be behind before it misses some.
const BEHIND: usize = 4_096;

/// A run has new events, up to this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) run: RunNo,
    pub(crate) seq: u64,
}

/// Where changes are told and heard.
#[derive(Clone, Debug)]
pub(crate) struct Changes(broadcast::Sender<Change>);

impl Changes {
    pub(crate) fn new() -> Changes {
        Changes(broadcast::channel(BEHIND).0)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.0.subscribe()
    }
}

/// Tells changes to listeners, to the projector and to the publishers of sinks.
pub(crate) struct TellChanges {
    pub(crate) changes: Changes,
    pub(crate) projector: projector::Handle,
    pub(crate) bell: Bell,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) telemetry: Telemetry,
    /// Told when there is work for workers in other processes.
    pub(crate) offers: Arc<Notify>,
}

impl Observer for TellChanges {
    fn notice(&mut self, notice: &Notice) {
        if matches!(notice, Notice::Offer { .. }) {
            self.offers.notify_waiters();
        }
        if let Notice::Changed { run, first, seq } = notice {
            let (run, first, seq) = (*run, *first, *seq);
            self.telemetry.changed(run, first, seq);
            self.projector.changed(run, seq);
            self.bell.ring();
            // Nobody may be listening.
            let _ = self.changes.0.send(Change { run, seq });
        }
        if let Notice::Retried { lost, .. } = notice {
            self.metrics.retried(*lost);
        }
        if let Notice::Ended { plan, outcome, .. } = notice {
            self.metrics.ended(&plan.net().plan_id, outcome);
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        self.metrics.store_failed(error.kind.code());
    }
}
