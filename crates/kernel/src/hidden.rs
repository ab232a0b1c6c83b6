//! Secrets that a definition has written out, such as a password in the workload of a playbook. The run needs the value, and
//! everyone who may see a run sees its events: so an event has a token in the place of the value, and the fold puts the value,
//! which the plan has, back in its place.
//!
//! Only values that the kernel itself takes from the plan are looked at: parameters, arguments of arcs, variables of ctx, items
//! of loops. What a worker reports was redacted by the worker.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::event::{Body, LoopItems, LoopStart, Patch, Routing};
use crate::keys::sha256_hex;
use crate::plan::Net;

/// What stands in the place of a text that looks like a token and is none.
const MASK: &str = "***";
/// The ending of the token of a number.
const NUMBER: &str = "#";

/// The secrets that a definition has written out, each with its token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hidden {
    tokens: Vec<HiddenText>,
}

#[derive(Clone, Debug)]
struct HiddenText {
    secret: String,
    token: String,
}

/// How a text changes.
type Change = fn(&HiddenText, &str) -> String;

impl Hidden {
    pub(crate) fn of(net: &Net) -> Hidden {
        let hash = |secret: &str| sha256_hex(&format!("{}|{secret}", net.source.sha256));
        let secrets = net.policy.hidden.iter().filter(|it| !it.is_empty());
        let mut tokens: Vec<HiddenText> = secrets
            .map(|secret| HiddenText {
                secret: secret.clone(),
                token: format!("{MASK}{}", &hash(secret)[..16]),
            })
            .collect();
        // A secret that is a part of another one must not tear that one apart.
        tokens.sort_by_key(|it| std::cmp::Reverse(it.secret.len()));
        Hidden { tokens }
    }

    /// The event as it is recorded. A sender who writes a token does not get the value.
    pub(crate) fn hide(&self, mut body: Body) -> Body {
        if !self.tokens.is_empty() {
            let hide: Change =
                |it, text| text.replace(&it.token, MASK).replace(&it.secret, &it.token);
            each_value(&mut body, &mut |value| self.change(value, hide));
        }
        body
    }

    /// The event as the fold needs it.
    pub(crate) fn show<'b>(&self, body: &'b Body) -> Cow<'b, Body> {
        if self.tokens.is_empty() {
            return Cow::Borrowed(body);
        }
        let mut shown = body.clone();
        let show: Change = |it, text| text.replace(&it.token, &it.secret);
        each_value(&mut shown, &mut |value| self.change(value, show));
        Cow::Owned(shown)
    }

    fn change(&self, value: &mut Json, change: Change) {
        match value {
            Json::String(text) => {
                let number = |it: &HiddenText| text.strip_suffix(NUMBER) == Some(&it.token);
                if let Some(it) = self.tokens.iter().find(|it| number(it)) {
                    let parsed = serde_json::from_str(&change(it, &it.token));
                    *value = parsed.unwrap_or_else(|_| MASK.into());
                    return;
                }
                for it in &self.tokens {
                    if text.contains(&it.secret) || text.contains(&it.token) {
                        *text = change(it, text);
                    }
                }
            }
            Json::Number(number) => {
                let text = number.to_string();
                if let Some(it) = self.tokens.iter().find(|it| it.secret == text) {
                    let changed = change(it, &text);
                    if changed != text {
                        *value = format!("{changed}{NUMBER}").into();
                    }
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|it| self.change(it, change)),
            Json::Object(fields) => fields.values_mut().for_each(|it| self.change(it, change)),
            Json::Null | Json::Bool(_) => {}
        }
    }
}

/// The values that come from the plan.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other events have no value that an expression of the plan gives"
)]
fn each_value(body: &mut Body, change: &mut dyn FnMut(&mut Json)) {
    match body {
        Body::RunCreated { params, .. } | Body::ParamsUpdated { params } => {
            change(Arc::make_mut(params));
        }
        Body::CtxPatched { ctx, .. } => patch(ctx, change),
        Body::StepStarted {
            each:
                Some(LoopStart {
                    items: LoopItems::Inline(items),
                    ..
                }),
            ..
        } => Arc::make_mut(items).iter_mut().for_each(change),
        Body::StepCompleted { ctx, routing, .. } => {
            patch(ctx, change);
            routing.iter_mut().for_each(|it| routed(it, change));
        }
        Body::StepRouted { routing, .. } => routed(routing, change),
        _ => {}
    }
}

fn routed(routing: &mut Routing, change: &mut dyn FnMut(&mut Json)) {
    for taken in &mut routing.taken {
        if let Some(args) = &mut taken.args {
            change(Arc::make_mut(args));
        }
    }
    patch(&mut routing.set, change);
}

fn patch(patch: &mut Patch, change: &mut dyn FnMut(&mut Json)) {
    patch.values_mut().for_each(change);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(secrets: &[&str]) -> Hidden {
        let net = json!({
            "dialect": "playbook", "plan_id": "p", "plan_version": "1", "schema_version": "v1.0",
            "source": { "uri": "file:p", "sha256": "00" }, "steps": [],
            "policy": crate::plan::RunPolicy { hidden: secrets.iter().map(|it| (*it).to_owned()).collect(), ..Default::default() },
        });
        Hidden::of(&serde_json::from_value(net).unwrap())
    }

    fn body(params: Json) -> Body {
        Body::ParamsUpdated {
            params: Arc::new(params),
        }
    }

    #[test]
    fn an_event_has_a_token_and_the_fold_gets_the_value() {
        let hidden = hidden(&["canary", "canary-two", "4711"]);
        let whole = body(json!({
            "a": "canary", "b": ["user:canary-two@db"], "pin": 4711, "text": "4711", "n": 47_110, "other": null,
        }));
        let recorded = hidden.hide(whole.clone());
        let text = format!("{recorded:?}");
        assert!(
            !text.contains("canary") && !text.contains("4711\"") && text.contains("***"),
            "{text}"
        );
        assert_eq!(*hidden.show(&recorded), whole);
        // Once more changes nothing that the fold sees.
        assert_eq!(hidden.hide(whole), recorded);
    }

    #[test]
    fn a_sender_who_writes_a_token_does_not_get_the_value() {
        let hidden = hidden(&["canary", "4711"]);
        for secret in [json!("canary"), json!(4711)] {
            let Body::ParamsUpdated { params: token } = hidden.hide(body(secret)) else {
                panic!("another event");
            };
            let recorded = hidden.hide(body(json!(*token)));
            let shown = hidden.show(&recorded);
            assert_eq!(*shown, recorded);
            assert!(!format!("{shown:?}").contains("canary"));
        }
    }

    #[test]
    fn a_plan_without_written_secrets_changes_nothing() {
        let hidden = hidden(&[]);
        let whole = body(json!({ "password": "canary" }));
        assert_eq!(hidden.hide(whole.clone()), whole);
        assert!(matches!(hidden.show(&whole), Cow::Borrowed(_)));
    }
}
