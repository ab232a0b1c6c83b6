//! References to artifacts in results: what a result says about an artifact must be true before it is in a log, because a
//! reader finds out too late.

use axum::http::StatusCode;
use serde_json::Value;
use stepwell_engine::remote::RemoteClaim;
use stepwell_kernel::event::ArtifactRef;
use stepwell_kernel::reference::{REF, SCHEME};
use stepwell_worker::artifacts::{ArtifactError, references};

use super::dto::WorkResult;
use super::results::read_all;
use crate::app::App;
use crate::problem::ApiProblem;

/// The artifacts that a result refers to, in its field `artifacts` and in its values. `text` is the result as JSON. Artifacts
/// that are kept elsewhere are their writers' matter.
pub(super) fn of(result: &WorkResult, text: &[u8]) -> Result<Vec<ArtifactRef>, ApiProblem> {
    let mut found = read_all(result.artifacts.clone())?;
    found.retain(|it| it.uri.starts_with(SCHEME));
    if let Some(bare) = found.iter().find(|it| it.sha256.is_none()) {
        return Err(ApiProblem::bad_request(format!(
            "artifacts: {} needs its sha256: send the reference as `PUT /api/v1/worker/artifacts` gave it",
            bare.uri
        )));
    }
    // Most results have none, and are not looked through.
    if text.windows(REF.len()).any(|it| it == REF.as_bytes()) {
        let wait = result.wait.as_ref();
        let of_wait = wait.map(|wait| {
            let more = [wait.memo.as_ref(), wait.input.as_ref()];
            more.into_iter().flatten().chain(&wait.outbound)
        });
        let values = std::iter::once(&result.output).chain(result.ctx.values());
        let values: Vec<&Value> = values.chain(of_wait.into_iter().flatten()).collect();
        found.extend(values.into_iter().flat_map(references));
    }
    let mut once: Vec<ArtifactRef> = Vec::new();
    for reference in found {
        if !once.contains(&reference) {
            once.push(reference);
        }
    }
    Ok(once)
}

/// Whether what a reference says about its artifact is true.
pub(super) async fn check(
    app: &App,
    claim: &RemoteClaim,
    reference: &ArtifactRef,
) -> Result<(), ApiProblem> {
    if app.workers.registry.has_kept(claim, reference) {
        return Ok(());
    }
    match app.artifacts.get(reference).await {
        Ok(_) => Ok(()),
        // The artifact store may answer later.
        Err(error @ ArtifactError::Store { .. }) => Err(error.into()),
        Err(
            error @ (ArtifactError::Missing { .. }
            | ArtifactError::Corrupt { .. }
            | ArtifactError::Exists { .. }
            | ArtifactError::TooLarge { .. }
            | ArtifactError::Address(_)),
        ) => Err(ApiProblem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            error.code(),
            format!(
                "the result refers to an artifact that is not there or is another one; send references as \
                 `PUT /api/v1/worker/artifacts` gave them: {error}"
            ),
        )),
    }
}
