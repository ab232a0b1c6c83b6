//! The memory store: the log in this process. It keeps every promise of the port but durability, and
//! is what the durable stores are compared with.

use std::collections::HashMap;

use stepwell_kernel::event::Event;
use stepwell_kernel::keys::EventKey;
use stepwell_kernel::plan::Plan;

use crate::port::{AppendError, Store};

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    keys: HashMap<EventKey, u64>,
}

/// The log of every run, in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    logs: HashMap<String, Log>,
    requests: HashMap<String, String>,
}

impl Store for MemoryStore {
    fn append(
        &mut self,
        plan: &Plan,
        run_id: &str,
        expected: u64,
        events: &[Event],
    ) -> Result<(), AppendError> {
        let log = self.logs.entry(run_id.to_owned()).or_default();
        let actual = log.events.last().map_or(0, |event| event.seq);
        if actual != expected {
            return Err(AppendError::Moved { expected, actual });
        }
        let mut keys = Vec::with_capacity(events.len());
        for (index, event) in events.iter().enumerate() {
            let after = expected + index as u64;
            if event.seq != after + 1 {
                return Err(AppendError::OutOfOrder {
                    after,
                    found: event.seq,
                });
            }
            let key = event.key(plan);
            let twice = keys
                .iter()
                .find(|(other, _)| *other == key)
                .map(|(_, seq)| *seq);
            if let Some(seq) = log.keys.get(&key).copied().or(twice) {
                return Err(AppendError::KeyExists { key, seq });
            }
            keys.push((key, event.seq));
        }
        log.events.extend(events.iter().cloned());
        log.keys.extend(keys);
        Ok(())
    }

    fn events(&self, run_id: &str, after: u64) -> Vec<Event> {
        let Some(log) = self.logs.get(run_id) else {
            return Vec::new();
        };
        let from = log.events.partition_point(|event| event.seq <= after);
        log.events[from..].to_vec()
    }

    fn claim_request(&mut self, key: &str, run_id: &str) -> Option<String> {
        if let Some(taken) = self.requests.get(key) {
            return Some(taken.clone());
        }
        self.requests.insert(key.to_owned(), run_id.to_owned());
        None
    }
}

impl MemoryStore {
    /// An append from outside the engine: an event whose key exists already changes nothing and the
    /// existing event is returned, even if the new one says something else.
    pub fn record(
        &mut self,
        plan: &Plan,
        run_id: &str,
        event: &Event,
    ) -> Result<Event, AppendError> {
        let key = event.key(plan);
        let log = self.logs.entry(run_id.to_owned()).or_default();
        if let Some(seq) = log.keys.get(&key) {
            let found = log.events.iter().find(|existing| existing.seq == *seq);
            return found
                .cloned()
                .ok_or(AppendError::KeyExists { key, seq: *seq });
        }
        let expected = log.events.last().map_or(0, |event| event.seq);
        let event = Event {
            seq: expected + 1,
            ..event.clone()
        };
        self.append(plan, run_id, expected, std::slice::from_ref(&event))?;
        Ok(event)
    }
}
