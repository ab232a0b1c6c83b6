//! What this server knows of its sources: whether they are connected, and what came of their messages since it started.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use stepwell_kernel::time::Time;
use utoipa::ToSchema;

/// A source at the server that is asked.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceState {
    /// Whether this server reads from the broker now.
    pub(crate) is_connected: bool,
    /// Since when this server reads from the broker, or does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// Why it does not, or why it waits with a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Messages that have started a run or delivered an event, here and since the start of the server.
    pub(crate) accepted: u64,
    /// Messages that came again and changed nothing.
    pub(crate) repeated: u64,
    /// Messages that could not be used and are in the dead-letter place.
    pub(crate) rejected: u64,
    /// When the last of these messages was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_message_at: Option<String>,
    /// Where messages are kept that could not be used, such as `the stream orders:dead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letters: Option<String>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageEnd {
    Accepted,
    Repeated,
    Rejected,
}

impl MessageEnd {
    pub(crate) const ALL: [MessageEnd; 3] = [
        MessageEnd::Accepted,
        MessageEnd::Repeated,
        MessageEnd::Rejected,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            MessageEnd::Accepted => "accepted",
            MessageEnd::Repeated => "repeated",
            MessageEnd::Rejected => "rejected",
        }
    }
}

/// Tenant and name of a source.
type Key = (String, String);

/// The states by tenant and name. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceStates(Arc<Kept>);

#[derive(Debug, Default)]
struct Kept {
    states: Mutex<HashMap<Key, SourceState>>,
    /// Messages of all sources, also of those that are gone, in the order of `MessageEnd::ALL`.
    messages: [AtomicU64; 3],
}

impl SourceStates {
    pub(crate) fn get(&self, tenant: &str, name: &str) -> SourceState {
        let key = (tenant.to_owned(), name.to_owned());
        self.lock().get(&key).cloned().unwrap_or_default()
    }

    /// How many sources this server reads from or tries to, and with how many of them it is connected.
    pub(crate) fn count(&self) -> (usize, usize) {
        let states = self.lock();
        let connected = states.values().filter(|it| it.is_connected).count();
        (states.len(), connected)
    }

    /// How many messages of all sources became this.
    pub(crate) fn messages(&self, became: MessageEnd) -> u64 {
        self.0.messages[became as usize].load(Ordering::Relaxed)
    }

    /// The source is read from now, or is not and why.
    pub(super) fn connected(&self, key: &Key, connected: Result<(), &str>, now: Time) {
        self.change(key, |it| {
            if it.is_connected != connected.is_ok() || it.since.is_none() {
                it.since = Some(now.to_rfc3339());
            }
            it.is_connected = connected.is_ok();
            it.error = connected.err().map(str::to_owned);
        });
    }

    /// A message was done.
    pub(super) fn done(&self, key: &Key, became: MessageEnd, now: Time) {
        self.0.messages[became as usize].fetch_add(1, Ordering::Relaxed);
        self.change(key, |it| {
            it.error = None;
            it.last_message_at = Some(now.to_rfc3339());
            *match became {
                MessageEnd::Accepted => &mut it.accepted,
                MessageEnd::Repeated => &mut it.repeated,
                MessageEnd::Rejected => &mut it.rejected,
            } += 1;
        });
    }

    pub(super) fn change(&self, key: &Key, change: impl FnOnce(&mut SourceState)) {
        change(self.lock().entry(key.clone()).or_default());
    }

    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, SourceState>> {
        self.0.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
