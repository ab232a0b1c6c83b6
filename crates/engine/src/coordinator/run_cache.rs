//! Runs and plans in memory: read when they are needed, forgotten when they have been idle longest.

use std::sync::Arc;

use stepwell_kernel::plan::Plan;

use super::{Coordinator, HotRun};
use crate::error::Error;
use crate::store::{PlanNo, RunNo};

impl Coordinator {
    /// Brings a run into memory.
    pub(crate) fn ensure(&mut self, run: RunNo) -> Result<(), Error> {
        if self.runs.contains_key(&run) {
            return Ok(());
        }
        let stored = self.store.load(run)?;
        let stored = stored.ok_or_else(|| Error::UnknownRun(format!("number {}", run.0)))?;
        let plan = self.plan(stored.plan, &stored.run_id)?;
        let store = self.store.clone();
        let mut hot = HotRun::read(stored, plan, || Ok(store.chunks(run, 0, usize::MAX)?))?;
        hot.used = self.clock;
        self.ids.insert(hot.run_id.clone(), run);
        self.runs.insert(run, hot);
        self.evict(run);
        Ok(())
    }

    /// Forgets runs that have been idle longest when there are too many, but not `wanted`, which was
    /// brought into memory because something is about to be done for it.
    pub(crate) fn evict(&mut self, wanted: RunNo) {
        // Where most runs are busy, looking at all of them for each new one would be too much.
        let enough = self.config.cache.max(self.kept).saturating_mul(2);
        if self.runs.len() <= enough {
            return;
        }
        let session = self.session;
        let mut idle: Vec<(u64, RunNo)> = self
            .runs
            .iter()
            .filter(|(run, hot)| **run != wanted && hot.is_idle(session))
            .map(|(run, hot)| (hot.used, *run))
            .collect();
        idle.sort_unstable();
        let extra = self.runs.len().saturating_sub(self.config.cache);
        for (_, run) in idle.into_iter().take(extra) {
            self.drop_run(run);
        }
        self.kept = self.runs.len();
    }

    pub(super) fn plan(&mut self, no: PlanNo, run_id: &str) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = self.plans.get(&no) {
            return Ok(plan.clone());
        }
        let fault = |why: String| Error::Plan {
            run_id: run_id.to_owned(),
            why,
        };
        let row = self.store.plan(no)?;
        let row = row.ok_or_else(|| fault(format!("there is no plan number {}", no.0)))?;
        let net = serde_json::from_str(&row.net).map_err(|error| fault(error.to_string()))?;
        let plan = Arc::new(Plan::new(net).map_err(|error| fault(error.to_string()))?);
        if plan.hash() != row.hash {
            return Err(fault("it is not what its hash says".to_owned()));
        }
        self.keep_plan(no, &plan);
        Ok(plan)
    }

    pub(super) fn keep_plan(&mut self, no: PlanNo, plan: &Arc<Plan>) {
        self.plans.insert(no, plan.clone());
        self.plan_numbers.insert(plan.hash().to_owned(), no);
    }

    pub(super) fn plan_number(&mut self, plan: &Arc<Plan>) -> Result<PlanNo, Error> {
        if let Some(no) = self.plan_numbers.get(plan.hash()) {
            return Ok(*no);
        }
        let no = self.store.put_plan(plan)?;
        self.keep_plan(no, plan);
        Ok(no)
    }
}
