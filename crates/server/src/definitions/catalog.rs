//! Finds the definitions of child runs: those of the tenant first, then the files of the server.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use stepwell_engine::port::{Catalog, NoChild};
use stepwell_engine::store::Store;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;

use super::{Permits, Registry, compile, compile_for};
use crate::problem::ApiProblem;

/// How many compiled plans are kept.
const KEPT: usize = 1_000;
/// The endings that a path may leave out.
const ENDINGS: [&str; 4] = ["", ".yaml", ".yml", ".json"];

/// The longest text whose plan is kept, in bytes: plans of texts that are sent once must not fill the memory.
const MAX_TEXT: usize = 64 << 10;

/// Compiled definitions: a revision never changes, and neither does a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanCache(Arc<PlanMaps>);

#[derive(Debug, Default)]
struct PlanMaps {
    revisions: Mutex<HashMap<RevisionKey, Arc<Plan>>>,
    /// By the hash of the text.
    texts: Mutex<HashMap<[u8; 32], Arc<Plan>>>,
}

/// Tenant, name and number of a revision.
type RevisionKey = (String, String, u32);

impl PlanCache {
    /// The plan of a revision.
    pub(crate) fn plan(
        &self,
        registry: &Registry<'_>,
        tenant: &str,
        name: &str,
        revision: u32,
    ) -> Result<Arc<Plan>, ApiProblem> {
        let key = (tenant.to_owned(), name.to_owned(), revision);
        kept_or(&self.0.revisions, key, || {
            let found = registry.revision(tenant, name, revision)?;
            compile(found.file.as_deref(), &found.source)
        })
    }

    /// The plan of a text that a tenant may run.
    pub(crate) fn plan_of_text(
        &self,
        permits: Permits<'_>,
        text: &str,
    ) -> Result<Arc<Plan>, ApiProblem> {
        let compiled = || compile_for(permits, None, text);
        if text.len() > MAX_TEXT {
            return Ok(Arc::new(compiled()?));
        }
        let plan = kept_or(&self.0.texts, hash_of(text), compiled)?;
        match permits.check(None, &plan).is_ok() {
            true => Ok(plan),
            // Another tenant may run it. The error says where the tool is.
            false => Ok(Arc::new(compile_for(permits, None, text)?)),
        }
    }

    /// The plan of a text that was compiled before, if the tenant may run it.
    pub(crate) fn known_text(&self, permits: Permits<'_>, text: &str) -> Option<Arc<Plan>> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let known = self.0.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = known.get(&hash_of(text)).cloned();
        plan.filter(|plan| permits.check(None, plan).is_ok())
    }
}

fn hash_of(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// The plan that is kept under a key, or a new one, which is kept.
fn kept_or<K: Eq + Hash>(
    kept: &Mutex<HashMap<K, Arc<Plan>>>,
    key: K,
    compiled: impl FnOnce() -> Result<Plan, ApiProblem>,
) -> Result<Arc<Plan>, ApiProblem> {
    let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = lock().get(&key) {
        return Ok(Arc::clone(plan));
    }
    let plan = Arc::new(compiled()?);
    let mut known = lock();
    if known.len() >= KEPT {
        known.clear();
    }
    known.insert(key, Arc::clone(&plan));
    Ok(plan)
}

/// The definitions of the registry, and what another catalog has.
pub(crate) struct RegistryCatalog {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) plans: PlanCache,
    pub(crate) files: Box<dyn Catalog + Send>,
}

impl fmt::Debug for RegistryCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryCatalog").finish_non_exhaustive()
    }
}

impl Catalog for RegistryCatalog {
    fn find(&self, from: &Plan, path: &str) -> Option<Arc<Plan>> {
        self.files.find(from, path)
    }

    fn find_for(
        &self,
        run: &RunContext,
        from: &Plan,
        path: &str,
    ) -> Result<Option<Arc<Plan>>, NoChild> {
        let whose = (run.tenant_id.as_str(), Some(run.project_id.as_str()));
        match registered(&*self.store, &self.plans, whose, from, path) {
            Ok(Some(plan)) => Ok(Some(plan)),
            Ok(None) => self.files.find_for(run, from, path),
            Err(problem) if problem.status >= 500 => Err(NoChild::Later(problem.detail)),
            Err(problem) => Err(NoChild::Refused {
                code: problem.code,
                why: problem.detail,
            }),
        }
    }
}

/// A registered definition of a tenant and a project by its name, or by the path of its file as seen from the file of the
/// parent.
pub(crate) fn registered(
    store: &dyn Store,
    plans: &PlanCache,
    (tenant, project): (&str, Option<&str>),
    from: &Plan,
    path: &str,
) -> Result<Option<Arc<Plan>>, ApiProblem> {
    let registry = Registry::of_project(store, project);
    let plan = |name: &str| match registry.plan_of_new_run(plans, tenant, name, None) {
        Ok(plan) => Ok(Some(plan)),
        Err(problem) if problem.status == 404 => Ok(None),
        Err(problem) => Err(problem),
    };
    if let Some(plan) = plan(path)? {
        return Ok(Some(plan));
    }
    let Some(file) = beside(&from.net().source.uri, path) else {
        return Ok(None);
    };
    for ending in ENDINGS {
        if let Some(name) = registry.of_file(tenant, &format!("{file}{ending}"))?
            && let Some(plan) = plan(&name)?
        {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

/// The path of a file as seen from the file of the parent; none if it leaves the folder of all files.
fn beside(uri: &str, path: &str) -> Option<String> {
    let parent = uri.strip_prefix("file:")?;
    let folder = parent.rsplit_once('/').map_or("", |it| it.0);
    let mut parts: Vec<&str> = folder.split('/').filter(|it| !it.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn paths_are_seen_from_the_file_of_the_parent() {
        let from = |uri: &str, path: &str| beside(uri, path);
        assert_eq!(
            from("file:a/b.yaml", "./c.yaml").as_deref(),
            Some("a/c.yaml")
        );
        assert_eq!(from("file:a/b.yaml", "../c").as_deref(), Some("c"));
        assert_eq!(from("file:b.yaml", "x/c").as_deref(), Some("x/c"));
        assert_eq!(from("file:b.yaml", "../c"), None);
        assert_eq!(from("https://x/b.yaml", "c"), None);
    }
}
