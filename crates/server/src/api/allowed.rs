//! What a caller may do to a run now, so that nobody is offered what would be refused.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use stepwell_kernel::command::Role;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::signal::SignalKind;
use stepwell_views::allowed::{Action, actions};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::body::Params;
use crate::access::{Caller, Right};
use crate::app::App;
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(allowed))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ActionsQuery {
    /// The id of a step: what may be done to this step is listed too.
    step: Option<String>,
}

/// Something that can be done to a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RunAction {
    /// PAUSE, RESUME, CANCEL, RETRY_RUN, RETRY_STEP, SKIP_STEP, APPROVE or COMPLETE.
    action: &'static str,
    /// The step that it is done to; absent: the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    /// Whether the caller may do it now.
    allowed: bool,
    /// The code of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The reason of the refusal, and what to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl RunAction {
    fn of(action: Action, caller: &Caller) -> RunAction {
        let right = match action.name {
            "APPROVE" | "COMPLETE" => Right::Approve,
            _ => Right::Operate,
        };
        let refused = match caller.has(right) {
            true => action
                .refused
                .map(|it| (it.code.name().to_owned(), it.message)),
            false => Some((
                Code::AuthzDenied.name().to_owned(),
                lacks(action.name, right),
            )),
        };
        let (code, detail) = refused.unzip();
        RunAction {
            action: action.name,
            step_id: action.step,
            allowed: code.is_none(),
            code,
            detail,
        }
    }
}

/// What a caller lacks who lacks the right. Some signals need a greater role than the one that has the right: that role is told,
/// so that nobody asks for a role that would not do.
fn lacks(action: &str, right: Right) -> String {
    let role = SignalKind::from_name(action).map(SignalKind::role);
    match role.filter(|role| *role > Role::Operator) {
        Some(role) => format!("{action} needs the role {role:?}").to_lowercase(),
        None => format!("the right `{}` is needed", right.name()),
    }
}

/// List what the caller may do to a run now, and why not what the caller may not. Nothing is changed.
#[utoipa::path(get, path = "/api/v1/runs/{run}/actions", tag = "actions", security(("token" = ["view"])),
    params(("run" = String, Path, description = "The id of the run."), ActionsQuery),
    responses((status = 200, body = Vec<RunAction>), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem),
        (status = 404, body = ApiProblem), (status = 503, body = ApiProblem)))]
async fn allowed(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(run): Path<String>,
    Params(query): Params<ActionsQuery>,
) -> Result<Json<Vec<RunAction>>, ApiProblem> {
    let view = app.run_view(&caller, &run).await?;
    let now = app.now();
    let rows = app.ask(move |store| {
        let key = TokenKey(store.secret()?);
        let found = actions(&view, &caller.actor(), &key, now, query.step.as_deref());
        let rows = found.into_iter().map(|it| RunAction::of(it, &caller));
        Ok::<_, ApiProblem>(rows.collect())
    });
    Ok(Json(rows.await?))
}
