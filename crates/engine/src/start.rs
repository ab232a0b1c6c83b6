//! What a run is started with.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use stepwell_kernel::command::Command;
use stepwell_kernel::event::{Parent, RunContext};
use stepwell_kernel::keys;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::{Code, Rejection};
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

/// The most characters of a request id, of the names that a run belongs to, and of the name and the value of a label.
const MAX_TEXT: usize = 200;
/// The most labels of a run.
pub const MAX_LABELS: usize = 32;

/// Refuses a request id that no start may have. Starts of children and triggers have keys of their own.
pub fn check_request_id(id: &str) -> Result<(), Rejection> {
    match (1..=MAX_TEXT).contains(&id.chars().count()) && !id.contains('|') && is_plain(id) {
        true => Ok(()),
        false => Err(Rejection::new(
            Code::InvalidId,
            "a request id has 1 to 200 characters, without | and control characters",
        )),
    }
}

/// Refuses labels that no run may have.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Rejection> {
    let fits = |text: &str| text.chars().count() <= MAX_TEXT && is_plain(text);
    let is_good = |(name, value): (&String, &String)| {
        fits(name) && fits(value) && !name.is_empty() && !name.contains(['=', ','])
    };
    match labels.len() <= MAX_LABELS && labels.iter().all(is_good) {
        true => Ok(()),
        false => Err(Rejection::new(
            Code::LabelsInvalid,
            "a run has at most 32 labels, with names of 1 to 200 characters without = and comma, and values of at most 200 \
             characters; control characters are not allowed",
        )),
    }
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

impl StartRequest {
    /// Refuses what no start may have, whichever way it comes: over HTTP, from a command, a program, a schedule, a trigger or
    /// a webhook.
    pub fn check(&self) -> Result<(), Rejection> {
        if let Some(id) = &self.request_id {
            check_request_id(id)?;
        }
        let context = &self.context;
        let names = [
            ("tenant", &context.tenant_id),
            ("project", &context.project_id),
            ("environment", &context.environment_id),
        ];
        for (what, name) in names {
            if name.chars().count() > MAX_TEXT || !is_plain(name) {
                return Err(Rejection::new(
                    Code::InvalidId,
                    format!(
                        "the {what} of a run has at most 200 characters, without control characters"
                    ),
                ));
            }
        }
        check_labels(&context.labels)
    }

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
