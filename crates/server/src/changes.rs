//! Which runs have changed: the engine tells, streams listen. A listener may miss something, as it may miss what other
//! servers commit; it reads the store, and asks again now and then.

use std::sync::Arc;

use stepwell_engine::coordinator::Notice;
use stepwell_engine::projector;
use stepwell_engine::service::Observer;
use stepwell_engine::store::RunNo;
use tokio::sync::{Notify, broadcast};

use crate::deliveries::Bell;
use crate::metrics::Metrics;

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

    /// The number of listeners, which is the number of open streams and of tasks that follow runs.
    pub(crate) fn listeners(&self) -> usize {
        self.0.receiver_count()
    }

    /// A run has new events, up to this one.
    pub(crate) fn tell(&self, run: RunNo, seq: u64) {
        // Nobody may be listening.
        let _ = self.0.send(Change { run, seq });
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
    /// Told when there is work for workers in other processes.
    pub(crate) offers: Arc<Notify>,
}

impl Observer for TellChanges {
    fn notice(&mut self, notice: &Notice) {
        if matches!(notice, Notice::Offer { .. }) {
            self.offers.notify_waiters();
        }
        if let Notice::Changed { run, seq } = notice {
            let (run, seq) = (*run, *seq);
            self.projector.changed(run, seq);
            self.bell.ring();
            self.changes.tell(run, seq);
        }
        if let Notice::Ended(_, _, outcome) = notice {
            self.metrics.ended(outcome);
        }
    }
}
