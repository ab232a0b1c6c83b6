//! What is secret in a run: one redactor for a run and the runs below it, for as long as this process works
//! on them. It knows the secrets that the definitions name before the first step runs, also after a restart.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepwell_engine::coordinator::Assignment;
use tokio::time::{Duration, Instant};

use super::CrewShared;
use crate::secrets::{NamedSecrets, Redactor};

/// Runs that are remembered. With more, those that have been idle longest are forgotten, and their
/// definitions are looked at again.
const KEPT: usize = 10_000;

/// Definitions whose names are remembered.
const KEPT_PLANS: usize = 1_000;

/// When secrets that could not be read are tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// The redactors of the runs that this process works on.
#[derive(Debug, Default)]
pub(super) struct RunSecrets {
    state: Mutex<RunSecretsState>,
}

#[derive(Debug, Default)]
struct RunSecretsState {
    families: HashMap<Arc<str>, Family>,
    /// What each plan names, by the plan's hash.
    plans: HashMap<String, Arc<NamedSecrets>>,
    /// Counts jobs; says which run was idle longest.
    clock: u64,
}

/// A run, as one member of its family.
#[derive(Debug)]
struct Family {
    known: Redactor,
    used: u64,
    /// The plans whose secrets the redactor knows.
    introduced: HashSet<String>,
    /// Before this time, secrets that could not be read are not tried again.
    again: Option<Instant>,
}

impl RunSecretsState {
    /// The redactor of a run. A child has the one of its parent.
    fn of(&mut self, run_id: &Arc<str>, parent: Option<&Arc<str>>) -> &mut Family {
        self.clock += 1;
        let used = self.clock;
        let above = parent.map(|parent| {
            let family = self.families.entry(Arc::clone(parent));
            let family = family.or_insert_with(|| Family::new(Redactor::new()));
            family.used = used;
            family.known.clone()
        });
        if self.families.len() >= KEPT && !self.families.contains_key(run_id) {
            self.forget();
        }
        let family = self.families.entry(Arc::clone(run_id));
        let family = family.or_insert_with(|| Family::new(above.clone().unwrap_or_default()));
        family.used = used;
        // After a restart a run below the child may have come before its parent is known.
        if let Some(above) = above.filter(|above| !family.known.is_same(above)) {
            above.absorb(&family.known);
            family.known.absorb(&above);
            family.known = above;
        }
        family
    }

    /// Forgets the older half.
    fn forget(&mut self) {
        let mut used: Vec<u64> = self.families.values().map(|it| it.used).collect();
        let middle = used.len() / 2;
        let (_, middle, _) = used.select_nth_unstable(middle);
        let middle = *middle;
        self.families.retain(|_, it| it.used > middle);
    }
}

impl Family {
    fn new(known: Redactor) -> Family {
        Family {
            known,
            used: 0,
            introduced: HashSet::new(),
            again: None,
        }
    }
}

impl RunSecrets {
    fn state(&self) -> MutexGuard<'_, RunSecretsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CrewShared {
    /// The redactor of a job's run, which knows what the run's definition names.
    pub(super) async fn redactor(&self, job: &Assignment) -> Redactor {
        let hash = job.plan.hash();
        let (known, named) = {
            let mut state = self.run_secrets.state();
            let named = match state.plans.get(hash) {
                Some(named) => Arc::clone(named),
                None => {
                    if state.plans.len() >= KEPT_PLANS {
                        state.plans.clear();
                    }
                    let named = Arc::new(NamedSecrets::of(&job.plan));
                    state.plans.insert(hash.to_owned(), Arc::clone(&named));
                    named
                }
            };
            let family = state.of(&job.run_id, job.parent.as_ref());
            let is_known = named.is_empty() || family.introduced.contains(hash);
            let waits = family.again.is_some_and(|again| Instant::now() < again);
            if is_known || waits {
                return family.known.clone();
            }
            (family.known.clone(), named)
        };
        let secrets = &self.resources.secrets;
        let missing = secrets.introduce(&job.plan, &named, &known).await;
        let mut state = self.run_secrets.state();
        let family = state.of(&job.run_id, job.parent.as_ref());
        match missing {
            0 => {
                family.introduced.insert(hash.to_owned());
            }
            missing => {
                family.again = Some(Instant::now() + AGAIN);
                tracing::info!(
                    run = %job.run_id,
                    missing,
                    "secrets that the definition names cannot be read; they are redacted once they can"
                );
            }
        }
        known
    }
}
