//! The engines outside that this server serves.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::app::App;
use crate::engines::EngineStanding;
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(engines))
}

/// The engines outside of a server.
#[derive(Debug, Serialize, ToSchema)]
struct Engines {
    engines: Vec<EngineStanding>,
}

/// The engines outside that this server serves, such as Temporal: where they are, whether they answer, and which definitions run
/// there. What no engine outside runs, the server runs itself.
#[utoipa::path(get, path = "/api/v1/engines", tag = "server", security(("token" = ["view"])),
    responses((status = 200, body = Engines), (status = 403, body = ApiProblem)))]
async fn engines(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<Engines>, ApiProblem> {
    super::operations::whole_installation(&caller)?;
    Ok(Json(Engines {
        engines: app
            .engines
            .as_ref()
            .map_or_else(Vec::new, |it| it.standings()),
    }))
}
