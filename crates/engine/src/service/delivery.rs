//! Events from outside on their way into the store. An actor takes them there, so that the loop goes on
//! deciding; events that arrive meanwhile share the next transaction.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use serde_json::Value as Json;
use stepwell_kernel::command::Command;

use super::actor::{self, Actor, Answer, Step};
use super::{Input, OnDelivered};
use crate::coordinator::Message;
use crate::port::Clock;
use crate::store::{Delivered, OutsideEvent, Store, StoreError};

/// How many events share a transaction at most.
const MAX_EVENTS: usize = 512;

/// An event from outside that is not addressed to a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalEvent {
    /// The tenant of the sender: only runs of this tenant may get the event.
    pub tenant: String,
    /// Unique for the tenant: an id that is delivered twice counts once.
    pub id: String,
    /// The type that steps wait for.
    pub event_type: String,
    /// The key of the runs that may get the event: the key that the plan gives them, else the run's id.
    pub key: String,
    /// The value that the waiting step receives.
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
            tenant: event.tenant,
            id: event.id,
            event_type: event.event_type,
            key: event.key,
        }
    }
}

type Waiting = Vec<(OutsideEvent, OnDelivered)>;

/// The events that wait, and the way to the actor that takes them to the store.
pub(super) struct DeliveryQueue {
    waiting: Waiting,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    busy: bool,
    /// None without an actor: then the loop delivers the events itself.
    actor: Option<Sender<Waiting>>,
    thread: Option<JoinHandle<()>>,
}

/// Waits for the thread, so that the store is closed when the service has stopped. A thread that is
/// still in a transaction is not waited for, since the transaction may take without end.
impl Drop for DeliveryQueue {
    fn drop(&mut self) {
        self.actor = None;
        if let Some(thread) = self.thread.take()
            && !self.busy
        {
            let _ = thread.join();
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
            actor: None,
            thread: None,
        }
    }

    /// The actor for the events of this queue, whose answers go to `inbox`.
    pub(super) fn actor(&mut self, inbox: &Sender<Input>) -> DeliveryActor {
        let (events, to_deliver) = mpsc::channel();
        self.actor = Some(events);
        DeliveryActor {
            events: to_deliver,
            store: self.store.clone(),
            clock: self.clock.clone(),
            inbox: inbox.clone(),
        }
    }

    fn start(&mut self, inbox: &Sender<Input>) {
        let started = actor::start("stepwell-deliver", self.actor(inbox));
        self.thread = started.ok();
        if self.thread.is_none() {
            self.actor = None;
        }
    }

    pub(super) fn push(&mut self, event: OutsideEvent, on_delivered: OnDelivered) {
        self.waiting.push((event, on_delivered));
    }

    /// The actor has answered, and can be given more.
    pub(super) fn answered(&mut self) {
        self.busy = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.busy
    }

    /// Gives the actor what waits, if it has nothing to do. Its thread starts with the first event: most
    /// engines never need it.
    pub(super) fn send(&mut self, inbox: &Sender<Input>) {
        if self.busy || self.waiting.is_empty() {
            return;
        }
        let rest = self.waiting.split_off(self.waiting.len().min(MAX_EVENTS));
        let events = std::mem::replace(&mut self.waiting, rest);
        if self.actor.is_none() && !self.clock.is_virtual() {
            self.start(inbox);
        }
        match &self.actor {
            Some(actor) => {
                // An actor that is gone has dropped the senders, who are told that the engine stops.
                self.busy = actor.send(events).is_ok();
            }
            None => {
                let answer = deliver(&*self.store, &*self.clock, &events);
                // Only an engine that is gone cannot be told.
                let _ = inbox.send(Input::Delivered(events, answer));
            }
        }
    }
}

/// Takes events to the store, until there will be no more.
pub(super) struct DeliveryActor {
    events: Receiver<Waiting>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    inbox: Sender<Input>,
}

impl Actor for DeliveryActor {
    fn step(&mut self, waits: bool) -> Step {
        let next = match waits {
            true => self.events.recv().map_err(|_| TryRecvError::Disconnected),
            false => self.events.try_recv(),
        };
        let events = match next {
            Ok(events) => events,
            Err(TryRecvError::Empty) => return Step::Idle,
            Err(TryRecvError::Disconnected) => return Step::Ended,
        };
        let answer = deliver(&*self.store, &*self.clock, &events);
        Step::Done(vec![Answer {
            inbox: self.inbox.clone(),
            input: Input::Delivered(events, answer),
        }])
    }
}

fn deliver(
    store: &dyn Store,
    clock: &dyn Clock,
    events: &Waiting,
) -> Result<Vec<Delivered>, StoreError> {
    let events: Vec<OutsideEvent> = events.iter().map(|(event, _)| event.clone()).collect();
    store.deliver_all(&events, clock.now())
}
