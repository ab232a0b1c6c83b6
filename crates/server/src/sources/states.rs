//! What this server knows of its sources: whether they are connected, and what came of their messages since it started.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use utoipa::ToSchema;

/// A source at the server that is asked.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceState {
    /// Whether this server reads from the broker now.
    pub(crate) is_connected: bool,
    /// Why it does not, or why it waits with a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Messages that have started a run or delivered an event, here and since the start of the server.
    pub(crate) accepted: u64,
    /// Messages that came again and changed nothing.
    pub(crate) repeated: u64,
    /// Messages that could not be used and are in the dead-letter place.
    pub(crate) rejected: u64,
}

/// The states by tenant and name. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceStates(Arc<Mutex<HashMap<(String, String), SourceState>>>);

impl SourceStates {
    pub(crate) fn get(&self, tenant: &str, name: &str) -> SourceState {
        let key = (tenant.to_owned(), name.to_owned());
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.get(&key).cloned().unwrap_or_default()
    }

    pub(super) fn change(&self, key: &(String, String), change: impl FnOnce(&mut SourceState)) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(states.entry(key.clone()).or_default());
    }

    pub(super) fn forget(&self, key: &(String, String)) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.remove(key);
    }
}
