//! What events from outside are matched by, and how long claims are leased for: policies of a plan that
//! the engine asks for when a run is created and when work is claimed.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Plan, RunPolicy};
use crate::expr::Template;

impl Plan {
    /// The key of a run for events from outside: the policy's template, filled with the parameters of the
    /// run. Absent where the plan has none, or where the template gives nothing for these parameters: the
    /// key is then the run's own id.
    #[must_use]
    pub fn event_key(&self, params: &Arc<Json>) -> Option<String> {
        // Plans that were compiled before the policy existed have the template among the extras.
        let earlier = || self.net().extra.get("bizKey")?.as_str();
        let text = self.policy().event_key.as_deref().or_else(earlier)?;
        let scope = |name: &str| match name {
            "workload" | "params" => Some(params.clone()),
            other => params.get(other).map(|it| Arc::new(it.clone())),
        };
        match Template::parse(text).ok()?.evaluate(&scope).ok()? {
            Json::Null => None,
            Json::String(text) => Some(text).filter(|text| !text.is_empty()),
            other => Some(other.to_string()),
        }
    }

    /// How long a claim is leased for, in milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        // As above: in seconds, among the extras.
        let earlier = || {
            let seconds = self.net().extra.get("leaseSeconds")?.as_u64()?;
            Some(seconds.saturating_mul(1_000))
        };
        let lease = self.policy().lease_ms.or_else(earlier);
        lease.unwrap_or(RunPolicy::LEASE_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Dialect, Net, SourceRef, Step, Work};
    use serde_json::json;

    fn plan(policy: RunPolicy, extra: Json) -> Plan {
        let work = Work::Task {
            queue: "q".into(),
            operation: "do".into(),
            config: Json::Null,
        };
        let net = Net {
            dialect: Dialect::Linear,
            plan_id: "p".into(),
            plan_version: "1".into(),
            schema_version: "v1.0".into(),
            source: SourceRef::default(),
            workload: Json::Null,
            edges: Vec::new(),
            steps: vec![Step::new("a", work)],
            policy,
            library: Default::default(),
            extra,
        };
        Plan::new(net).expect("the net is valid")
    }

    fn keyed(template: &str) -> Plan {
        let policy = RunPolicy {
            event_key: Some(template.to_owned()),
            ..RunPolicy::default()
        };
        plan(policy, Json::Null)
    }

    #[test]
    fn the_key_is_the_template_filled_with_the_parameters() {
        let params = Arc::new(json!({"order": 7, "name": "x", "none": null}));
        let key = |template: &str| keyed(template).event_key(&params);
        assert_eq!(key("{{ order }}"), Some("7".into()));
        assert_eq!(
            key("{{ workload.name }}-{{ params.order }}"),
            Some("x-7".into())
        );
        assert_eq!(key("{{ none }}"), None);
        assert_eq!(key(""), None);
        assert_eq!(
            plan(RunPolicy::default(), Json::Null).event_key(&params),
            None
        );
    }

    #[test]
    fn plans_that_were_compiled_earlier_keep_their_key_and_their_lease() {
        let extra = json!({"bizKey": "{{ order }}", "leaseSeconds": 9});
        let plan = plan(RunPolicy::default(), extra);
        let params = Arc::new(json!({"order": "o-1"}));
        assert_eq!(plan.event_key(&params), Some("o-1".into()));
        assert_eq!(plan.lease_ms(), 9_000);
        assert_eq!(keyed("x").lease_ms(), RunPolicy::LEASE_MS);
    }
}
