//! Events from outside on their way into the store. A thread of its own takes them there, so that the
//! loop goes on deciding; events that arrive meanwhile share the next transaction.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use serde_json::Value as Json;
use stepwell_kernel::command::Command;

use super::{Handle, Input, OnDelivered};
use crate::coordinator::Message;
use crate::port::Clock;
use crate::store::{Delivered, OutsideEvent, Store, StoreError};

/// How many events share a transaction at most.
const MAX_EVENTS: usize = 512;

/// An event from outside that is not addressed to a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalEvent {
    /// Unique: an id that is delivered twice counts once.
    pub id: String,
    /// The type that steps wait for.
    pub event_type: String,
    /// The key of the runs that may get the event: the business key of a linear run, else the run's id.
    pub key: String,
    /// The content.
    pub payload: Json,
}

impl From<ExternalEvent> for OutsideEvent {
    fn from(event: ExternalEvent) -> OutsideEvent {
        let deliver = Command::DeliverEvent {
            event_id: event.id.clone(),
            event_type: event.event_type.clone(),
            payload: event.payload.clone(),
        };
        OutsideEvent {
            mail: Message::from(deliver).body(),
            payload: event.payload.to_string(),
            id: event.id,
            event_type: event.event_type,
            key: event.key,
        }
    }
}

type Waiting = Vec<(OutsideEvent, OnDelivered)>;

/// The events that wait, and the thread that takes them to the store.
pub(super) struct DeliveryQueue {
    waiting: Waiting,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    busy: bool,
    /// None without a thread: then the loop delivers the events itself.
    thread: Option<(Sender<Waiting>, JoinHandle<()>)>,
}

/// Waits for the thread, so that the store is closed when the service has stopped. A thread that is
/// still in a transaction is not waited for, since the transaction may take without end.
impl Drop for DeliveryQueue {
    fn drop(&mut self) {
        if let Some((events, thread)) = self.thread.take() {
            drop(events);
            if !self.busy {
                let _ = thread.join();
            }
        }
    }
}

impl DeliveryQueue {
    /// An empty queue without a thread.
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> DeliveryQueue {
        DeliveryQueue {
            waiting: Vec::new(),
            store,
            clock,
            busy: false,
            thread: None,
        }
    }

    pub(super) fn push(&mut self, event: OutsideEvent, on_delivered: OnDelivered) {
        self.waiting.push((event, on_delivered));
    }

    /// The thread has answered, and can be given more.
    pub(super) fn answered(&mut self) {
        self.busy = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.busy
    }

    /// Gives the thread what waits, if it has nothing to do. The thread starts with the first event: most
    /// engines never need it.
    pub(super) fn send(&mut self, inbox: &Handle) {
        if self.busy || self.waiting.is_empty() {
            return;
        }
        let rest = self.waiting.split_off(self.waiting.len().min(MAX_EVENTS));
        let events = std::mem::replace(&mut self.waiting, rest);
        if self.thread.is_none() && !self.clock.is_virtual() {
            self.thread = start(self.store.clone(), self.clock.clone(), inbox.clone());
        }
        match &self.thread {
            Some((thread, _)) => {
                // A thread that is gone has dropped the senders, who are told that the engine stops.
                self.busy = thread.send(events).is_ok();
            }
            None => {
                let answer = deliver(&*self.store, &*self.clock, &events);
                inbox.send(Input::Delivered(events, answer));
            }
        }
    }
}

fn start(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    inbox: Handle,
) -> Option<(Sender<Waiting>, JoinHandle<()>)> {
    let (events, to_deliver) = mpsc::channel::<Waiting>();
    let work = move || {
        for events in to_deliver {
            let answer = deliver(&*store, &*clock, &events);
            inbox.send(Input::Delivered(events, answer));
        }
    };
    let thread = thread::Builder::new().name("stepwell-deliver".into());
    // Without the thread the loop delivers the events itself.
    Some((events, thread.spawn(work).ok()?))
}

fn deliver(
    store: &dyn Store,
    clock: &dyn Clock,
    events: &Waiting,
) -> Result<Vec<Delivered>, StoreError> {
    let events: Vec<OutsideEvent> = events.iter().map(|(event, _)| event.clone()).collect();
    store.deliver_all(&events, clock.now())
}
