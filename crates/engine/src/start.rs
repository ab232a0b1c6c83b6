//! What a run is started with.

use serde_json::Value as Json;
use stepwell_kernel::command::Command;
use stepwell_kernel::event::{Parent, RunContext};
use stepwell_kernel::keys;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

/// How deep runs may start runs: a definition that calls itself without end is stopped here.
pub const MAX_CHILD_DEPTH: usize = 16;

/// What a run is started with.
#[derive(Clone, Debug, Default)]
pub struct StartRequest {
    /// The new run's id.
    pub run_id: String,
    /// The id that the sender gives to this start: two starts with the same id are one run.
    pub request_id: Option<String>,
    /// Merged over the plan's workload.
    pub params: Json,
    /// Tenant, project and environment that the run belongs to.
    pub context: RunContext,
    /// The run and the step that wait for this run.
    pub parent: Option<Parent>,
    /// The run that this run repeats.
    pub original_run_id: Option<String>,
    /// Not to be started before.
    pub start_after: Option<Time>,
    /// The hash of what was fetched for the plan's reference. If the reference has another one, the run fails before it
    /// starts.
    pub fetched_sha256: Option<String>,
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

/// The id of a run that is started with a request id and no id of its own. It follows from the contract's key of the
/// request, so that a second request finds the run.
#[must_use]
pub fn run_id_of_request(plan: &Plan, context: &RunContext, request_id: &str) -> String {
    run_id_for(&request_key(plan, context, request_id))
}

/// The id of a run that something triggers: a due time, an event. It does not depend on the version of the plan, so that a
/// new version starts no run again.
#[must_use]
pub fn run_id_of_trigger(plan: &Plan, context: &RunContext, cause: &str) -> String {
    let (tenant, project) = (&context.tenant_id, &context.project_id);
    let environment = &context.environment_id;
    let plan_id = &plan.net().plan_id;
    // Request ids of senders have no `|`.
    let request_id = format!("trigger|{cause}");
    run_id_for(&keys::request_key(
        tenant,
        project,
        environment,
        plan_id,
        "",
        &request_id,
    ))
}

/// The contract's key of a start request: unique in a store.
pub(crate) fn request_key(plan: &Plan, context: &RunContext, request_id: &str) -> String {
    let net = plan.net();
    keys::request_key(
        &context.tenant_id,
        &context.project_id,
        &context.environment_id,
        &net.plan_id,
        &net.plan_version,
        request_id,
    )
}

/// The id of a run that is asked for under a key: a child, or the repetition of a run. It follows from
/// the key, so that a crash between the request and the run cannot make two.
#[must_use]
pub fn run_id_for(request_key: &str) -> String {
    format!("run_{}", &keys::sha256_hex(request_key)[..32])
}
