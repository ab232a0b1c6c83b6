//! Parameters of a run that are too large for the log: they go to the artifacts before the run is started, as large results
//! do, and the run is started with references. Arguments of arcs and variables of ctx that are made of them are then small too.

use serde_json::{Map, Value as Json};
use stepwell_kernel::expr::has_template;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::reference::is_reference;

use crate::artifacts::{ArtifactError, ArtifactKey, Artifacts, INLINE_BYTES};
use crate::retained;

/// What stands for the step in the paths of these artifacts; the executions of a step begin with 1.
const STEP: &str = "workload";
const EXECUTION: u32 = 0;

/// Whether a parameter can be too large for the log; quick, for callers that start many runs.
#[must_use]
pub fn may_be_large(plan: &Plan, params: &Json) -> bool {
    let length = |value: &Json| value.to_string().len();
    length(params) + length(&plan.net().workload) > INLINE_BYTES
}

/// The parameters as a run is started with them. Also those that only the definition has are looked at, unless they are
/// templates, whose values nobody knows yet.
pub async fn shrink(
    artifacts: &Artifacts,
    run_id: &str,
    plan: &Plan,
    mut params: Json,
) -> Result<Json, ArtifactError> {
    let own = plan.net().workload.as_object();
    let names: Vec<String> = {
        let given = params.as_object();
        let own = own.into_iter().flat_map(Map::keys);
        let all = given.into_iter().flat_map(Map::keys).chain(own);
        let mut names: Vec<String> = all.cloned().collect();
        names.sort();
        names.dedup();
        names
    };
    for name in names {
        let value = whole(
            own.and_then(|own| own.get(&name)),
            params.get(&name).filter(|it| !it.is_null()),
        );
        let Some(value) = value.filter(|it| !is_reference(it)) else {
            continue;
        };
        let text = value.to_string();
        // A secret that the definition has written out has a token in the log, and none in an artifact.
        let is_secret = |secret: &String| text.contains(secret.as_str());
        if text.len() <= INLINE_BYTES || plan.policy().hidden.iter().any(is_secret) {
            continue;
        }
        let key = ArtifactKey::new(run_id, STEP, EXECUTION, &name);
        let kept = retained::of_parameter(plan, &name);
        let (small, _) = artifacts.shrink(&key, value, &kept).await?;
        if params.is_null() {
            params = Json::Object(Map::new());
        }
        params[&name] = small;
    }
    Ok(params)
}

/// The value of a parameter, if it is known before the run is created.
fn whole(own: Option<&Json>, given: Option<&Json>) -> Option<Json> {
    match (own, given) {
        (Some(Json::Object(own)), Some(Json::Object(over))) => {
            let mut all = Map::new();
            let names = own
                .keys()
                .chain(over.keys().filter(|it| !own.contains_key(*it)));
            for name in names {
                let value = whole(own.get(name), over.get(name).filter(|it| !it.is_null()));
                all.insert(name.clone(), value?);
            }
            Some(Json::Object(all))
        }
        (_, Some(given)) => Some(given.clone()),
        (own, None) => own.filter(|it| !is_rendered(it)).cloned(),
    }
}

fn is_rendered(value: &Json) -> bool {
    match value {
        Json::String(text) => has_template(text),
        Json::Array(items) => items.iter().any(is_rendered),
        Json::Object(fields) => fields.values().any(is_rendered),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_parameter_is_what_the_kernel_will_make_of_it() {
        let whole = |own: Json, given: Json| {
            let given = Some(&given).filter(|it| !it.is_null());
            super::whole(Some(&own).filter(|it| !it.is_null()), given)
        };
        assert_eq!(whole(json!("a"), json!("b")), Some(json!("b")));
        assert_eq!(whole(json!("a"), Json::Null), Some(json!("a")));
        assert_eq!(whole(json!("{{ run_id }}"), Json::Null), None);
        assert_eq!(whole(json!("{{ run_id }}"), json!("b")), Some(json!("b")));
        assert_eq!(
            whole(
                json!({ "a": 1, "b": { "c": 2 } }),
                json!({ "b": { "d": 3 }, "a": null })
            ),
            Some(json!({ "a": 1, "b": { "c": 2, "d": 3 } }))
        );
        assert_eq!(whole(json!({ "a": "{{ x }}" }), json!({ "b": 1 })), None);
    }
}
