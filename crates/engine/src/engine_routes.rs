//! Which definitions run on an engine outside, such as Temporal, and which by this process itself.

use stepwell_dialects::Severity;
use stepwell_dialects::plan::check_engine;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::State;

use crate::coordinator::{NATIVE, PRETENDS};

/// How long an engine outside may take to act before a server looks, in milliseconds.
pub(crate) const LATE_MS: u64 = 15_000;

/// Whether this is an engine outside, such as Temporal: neither the engine of this process nor the one that pretends all work.
pub(crate) fn is_outside(engine: &str) -> bool {
    engine != NATIVE && engine != PRETENDS
}

/// The engine outside that moves a run, if one does.
#[must_use]
pub fn engine_outside(state: &State) -> Option<&str> {
    state.engine().filter(|it| is_outside(it))
}

/// Which definitions run where: the first route that fits counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRoute {
    /// The name of the definition (its plan id); `*` stands for any text.
    pub definition: String,
    /// Only runs of this tenant; absent: of all.
    pub tenant: Option<String>,
    /// Only runs of this project; absent: of all.
    pub project: Option<String>,
    /// The engine outside, as the log names it; absent: this process itself.
    pub engine: Option<&'static str>,
}

/// The engines outside that this process serves, beside its own, and which runs are theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineRoutes {
    /// What the ids of runs begin with there: what belongs to the store.
    pub place: String,
    /// The engines outside, as the log names them.
    pub engines: Vec<&'static str>,
    pub routes: Vec<EngineRoute>,
}

impl EngineRoutes {
    /// Whether this is one of the engines outside that this process serves.
    #[must_use]
    pub fn has(&self, engine: &str) -> bool {
        self.engines.contains(&engine)
    }

    /// The engine outside that runs of a definition are for; none: this process itself. A route for a project fits only if the
    /// project is known.
    #[must_use]
    pub fn engine_of(
        &self,
        plan_id: &str,
        tenant: &str,
        project: Option<&str>,
    ) -> Option<&'static str> {
        let fits = |route: &&EngineRoute| {
            matches(&route.definition, plan_id)
                && route.tenant.as_deref().is_none_or(|it| it == tenant)
                && (route.project.is_none() || route.project.as_deref() == project)
        };
        self.routes.iter().find(fits)?.engine
    }
}

/// Refuses a plan that is written for another engine, or that requires what the engine does not have.
pub(crate) fn must_suit(plan: &Plan, engine: &str) -> Result<(), Rejection> {
    let found = check_engine(plan, engine);
    let Some(problem) = found.into_iter().find(|it| it.severity == Severity::Error) else {
        return Ok(());
    };
    let code = match problem.code == Code::PlanAdapterUnsupported.name() {
        true => Code::PlanAdapterUnsupported,
        false => Code::PlanCapabilityUnsupported,
    };
    Err(Rejection::new(code, problem.message))
}

/// Whether a text fits a pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        // The pattern has no star.
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fits) in [
            ("order", "order", true),
            ("order", "orders", false),
            ("*", "", true),
            ("order-*", "order-eu", true),
            ("order-*", "order", false),
            ("*-eu", "order-eu", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn the_first_route_that_fits_counts() {
        let route = |definition: &str, tenant: Option<&str>, engine| EngineRoute {
            definition: definition.to_owned(),
            tenant: tenant.map(str::to_owned),
            project: None,
            engine,
        };
        let routes = EngineRoutes {
            place: "p/".to_owned(),
            engines: vec!["temporal"],
            routes: vec![
                route("order-test", None, None),
                route("order-*", Some("acme"), Some("temporal")),
            ],
        };
        assert_eq!(routes.engine_of("order-test", "acme", None), None);
        assert_eq!(routes.engine_of("order-eu", "acme", None), Some("temporal"));
        assert_eq!(routes.engine_of("order-eu", "other", None), None);
        assert!(routes.has("temporal") && !routes.has("conductor"));
    }
}
