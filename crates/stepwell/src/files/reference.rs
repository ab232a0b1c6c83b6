//! A definition by reference: checked, fetched, and compared with what the reference says. A reference that may not or
//! cannot be fetched is a problem like those of a file.

use std::time::Duration;

use stepwell_dialects::plan::reference::PlanRef;
use stepwell_dialects::secret_literals::masked_address;
use stepwell_dialects::source::MAX_SOURCE_BYTES;
use stepwell_dialects::{Loaded, Problem, Source};
use stepwell_kernel::keys::sha256_of_bytes;
use stepwell_worker::fetch::{FetchError, fetch, file_of};
use stepwell_worker::hosts::HostRules;

use super::definition::Definition;
use super::{error, read};
use crate::settings::Settings;

/// A definition that was fetched by reference.
#[derive(Debug)]
pub struct FetchedDefinition {
    /// The definition; if something else was fetched than the reference says, a plan with nothing but the reference.
    pub definition: Definition,
    /// The hash of what was fetched, if it is not the one of the reference. A run that is started with it fails with
    /// `PLAN_INTEGRITY_VALIDATION_FAILED` before any step starts.
    pub changed: Option<String>,
}

impl FetchedDefinition {
    /// Fetches the definition of the reference in a JSON file; `-` is standard input.
    #[must_use]
    pub fn of_file(path: &str, settings: &Settings) -> FetchedDefinition {
        let refused = |name: &str, problem| FetchedDefinition {
            definition: Definition::with_problems(name, vec![problem]),
            changed: None,
        };
        let source = match read(path) {
            Ok(source) => source,
            Err((name, problem)) => return refused(&name, problem),
        };
        match serde_json::from_str(source.text()) {
            Ok(reference) => FetchedDefinition::fetch(&reference, settings),
            Err(why) => {
                let message = format!("this is not a reference to a definition: {why}");
                let mut problem = error("PLAN_REF_MISMATCH", message);
                problem.help("write a JSON object with the texts uri, sha256, schemaVersion, planId and planVersion");
                refused(source.name(), problem)
            }
        }
    }

    /// Fetches the definition of a reference that the settings allow.
    #[must_use]
    pub fn fetch(reference: &PlanRef, settings: &Settings) -> FetchedDefinition {
        let refused = |problems: Vec<Problem>| FetchedDefinition {
            definition: Definition::with_problems(&masked_address(&reference.uri), problems),
            changed: None,
        };
        if let Err(problems) = reference.check(&settings.plans.allow) {
            return refused(problems);
        }
        if let Err(problem) = stays_below(&reference.uri, &settings.plans.allow) {
            return refused(vec![problem]);
        }
        let bytes = match bytes_of(
            &reference.uri,
            &settings.security.http_rules(),
            settings.plans.timeout,
        ) {
            Ok(bytes) => bytes,
            Err(why) => return refused(vec![unfetched(&reference.uri, &why)]),
        };
        let source = match Source::from_bytes(&reference.uri, &bytes) {
            // What is too large was not read to its end, so it has no hash.
            Err(problem) if bytes.len() > MAX_SOURCE_BYTES => return refused(vec![problem]),
            source => source,
        };
        let found = sha256_of_bytes(&bytes);
        if !reference.has_hash(&found) {
            return FetchedDefinition {
                definition: untrusted(reference),
                changed: Some(found),
            };
        }
        let mut definition = match source {
            Ok(source) => Definition::of(source),
            Err(problem) => return refused(vec![problem]),
        };
        let plan = definition.loaded.plan.as_ref();
        if let Some(Err(problems)) = plan.map(|plan| reference.check_net(plan.net())) {
            definition.loaded.problems.extend(problems);
        }
        FetchedDefinition {
            definition,
            changed: None,
        }
    }
}

/// Refuses a file that is below an allowed folder only by its name: links are followed before a path is judged. A
/// file that is not there is told when it is read.
fn stays_below(uri: &str, allow: &[String]) -> Result<(), Problem> {
    let path_of = |uri: &str| std::fs::canonicalize(file_of(uri)?).ok();
    let Some(real) = path_of(uri) else {
        return Ok(());
    };
    // An allowed address need not be a folder: `file:///plans/a` allows what begins so.
    let is_below = |allowed: &String| {
        let folder = allowed.rfind('/').map_or("", |at| &allowed[..=at]);
        path_of(folder).is_some_and(|folder| real.starts_with(folder))
    };
    match allow.iter().any(is_below) {
        true => Ok(()),
        false => {
            let message = format!(
                "{} is a link to a place that is not allowed",
                masked_address(uri)
            );
            let mut problem = error("PLAN_URI_NOT_ALLOWED", message);
            problem.help("refer to the file itself, below an address in `allow` of [plans]");
            Err(problem)
        }
    }
}

/// The plan of a reference whose definition is another one.
fn untrusted(reference: &PlanRef) -> Definition {
    match reference.without_definition() {
        Ok(plan) => Definition {
            source: Source::unreadable(masked_address(&reference.uri)),
            loaded: Loaded {
                unusable: None,
                dialect: Some(plan.net().dialect),
                plan: Some(plan),
                problems: Vec::new(),
            },
        },
        Err(fault) => {
            let problem = error(fault.code, fault.message);
            Definition::with_problems(&masked_address(&reference.uri), vec![problem])
        }
    }
}

/// On a thread of its own: the caller's may belong to a runtime, which must not be blocked with another.
fn bytes_of(uri: &str, hosts: &HostRules, timeout: Duration) -> Result<Vec<u8>, FetchError> {
    let failed = |error: std::io::Error| FetchError::Failed(error.to_string());
    let fetching = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        // One byte more than the limit is enough to detect what is too large.
        runtime.block_on(fetch(uri, hosts, MAX_SOURCE_BYTES + 1, timeout))
    };
    std::thread::scope(|scope| {
        let fetched = std::thread::Builder::new()
            .spawn_scoped(scope, fetching)
            .map_err(failed)?;
        let panicked = |_| FetchError::Failed("the thread of the request ended: a bug".to_owned());
        fetched.join().map_err(panicked)?
    })
}

fn unfetched(uri: &str, why: &FetchError) -> Problem {
    let help = match why {
        FetchError::Denied(_) => {
            "the section `[security]` in stepwell.toml holds for definitions too"
        }
        FetchError::NotFound => "check `uri` of the reference",
        FetchError::Timeout(_) => {
            "try again, or set `timeout` in the section `[plans]` of stepwell.toml"
        }
        FetchError::Failed(_) => "check `uri` of the reference, and the credentials for its place",
    };
    let shown = uri.split(['?', '#']).next().unwrap_or_default();
    let message = format!("`{shown}` cannot be fetched: {why}");
    let mut problem = error(why.code(), message);
    problem.help(help);
    problem
}
