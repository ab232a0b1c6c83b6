//! Start requests that come again. A request with a known id gets the run of the first one, but only if it asks for the
//! same: two requests that ask for different runs under one id are a mistake of their sender, and one of them would be lost
//! without an error. What was asked for first is in the log of the run, so nothing more is kept.

use serde_json::{Map, Value as Json};
use stepwell_kernel::command::Env;
use stepwell_kernel::decide::decide;
use stepwell_kernel::keys::{TokenKey, sha256_hex};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::reference::{AT, REF, is_reference};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

use crate::error::Error;
use crate::read::{LoggedRun, RunSource};
use crate::start::StartRequest;

/// What a sender has said about the definition of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedDefinition {
    /// This very text or revision: another one is another request.
    Fixed,
    /// The one that a name has now: it may have changed since the first request, which counts.
    Current,
}

/// Refuses a start request whose id is that of an earlier one with other content: another definition, parameter, label, priority,
/// project, environment or run that is repeated. When the run is to start, who asks for it and its place in a trace are not compared: they
/// differ when the same is asked for again.
pub fn check_repeated(
    source: &dyn RunSource,
    run_id: &str,
    plan: &Plan,
    definition: AskedDefinition,
    request: &StartRequest,
) -> Result<(), Error> {
    let first = created(source, run_id)?;
    match difference(&first, plan, definition, request) {
        None => Ok(()),
        Some(what) => Err(contradicted(run_id, &what)),
    }
}

/// The same for one parameter of a run: whatever else has changed, the sender has no part in it.
pub fn check_repeated_parameter(
    source: &dyn RunSource,
    run_id: &str,
    name: &str,
    request: &StartRequest,
) -> Result<(), Error> {
    let first = created(source, run_id)?;
    let kept = first.state.params().first();
    let kept = kept.and_then(|it| it.get(name)).unwrap_or(&Json::Null);
    let asked = params_of(&first.plan, run_id, request).unwrap_or_default();
    match is_same(kept, asked.get(name).unwrap_or(&Json::Null)) {
        true => Ok(()),
        false => Err(contradicted(run_id, &another_value(name))),
    }
}

/// A run as it was created: the first event says what with.
fn created(source: &dyn RunSource, run_id: &str) -> Result<LoggedRun, Error> {
    let mut first = LoggedRun::open(source, run_id)?;
    let events = first.unread_chunks(source, 1)?;
    for event in events.iter().take(1) {
        first.fold(event)?;
    }
    Ok(first)
}

fn contradicted(run_id: &str, what: &str) -> Error {
    let message = format!(
        "run {run_id} was started with the same id of a request and {what}; use a new id for another run"
    );
    Rejection::new(Code::RequestContradicted, message).into()
}

fn another_value(name: &str) -> String {
    format!("another value of the parameter {name:?}")
}

/// What the first request had that differs.
fn difference(
    first: &LoggedRun,
    plan: &Plan,
    definition: AskedDefinition,
    request: &StartRequest,
) -> Option<String> {
    let state = &first.state;
    if definition == AskedDefinition::Fixed && !is_same_definition(&first.plan, plan) {
        return Some("another definition".to_owned());
    }
    let (kept, asked) = (state.context(), &request.context);
    let parts = [
        ("another project", kept.project_id != asked.project_id),
        (
            "another environment",
            kept.environment_id != asked.environment_id,
        ),
        ("other labels", kept.labels != asked.labels),
        ("another priority", kept.priority != asked.priority),
        (
            "another run that it repeats",
            state.original_run_id() != request.original_run_id.as_deref(),
        ),
    ];
    if let Some((what, _)) = parts.iter().find(|(_, differs)| *differs) {
        return Some((*what).to_owned());
    }
    // The parameters of a definition that has changed are those of the run's own definition.
    let plan = match definition {
        AskedDefinition::Fixed => plan,
        AskedDefinition::Current => &first.plan,
    };
    let kept = state.params().first();
    let kept = kept.map_or(&Json::Null, |it| &**it);
    let asked = params_of(plan, state.run_id(), request);
    let name = differing_field(kept, &asked.unwrap_or_default())?;
    Some(match name.as_str() {
        "" => "other parameters".to_owned(),
        name => another_value(name),
    })
}

