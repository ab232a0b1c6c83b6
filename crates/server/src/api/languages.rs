//! The languages that definitions are written in: their words for states, and the JSON Schemas of their files.

use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use serde::Serialize;
use serde_json::Value;
use stepwell_dialects::document;
use stepwell_dialects::states::StateWord;
use stepwell_kernel::plan::Dialect;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::problem::ApiProblem;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(languages))
        .routes(routes!(schema))
}

/// A word for a state.
#[derive(Debug, Serialize, ToSchema)]
struct WordOfState {
    word: &'static str,
    /// When a run or a step has the word.
    when: &'static str,
}

impl WordOfState {
    fn all(words: &[StateWord]) -> Vec<WordOfState> {
        let word = |it: &StateWord| WordOfState {
            word: it.word,
            when: it.when,
        };
        words.iter().map(word).collect()
    }
}

/// A language and its words.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct LanguageOfDefinitions {
    /// actions, dag, plan, playbook or linear.
    name: &'static str,
    /// The states of a run.
    run: Vec<WordOfState>,
    /// What is said beside the state of a run.
    run_substatus: Vec<WordOfState>,
    /// The states of a step.
    step: Vec<WordOfState>,
}

/// List the languages of definitions, with their words for the states of runs and steps.
#[utoipa::path(get, path = "/api/v1/languages", tag = "definitions", security(("token" = ["view"])),
    responses((status = 200, body = Vec<LanguageOfDefinitions>), (status = 403, body = ApiProblem)))]
async fn languages() -> Json<Vec<LanguageOfDefinitions>> {
    let language = |dialect: Dialect| {
        let words = document::words(dialect);
        LanguageOfDefinitions {
            name: dialect.name(),
            run: WordOfState::all(words.run),
            run_substatus: WordOfState::all(words.run_substatus),
            step: WordOfState::all(words.step),
        }
    };
    Json(Dialect::ALL.map(language).into())
}

/// The JSON Schema of the files of a language, for editors.
#[utoipa::path(get, path = "/api/v1/languages/{language}/schema", tag = "definitions", security(("token" = ["view"])),
    params(("language" = String, Path, description = "actions, dag, plan, playbook or linear.")),
    responses((status = 200, body = Object), (status = 400, body = ApiProblem), (status = 403, body = ApiProblem)))]
async fn schema(Path(language): Path<String>) -> Result<Json<Value>, ApiProblem> {
    match document::dialect_named(&language) {
        Some(dialect) => Ok(Json(document::schema(dialect))),
        None => {
            let known = Dialect::ALL.map(Dialect::name).join(", ");
            let why = format!("there is no language of this name; languages are {known}");
            Err(ApiProblem::bad_request(why))
        }
    }
}
