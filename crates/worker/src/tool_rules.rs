//! Which tools a tenant may use: a list for everyone, and lists for single tenants and projects, of which the one that
//! names most counts alone.

use serde::Deserialize;
use stepwell_dialects::tools::table::KINDS;
use stepwell_dialects::tools::{RunBy, used};
use stepwell_engine::coordinator::Assignment;
use stepwell_kernel::codes;
use stepwell_kernel::command::Command;
use stepwell_kernel::event::Patch;
use stepwell_kernel::plan::ErrorClass;

use crate::outcome::ToolError;
use crate::report;

/// The section `[security.tools]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ToolRules {
    /// If it is there, only these tools may be used.
    #[serde(default)]
    allow: Option<Vec<ToolName>>,
    /// These tools may not be used.
    #[serde(default)]
    deny: Vec<ToolName>,
    /// Lists that count instead, for a tenant or one of its projects.
    #[serde(default, rename = "for")]
    exceptions: Vec<TenantTools>,
}

/// The tools of a tenant.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct TenantTools {
    tenant: String,
    /// Absent: all projects of the tenant that have no lists of their own.
    #[serde(default)]
    project: Option<String>,
    #[serde(default)]
    allow: Option<Vec<ToolName>>,
    #[serde(default)]
    deny: Vec<ToolName>,
}

/// The name of a tool that there is.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
struct ToolName(String);

impl TryFrom<String> for ToolName {
    type Error = String;

    fn try_from(name: String) -> Result<ToolName, String> {
        let tools = KINDS.iter().filter(|kind| kind.run_by == RunBy::Tool);
        let names: Vec<&str> = tools.map(|kind| kind.name).collect();
        match names.contains(&name.as_str()) {
            true => Ok(ToolName(name)),
            false => Err(format!(
                "there is no tool {name:?}; tools are {}",
                names.join(", ")
            )),
        }
    }
}

impl ToolRules {
    /// Whether every tenant may use every tool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == ToolRules::default()
    }

    /// Why a tool may not be used for a run of this tenant and project; none if it may.
    #[must_use]
    pub fn forbids(&self, tenant: &str, project: &str, tool: &str) -> Option<String> {
        let of_tenant = |it: &&TenantTools| it.tenant == tenant;
        let own = self.exceptions.iter().filter(of_tenant);
        let of_project = own
            .clone()
            .find(|it| it.project.as_deref() == Some(project));
        let found = of_project.or_else(|| own.clone().find(|it| it.project.is_none()));
        let (allow, deny, whose) = match found {
            None => (&self.allow, &self.deny, "[security.tools]".to_owned()),
            Some(it) => {
                let project = it.project.as_ref();
                let project = project.map_or_else(String::new, |it| format!(", project {it:?}"));
                let whose = format!("[[security.tools.for]] of tenant {tenant:?}{project}");
                (&it.allow, &it.deny, whose)
            }
        };
        let has = |list: &[ToolName]| list.iter().any(|it| it.0 == tool);
        if has(deny) {
            return Some(format!(
                "the tool `{tool}` is in the list `deny` of {whose}"
            ));
        }
        let is_missing = allow.as_ref().is_some_and(|list| !has(list));
        is_missing.then(|| format!("the tool `{tool}` is not in the list `allow` of {whose}"))
    }

    /// Why a tool may be used in no project of a tenant; none if it may in some.
    #[must_use]
    pub fn forbids_tenant(&self, tenant: &str, tool: &str) -> Option<String> {
        let own = self.exceptions.iter().filter(|it| it.tenant == tenant);
        let mut projects = own.filter_map(|it| it.project.as_deref());
        let may_in = |project: &str| self.forbids(tenant, project, tool).is_none();
        match projects.any(may_in) {
            true => None,
            // No project has an empty name.
            false => self.forbids(tenant, "", tool),
        }
    }

    /// The command that fails work which uses a tool that its tenant may not use; none if it may. For work that another
    /// process would do.
    #[must_use]
    pub fn refusal(&self, job: &Assignment) -> Option<Command> {
        let tools = used::of_step(&job.plan, job.claimed.step);
        let (tenant, project) = (job.tenancy.tenant(), job.tenancy.project());
        let mut why = tools
            .iter()
            .filter_map(|tool| self.forbids(tenant, project, tool));
        let error = ToolError::new(ErrorClass::Policy, codes::TOOL_FORBIDDEN, why.next()?);
        Some(report::failed(&job.claimed.claim, error, Patch::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: serde_json::Value) -> Result<ToolRules, serde_json::Error> {
        serde_json::from_value(json)
    }

    #[test]
    fn the_lists_that_name_most_count_alone() {
        let rules = rules(serde_json::json!({
            "deny": ["shell", "python"],
            "for": [
                {"tenant": "acme"},
                {"tenant": "acme", "project": "web", "allow": ["http"]},
                {"tenant": "umbrella", "deny": ["http"]},
            ],
        }));
        let rules = rules.unwrap();
        let may = |tenant, project, tool| rules.forbids(tenant, project, tool).is_none();
        assert!(!may("other", "x", "shell") && may("other", "x", "http"));
        assert!(may("acme", "x", "shell"));
        assert!(!may("acme", "web", "shell") && may("acme", "web", "http"));
        assert!(may("umbrella", "web", "shell") && !may("umbrella", "web", "http"));
        let why = rules.forbids("acme", "web", "shell").unwrap();
        assert!(why.contains("`shell`") && why.contains("\"web\""), "{why}");
        assert!(ToolRules::default().is_empty() && !rules.is_empty());
        assert!(may("acme", "x", "anything"));
    }

    #[test]
    fn no_tool_may_be_misspelt() {
        let error = rules(serde_json::json!({"deny": ["bash"]})).unwrap_err();
        assert!(error.to_string().contains("shell"), "{error}");
        assert!(rules(serde_json::json!({"for": [{"project": "x"}]})).is_err());
        assert!(rules(serde_json::json!({"allow": []})).is_ok());
    }
}
