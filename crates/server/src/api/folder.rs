//! The folder of `stepwell dev`: its files with definitions, and what is wrong with those that are not loaded.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Caller, LOCAL};
use crate::app::App;
use crate::folder::FolderFile;
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(folder))
}

/// The folder whose definitions the server loads.
#[derive(Debug, Serialize, ToSchema)]
struct DefinitionFolder {
    /// The files with definitions, by their paths; none on a server that has no folder.
    files: Vec<FolderFile>,
}

/// List the files of the folder that `stepwell dev` loads, with the problems of those that are not loaded.
#[utoipa::path(get, path = "/api/v1/folder", tag = "definitions", security(("token" = ["view"])),
    responses((status = 200, body = DefinitionFolder), (status = 403, body = ApiProblem)))]
async fn folder(State(app): State<Arc<App>>, caller: Caller) -> Json<DefinitionFolder> {
    // The definitions of the folder are of the tenant and the project that everything is of that nobody gave one.
    let files = match caller.is_of(LOCAL, LOCAL) {
        true => app.folder.files(),
        false => Vec::new(),
    };
    Json(DefinitionFolder { files })
}
