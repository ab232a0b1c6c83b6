//! What other systems send, by webhooks and by brokers: it starts a run, or is delivered as an event. Each message counts
//! once, however often it comes.

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use stepwell_engine::service::ExternalEvent;
use stepwell_engine::store::{Delivered, TRIGGER_KEY};
use stepwell_engine::{Error, StartRequest, check_repeated_parameter, run_id_of_trigger};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::trace::TraceContext;
use stepwell_worker::large_params;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use crate::app::App;
use crate::definitions::Registry;
use crate::problem::ApiProblem;
use crate::triggers::{params_with, start_once};
use crate::webhooks::{EventTarget, StartTarget};

/// A delivery that was accepted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AcceptedDelivery {
    /// The id of the delivery: one that is sent twice counts once.
    pub(crate) delivery_id: String,
    /// Whether this delivery has started a run or delivered an event; false if it came before.
    pub(crate) created: bool,
    /// The run that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
}

/// Which way a message came.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// What it is called in causes: `webhook` or `source`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) tenant: String,
    pub(crate) project: String,
    pub(crate) environment: String,
    /// Whether a message that comes again must have the same content.
    pub(crate) compares: bool,
    /// The code of a message that has no key where the target looks for it.
    pub(crate) invalid: &'static str,
}

/// Starts the run of a message. Done when that is committed.
pub(crate) async fn start(
    app: &Arc<App>,
    door: &Door,
    target: &StartTarget,
    delivery: &str,
    (cause, trace): (Value, Option<TraceContext>),
) -> Result<AcceptedDelivery, ApiProblem> {
    let context = RunContext {
        trace,
        tenant_id: door.tenant.clone(),
        project_id: door.project.clone(),
        environment_id: door.environment.clone(),
        triggered_by: Some(format!("{} {}", door.kind, door.name)),
        trigger_source: Some("api".to_owned()),
        ..RunContext::default()
    };
    let (plans, of, wanted) = (app.plans.clone(), door.tenant.clone(), target.clone());
    let project = door.project.clone();
    let plan = app.ask(move |store| {
        let registry = Registry::of_project(store, Some(&project));
        registry.plan_of_new_run(&plans, &of, &wanted.definition, wanted.revision)
    });
    let plan = plan.await?;
    let params = params_with(&target.params.clone().unwrap_or_else(|| json!({})), &cause);
    let cause = format!("{}|{}|{delivery}", door.kind, door.name);
    let run_id = run_id_of_trigger(&plan, &context, &cause);
    let request = StartRequest {
        params,
        ..StartRequest::default()
    };
    let (known, asked, compares) = (run_id.clone(), request.clone(), door.compares);
    let is_known = app.ask(move |store| -> Result<bool, Error> {
        let is_known = store.find(&known)?.is_some();
        if is_known && compares {
            check_repeated_parameter(store, &known, "payload", &asked)?;
        }
        Ok(is_known)
    });
    if is_known.await? {
        return Ok(AcceptedDelivery {
            delivery_id: delivery.to_owned(),
            created: false,
            run_id: Some(run_id),
        });
    }
    let params = request.params;
    let params = match large_params::may_be_large(&plan, &params) {
        true => large_params::shrink(&app.artifacts, &run_id, &plan, params)
            .await
            .map_err(|error| ApiProblem::internal(&error))?,
        false => params,
    };
    let acting = Arc::clone(app);
    let started = app
        .block(move || start_once(&acting, &plan, context, &cause, params))
        .await?;
    Ok(AcceptedDelivery {
        delivery_id: delivery.to_owned(),
        created: started.created,
        run_id: Some(started.run_id),
    })
}

/// Delivers the event of a message. Done when that is committed.
pub(crate) async fn deliver(
    app: &Arc<App>,
    door: &Door,
    target: &EventTarget,
    delivery: &str,
    payload: Value,
) -> Result<AcceptedDelivery, ApiProblem> {
    let key = match &target.key_from {
        None => TRIGGER_KEY.to_owned(),
        Some(pointer) => match payload.pointer(pointer) {
            Some(Value::String(key)) => key.clone(),
            Some(Value::Number(key)) => key.to_string(),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
                return Err(ApiProblem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    door.invalid,
                    format!("the body has no key at {pointer}"),
                ));
            }
        },
    };
    let id = match door.kind {
        "webhook" => format!("{}:{delivery}", door.name),
        kind => format!("{kind}:{}:{delivery}", door.name),
    };
    let event = ExternalEvent {
        tenant: door.tenant.clone(),
        id,
        event_type: target.event_type.clone(),
        key,
        payload,
    };
    let (answer, answered) = oneshot::channel();
    app.engine.deliver_with(event, move |delivered| {
        // The caller may be gone.
        let _ = answer.send(delivered);
    })?;
    let stopping = || ApiProblem::from(Error::Stopping);
    let result = answered.await.map_err(|_| stopping())??;
    // It may trigger a run.
    app.due.event();
    Ok(AcceptedDelivery {
        delivery_id: delivery.to_owned(),
        created: match result {
            Delivered::ToRun(_) | Delivered::Kept => true,
            Delivered::Again => false,
        },
        run_id: None,
    })
}
