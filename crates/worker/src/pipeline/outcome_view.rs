//! What a task's rules and assignments see of its result, beyond the outcome itself: other ways
//! to reach the same facts that real files use.

use std::time::Duration;

use serde_json::{Value as Json, json};
use stepwell_kernel::expr::Template;
use stepwell_kernel::plan::ErrorClass;

use crate::outcome::TaskOutcome;

/// The result of a task, as templates see it.
pub(super) struct OutcomeView {
    json: Json,
    /// The word of another vocabulary for the kind of its error, and all of it with that word.
    other: Option<(&'static str, Json)>,
}

impl OutcomeView {
    pub(super) fn of(outcome: &TaskOutcome, attempt: u32, took: Duration) -> OutcomeView {
        let mut json = outcome.to_json(attempt, took);
        let status = json.pointer("/http/status").and_then(Json::as_u64);
        if let Some(status) = status {
            open_body(&mut json);
            if let Some(error) = json.get_mut("error").and_then(Json::as_object_mut) {
                error.insert("status".to_owned(), json!(status));
            }
        }
        let other = other_kind(outcome, status).map(|kind| {
            let mut json = json.clone();
            json["error"]["kind"] = json!(kind);
            (kind, json)
        });
        OutcomeView { json, other }
    }

    /// For everything that says nothing of kinds.
    pub(super) fn plain(&self) -> &Json {
        &self.json
    }

    /// For a rule: if its condition asks for the kind by its other word, that is what it sees.
    pub(super) fn by(&self, when: Option<&Template>) -> &Json {
        let asks = |kind: &str| {
            let text = when.map_or("", Template::source);
            text.contains(&format!("'{kind}'")) || text.contains(&format!("\"{kind}\""))
        };
        match &self.other {
            Some((kind, json)) if asks(kind) => json,
            _ => &self.json,
        }
    }
}

/// An answer's `data` is `{status_code, data}`, and files read its fields with and without the second
/// `data`.
fn open_body(seen: &mut Json) {
    let Some(Json::Object(data)) = seen.get_mut("data") else {
        return;
    };
    if let Some(Json::Object(body)) = data.get("data").cloned() {
        for (key, value) in body {
            data.entry(key).or_insert(value);
        }
    }
}

/// The kinds of errors in the words that playbooks were written in first.
fn other_kind(outcome: &TaskOutcome, status: Option<u64>) -> Option<&'static str> {
    let error = outcome.error.as_ref()?;
    let on_database = error.code.starts_with("PG");
    let class = error.class;
    let by_request = matches!(class, ErrorClass::Validation | ErrorClass::Conflict);
    match status {
        Some(404) => return Some("not_found"),
        Some(500..=599) => return Some("server_error"),
        Some(400..=499) => return by_request.then_some("client_error"),
        Some(_) => return None,
        None => {}
    }
    match class {
        ErrorClass::Transport if on_database => Some("db_connection"),
        ErrorClass::Transport => Some("connection"),
        ErrorClass::Conflict => on_database.then_some("db_constraint"),
        ErrorClass::Timeout => on_database.then_some("db_timeout"),
        // These have no other word.
        ErrorClass::RateLimit
        | ErrorClass::Transient
        | ErrorClass::Validation
        | ErrorClass::Policy
        | ErrorClass::Auth
        | ErrorClass::Agent
        | ErrorClass::External
        | ErrorClass::Governance
        | ErrorClass::LeaseLost
        | ErrorClass::Expression
        | ErrorClass::Rejected
        | ErrorClass::Cancelled
        | ErrorClass::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::ToolError;

    fn answered(status: u16, body: Json) -> TaskOutcome {
        let result = json!({ "status_code": status, "data": body });
        TaskOutcome::ok(result).with("http", json!({ "status": status }))
    }

    #[test]
    fn fields_of_an_answer_are_found_with_and_without_its_own_data() {
        let body = json!({ "data": [1], "paging": { "hasMore": true } });
        let seen = OutcomeView::of(&answered(200, body.clone()), 1, Duration::ZERO);
        let seen = seen.plain();
        assert_eq!(seen["data"]["paging"]["hasMore"], true);
        assert_eq!(seen["data"]["data"], body);
        assert_eq!(seen["result"], json!({ "status_code": 200, "data": body }));
    }

    #[test]
    fn a_rule_finds_the_kind_of_an_error_by_either_word() {
        let mut outcome = answered(503, Json::Null);
        outcome.error = Some(ToolError::new(ErrorClass::Transient, "HTTP_503", "busy"));
        let seen = OutcomeView::of(&outcome, 1, Duration::ZERO);
        let kind = |when: &str| {
            let when = Template::parse(when).unwrap();
            seen.by(Some(&when))["error"]["kind"].clone()
        };
        assert_eq!(
            kind("{{ output.error.kind == 'server_error' }}"),
            "server_error"
        );
        assert_eq!(kind("{{ output.error.kind == 'transient' }}"), "transient");
        assert_eq!(seen.plain()["error"]["status"], 503);
    }
}
