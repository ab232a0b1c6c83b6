//! What a run is started with.

use serde_json::Value as Json;
use stepwell_kernel::command::Command;
use stepwell_kernel::event::{Parent, RunContext};
use stepwell_kernel::keys;
use stepwell_kernel::time::Time;

/// How deep runs may start runs: a definition that calls itself without end is stopped here.
pub const MAX_CHILD_DEPTH: usize = 16;

/// What a run is started with.
#[derive(Clone, Debug, Default)]
pub struct StartRequest {
    /// The new run's id.
    pub run_id: String,
    /// The requester's own id for this start: two starts with the same one are one run.
    pub request_id: Option<String>,
    /// Merged over the plan's workload.
    pub params: Json,
    /// Who it belongs to.
    pub context: RunContext,
    /// The run and step that wait for it.
    pub parent: Option<Parent>,
    /// The run that it repeats.
    pub original_run_id: Option<String>,
    /// Not to be started before.
    pub start_after: Option<Time>,
}

impl StartRequest {
    pub(crate) fn into_command(self) -> Command {
        Command::CreateRun {
            run_id: self.run_id,
            params: self.params,
            context: self.context,
            parent: self.parent,
            original_run_id: self.original_run_id,
            start_after: self.start_after,
        }
    }
}

/// The id of a run that is asked for under a key: a child, or the repetition of a run. It follows from
/// the key, so that a crash between the request and the run cannot make two.
#[must_use]
pub fn run_id_for(request_key: &str) -> String {
    format!("run_{}", &keys::sha256_hex(request_key)[..32])
}
