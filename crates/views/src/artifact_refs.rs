//! References to artifacts in the log of a run.

use serde_json::Value as Json;
use stepwell_kernel::event::ArtifactRef;

use crate::RunView;

/// The last reference to an artifact in the log of a run.
#[must_use]
pub fn artifact_ref(view: &RunView, uri: &str) -> Option<ArtifactRef> {
    let events = view.events.iter().rev();
    let mut texts = events.filter_map(|event| serde_json::to_value(event).ok());
    texts.find_map(|json| find(&json, uri))
}

/// Searches a value and everything inside it.
fn find(json: &Json, uri: &str) -> Option<ArtifactRef> {
    if json.get("uri").and_then(Json::as_str) == Some(uri)
        && let Ok(reference) = serde_json::from_value::<ArtifactRef>(json.clone())
    {
        return Some(reference);
    }
    match json {
        Json::Array(items) => items.iter().find_map(|it| find(it, uri)),
        Json::Object(map) => map.values().find_map(|it| find(it, uri)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
    }
}
