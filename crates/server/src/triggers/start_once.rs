//! Starts the run of a cause unless that was done before: here, by another server, or before a crash.

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_engine::{Error, StartRequest, run_id_of_trigger};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;

use crate::app::App;

/// The run of a cause.
#[derive(Clone, Debug)]
pub(crate) struct StartedBy {
    pub(crate) run_id: String,
    /// Whether it was started by this call.
    pub(crate) created: bool,
}

/// The run of a cause, whose id follows from it. May block.
pub(crate) fn start_once(
    app: &App,
    plan: &Arc<Plan>,
    context: RunContext,
    cause: &str,
    params: Json,
) -> Result<StartedBy, Error> {
    let run_id = run_id_of_trigger(plan, &context, cause);
    let started = |created| StartedBy {
        run_id: run_id.clone(),
        created,
    };
    if app.store.find(&run_id)?.is_some() {
        return Ok(started(false));
    }
    let request = StartRequest {
        run_id: run_id.clone(),
        params,
        context: RunContext {
            trace: context.trace.or_else(|| app.telemetry.root(&run_id)),
            ..context
        },
        ..StartRequest::default()
    };
    match app.engine.start(plan, request) {
        Ok(_) => Ok(started(true)),
        Err(Error::Rejected(why)) if why.code == Code::RunExists => Ok(started(false)),
        Err(error) => Err(error),
    }
}