/// Versions of the program may compile a text to different plans, so the texts are compared.
fn is_same_definition(first: &Plan, asked: &Plan) -> bool {
    let (first_text, asked_text) = (&first.net().source.sha256, &asked.net().source.sha256);
    match first_text.is_empty() && asked_text.is_empty() {
        true => first.hash() == asked.hash(),
        false => first_text == asked_text,
    }
}

/// The parameters that the kernel would create the run with; none if it would refuse them.
fn params_of(plan: &Plan, run_id: &str, request: &StartRequest) -> Option<Json> {
    let mut state = State::new(run_id, plan);
    let mut again = request.clone();
    run_id.clone_into(&mut again.run_id);
    // The creation makes no token.
    let env = Env {
        now: Time(0),
        key: TokenKey([0; 32]),
    };
    decide(plan, &mut state, again.into_command(), &env).ok()?;
    let params = state.params().first().map(|it| Json::clone(it));
    Some(params.unwrap_or_default())
}

/// The name of a field that is not the same in both; empty if it is not about a field.
fn differing_field(kept: &Json, asked: &Json) -> Option<String> {
    let none = Map::new();
    let (kept, asked) = match (kept, asked) {
        (Json::Null, Json::Null) => return None,
        (Json::Null, Json::Object(asked)) => (&none, asked),
        (Json::Object(kept), Json::Null) => (kept, &none),
        (Json::Object(kept), Json::Object(asked)) => (kept, asked),
        (kept, asked) => return (!is_same(kept, asked)).then(String::new),
    };
    let absent = Json::Null;
    let mut names = kept.keys().chain(asked.keys());
    let differs = |name: &&String| {
        let value = |of: &Map<String, Json>| of.get(*name).cloned();
        let (kept, asked) = (value(kept), value(asked));
        !is_same(
            kept.as_ref().unwrap_or(&absent),
            asked.as_ref().unwrap_or(&absent),
        )
    };
    names.find(differs).cloned()
}

/// Whether a value is the one that was kept; a large one is kept elsewhere, and its hash is here.
fn is_same(kept: &Json, asked: &Json) -> bool {
    if is_reference(kept) && kept.get(AT).is_none() && !is_reference(asked) {
        return kept[REF]["sha256"].as_str() == Some(&sha256_hex(&asked.to_string()));
    }
    kept == asked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_field_that_differs_is_named() {
        let kept = json!({ "a": 1, "b": { "c": [1, 2] } });
        let differs = |asked: Json| differing_field(&kept, &asked);
        assert_eq!(differs(json!({ "b": { "c": [1, 2] }, "a": 1 })), None);
        assert_eq!(
            differs(json!({ "a": 2, "b": { "c": [1, 2] } })),
            Some("a".into())
        );
        assert_eq!(
            differs(json!({ "a": 1, "b": { "c": [2, 1] } })),
            Some("b".into())
        );
        assert_eq!(
            differs(json!({ "a": 1, "b": { "c": [1, 2] }, "z": 0 })),
            Some("z".into())
        );
        assert_eq!(differs(json!(null)), Some("a".into()));
        assert_eq!(differing_field(&json!(1), &json!(2)), Some(String::new()));
    }

    #[test]
    fn a_large_value_is_compared_by_its_hash() {
        let large = json!({ "rows": [1, 2, 3] });
        let text = large.to_string();
        let hash = sha256_hex(&text);
        let reference = json!({ "uri": "artifact://x", "sha256": hash, "sizeBytes": text.len() });
        let kept = json!({ "data": { "_ref": reference, "_keys": ["rows"] } });
        assert_eq!(differing_field(&kept, &json!({ "data": large })), None);
        let other = json!({ "data": { "rows": [1, 2, 4] } });
        assert_eq!(differing_field(&kept, &other), Some("data".into()));
    }
}
