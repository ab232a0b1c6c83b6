//! The key of a run, and how long claims are leased for: policies of a plan that the engine asks for when
//! a run is created and when work is claimed.

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Plan, RunPolicy};
use crate::expr::{Scope, Template};

/// A name that at most one open run of a tenant may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueKey {
    /// The tenant whose open runs must have different keys, the runs of all plans together.
    pub tenant: String,
    /// The business key of the run.
    pub key: String,
}

impl Plan {
    /// The key of a run for events from outside: the policy's template, filled with the parameters of the
    /// run. Absent where the plan has none; the key is then the run's own id. So it is for runs whose template
    /// gave nothing and that were created before this was refused ([`Plan::check_event_key`]).
    #[must_use]
    pub fn event_key(&self, params: &Arc<Json>) -> Option<String> {
        let scope = KeyScope {
            params,
            is_strict: false,
        };
        let value = Template::parse(self.event_key_template()?)
            .ok()?
            .evaluate(&scope);
        key_of(value.ok()?)
    }

    /// Says why parameters give no key although the plan has a template for it: any number of runs could then be open for
    /// what must have one.
    pub fn check_event_key(&self, params: &Arc<Json>) -> Result<(), String> {
        let Some(text) = self.event_key_template() else {
            return Ok(());
        };
        let scope = KeyScope {
            params,
            is_strict: true,
        };
        let value = Template::parse(text).and_then(|template| template.evaluate(&scope));
        let why = match value.map(key_of) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => format!("template `{text}` gives nothing"),
            Err(error) => error.to_string(),
        };
        Err(format!(
            "the run would have no business key: {why}; start it with an input that gives one (`-i NAME=VALUE`), or write \
             the definition without bizKey"
        ))
    }

    fn event_key_template(&self) -> Option<&str> {
        // Plans that were compiled before the policy existed have the template among the extras.
        let earlier = || self.net().extra.get("bizKey")?.as_str();
        self.policy().event_key.as_deref().or_else(earlier)
    }

    /// What no other open run of the tenant may have while this run is open: its key for events from outside. None if
    /// that is only the id of the run, because the plan has no template or the template gave nothing.
    #[must_use]
    pub fn unique_key(&self, tenant: &str, run_id: &str, event_key: &str) -> Option<UniqueKey> {
        (event_key != run_id).then(|| UniqueKey {
            tenant: tenant.to_owned(),
            key: event_key.to_owned(),
        })
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

/// What the template of a key sees: the parameters of the run.
struct KeyScope<'a> {
    params: &'a Arc<Json>,
    is_strict: bool,
}

impl Scope for KeyScope<'_> {
    fn lookup(&self, name: &str) -> Option<Arc<Json>> {
        match name {
            "workload" | "params" => Some(self.params.clone()),
            other => self.params.get(other).map(|it| Arc::new(it.clone())),
        }
    }

    fn is_strict(&self) -> bool {
        self.is_strict
    }
}

/// The key that a value is; null and empty text are none.
fn key_of(value: Json) -> Option<String> {
    match value {
        Json::Null => None,
        Json::String(text) => Some(text).filter(|text| !text.is_empty()),
        other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_)) => {
            Some(other.to_string())
        }
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
    fn a_template_that_gives_no_key_is_refused() {
        let params = Arc::new(json!({"order": 7, "none": null, "empty": ""}));
        let checked = |template: &str| keyed(template).check_event_key(&params);
        for good in [
            "{{ order }}",
            "o-{{ workload.order }}",
            "{{ x | default(order) }}",
        ] {
            assert_eq!(checked(good), Ok(()), "{good}");
        }
        for bad in [
            "{{ x }}",
            "o-{{ workload.x }}",
            "{{ none }}",
            "{{ empty }}",
            "",
        ] {
            let why = checked(bad).unwrap_err();
            assert!(why.contains("no business key"), "{bad}: {why}");
        }
        let plain = plan(RunPolicy::default(), Json::Null);
        assert_eq!(plain.check_event_key(&params), Ok(()));
    }

    #[test]
    fn a_key_is_unique_unless_it_is_only_the_id_of_the_run() {
        let unique = |event_key: &str| keyed("{{ order }}").unique_key("acme", "run_1", event_key);
        let expected = UniqueKey {
            tenant: "acme".into(),
            key: "o-1".into(),
        };
        assert_eq!(unique("o-1"), Some(expected));
        assert_eq!(unique("run_1"), None);
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
