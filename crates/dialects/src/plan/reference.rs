//! References to plans: checked before anything is fetched, and again when the bytes are there.
//!
//! Not here: fetching. Every refusal is a [`Problem`] with a code, so that it is shown like any other.

use serde::{Deserialize, Serialize};
use stepwell_kernel::plan::{
    Dialect, Net, Plan, PlanFault, RunPolicy, SourceRef, Step, WaitOn, WaitSpec, Work,
};

use super::header::known_schema_version;
use crate::codes;
use crate::problem::{Problem, Problems};
use crate::secret_literals::masked_address;
use crate::source::Span;
use crate::words::quote;

/// A plan by reference: where it is, what it is, and the hash of its raw bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRef {
    /// Where the plan is.
    pub uri: String,
    /// SHA-256 of its bytes as they are, in hex.
    pub sha256: String,
    /// The version of its format.
    pub schema_version: String,
    pub plan_id: String,
    pub plan_version: String,
}

/// The schema versions of the languages whose first major is another one: dag and playbook.
const OTHER_LANGUAGES: [&str; 2] = ["v0.2", "v2.0"];

impl PlanRef {
    /// Checks everything that can be checked before fetching: the URI first, since nothing may be
    /// fetched from elsewhere, then the reference itself.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn check(&self, allow: &[impl AsRef<str>]) -> Result<(), Vec<Problem>> {
        let mut p = Problems::new();
        if let Err(problem) = check_allowed(&self.uri, allow) {
            p.push(problem);
        }
        let is_of_other = OTHER_LANGUAGES.contains(&self.schema_version.as_str());
        if known_schema_version(&self.schema_version).is_none() && !is_of_other {
            let message = format!(
                "the schema version {} is not known",
                quote(&self.schema_version)
            );
            p.error(codes::PLAN_SCHEMA_VERSION_UNKNOWN, Span::default(), message)
                .help(
                    "write the schema version of the language: `v1.x` of the file for plans, `v1.0` for actions and linear, \
                     `v0.2` for dag, `v2.0` for playbooks",
                );
        }
        let hex = |c: char| c.is_ascii_hexdigit();
        if self.sha256.len() != 64 || !self.sha256.chars().all(hex) {
            let message = format!("{} is not a SHA-256 in hex", quote(&self.sha256));
            p.error(codes::PLAN_REF_MISMATCH, Span::default(), message)
                .help("write the output of `sha256sum` for the plan's file");
        }
        for (what, text) in [
            ("planId", &self.plan_id),
            ("planVersion", &self.plan_version),
        ] {
            if text.trim().is_empty() || text.contains('|') {
                let message = format!("`{what}` of the reference is empty or holds `|`");
                p.error(codes::PLAN_REF_MISMATCH, Span::default(), message)
                    .help(format!("write the plan's own `{what}`"));
            }
        }
        done(p)
    }

    /// Whether this is the hash of what the reference means.
    #[must_use]
    pub fn has_hash(&self, found: &str) -> bool {
        found.eq_ignore_ascii_case(&self.sha256)
    }

    /// The plan of a run whose definition is not the one referred to: only what the reference says, since nothing of
    /// what was fetched may be believed. The run fails before its one step can start.
    ///
    /// # Errors
    /// If the reference was not checked.
    pub fn without_definition(&self) -> Result<Plan, PlanFault> {
        let nothing = Work::Wait(WaitSpec {
            on: WaitOn::Manual,
            deadline_ms: None,
        });
        Plan::new(Net {
            dialect: Dialect::Plan,
            plan_id: self.plan_id.clone(),
            plan_version: self.plan_version.clone(),
            schema_version: known_schema_version(&self.schema_version).unwrap_or_default(),
            source: SourceRef {
                uri: self.uri.clone(),
                sha256: self.sha256.to_ascii_lowercase(),
            },
            workload: Default::default(),
            steps: vec![Step::new("definition-not-trusted", nothing)],
            edges: Vec::new(),
            policy: RunPolicy::default(),
            library: Default::default(),
            extra: Default::default(),
        })
    }

    /// Whether the compiled plan is the one that the reference names.
    ///
    /// # Errors
    /// A `PLAN_REF_MISMATCH` for each of id, version and schema version that differs.
    pub fn check_net(&self, net: &Net) -> Result<(), Vec<Problem>> {
        let own = || self.schema_version.clone();
        let schema = known_schema_version(&self.schema_version).unwrap_or_else(own);
        let pairs = [
            ("planId", self.plan_id.as_str(), net.plan_id.as_str()),
            (
                "planVersion",
                self.plan_version.as_str(),
                net.plan_version.as_str(),
            ),
            (
                "schemaVersion",
                schema.as_str(),
                net.schema_version.as_str(),
            ),
        ];
        let mut p = Problems::new();
        for (what, wanted, found) in pairs {
            if wanted != found {
                let message = format!(
                    "the reference says `{what}` {}, the plan says {}",
                    quote(wanted),
                    quote(found)
                );
                p.error(codes::PLAN_REF_MISMATCH, Span::default(), message)
                    .help("refer to the plan by what it says itself");
            }
        }
        done(p)
    }
}

fn done(p: Problems) -> Result<(), Vec<Problem>> {
    if p.has_errors() {
        return Err(p.into_vec());
    }
    Ok(())
}

/// Whether a URI may be fetched: it must begin with an allowed prefix, at a boundary, and must not
/// climb out of it.
///
/// A prefix names a scheme and a place: `s3://plans/`, `https://plans.example.com/`, `file:///srv/plans/`.
/// Without an entry nothing is allowed.
///
/// # Errors
/// `PLAN_URI_NOT_ALLOWED`.
pub fn check_allowed(uri: &str, allow: &[impl AsRef<str>]) -> Result<(), Problem> {
    let hidden = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    let decoded = uri
        .to_ascii_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/");
    let path = decoded.split(['?', '#']).next().unwrap_or_default();
    let climbs = path.split('/').any(|part| part == ".." || part == ".");
    let has_scheme = uri.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.contains("://")
    });
    let host_has_user = uri
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next())
        .is_some_and(|host| host.contains('@'));
    let sound = has_scheme && !climbs && !host_has_user && !uri.contains(hidden);
    if sound && allow.iter().any(|prefix| covers(prefix.as_ref(), uri)) {
        return Ok(());
    }
    let mut p = Problems::new();
    let problem = p.error(
        codes::PLAN_URI_NOT_ALLOWED,
        Span::default(),
        format!(
            "plans may not be fetched from {}",
            quote(&masked_address(uri))
        ),
    );
    problem.help("add the place to `allow` in the section `[plans]` of stepwell.toml, with its scheme and a final `/`");
    Err(problem.clone())
}

/// Whether `uri` is the prefix or lies below it: `s3://plans` covers `s3://plans/a.json`, not
/// `s3://plans-of-others/a.json`.
fn covers(prefix: &str, uri: &str) -> bool {
    // A prefix without a place would allow everything.
    let Some((_, place)) = prefix.split_once("://") else {
        return false;
    };
    if place.is_empty() {
        return false;
    }
    uri.strip_prefix(prefix)
        .is_some_and(|rest| prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
}
