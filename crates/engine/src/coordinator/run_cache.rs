//! Runs and plans in memory: read from the store when they are needed, forgotten when they have been idle
//! longest. The only owner of `HotRun`s; all other parts get one lent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use stepwell_kernel::plan::Plan;

use super::HotRun;
use crate::error::Error;
use crate::number_map::NumberMap;
use crate::read;
use crate::store::{PlanNo, RunNo, SessionNo, Store, StoreError};

/// Runs in memory, by number and by id, and their plans.
pub(super) struct RunCache {
    store: Arc<dyn Store>,
    runs: NumberMap<RunNo, Box<Cached>>,
    ids: HashMap<Arc<str>, RunNo>,
    plans: NumberMap<PlanNo, Arc<Plan>>,
    plan_numbers: HashMap<String, PlanNo>,
    /// Counts the batches; says which run was used last.
    turn: u64,
    /// How many runs were left in memory when some were forgotten last.
    kept: usize,
    /// Runs whose log could not be folded, to be reported.
    invalid: Vec<(RunNo, Error)>,
}

struct Cached {
    hot: HotRun,
    /// The turn in which the run was used last.
    used: u64,
}

/// How many runs are kept, and whose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// How many runs are kept when nothing is to be done for them.
    pub(super) limit: usize,
    /// The session whose runs always stay.
    pub(super) session: SessionNo,
}

impl RunCache {
    pub(super) fn new(store: Arc<dyn Store>) -> RunCache {
        RunCache {
            store,
            runs: NumberMap::default(),
            ids: HashMap::new(),
            plans: NumberMap::default(),
            plan_numbers: HashMap::new(),
            turn: 0,
            kept: 0,
            invalid: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn get(&self, run: RunNo) -> Option<&HotRun> {
        self.runs.get(&run).map(|cached| &cached.hot)
    }

    pub(super) fn get_mut(&mut self, run: RunNo) -> Option<&mut HotRun> {
        let cached = self.runs.get_mut(&run)?;
        cached.used = self.turn;
        Some(&mut cached.hot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HotRun> {
        self.runs.values().map(|cached| &cached.hot)
    }

    /// Another batch begins.
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
    }

    /// A run, brought into memory if it is not there.
    pub(super) fn load(&mut self, run: RunNo, room: Room) -> Result<&mut HotRun, Error> {
        self.evict(run, room);
        match self.runs.entry(run) {
            Entry::Occupied(entry) => {
                let cached = entry.into_mut();
                cached.used = self.turn;
                Ok(&mut cached.hot)
            }
            Entry::Vacant(entry) => {
                let store = &*self.store;
                let unknown = || Error::UnknownRun(format!("number {}", run.0));
                let stored = store.load(run)?.ok_or_else(unknown)?;
                let plan = match self.plans.get(&stored.plan) {
                    Some(plan) => plan.clone(),
                    None => {
                        let plan = read::plan(store, stored.plan, &stored.run_id)?;
                        self.plans.insert(stored.plan, plan.clone());
                        let hash = plan.hash().to_owned();
                        self.plan_numbers.insert(hash, stored.plan);
                        plan
                    }
                };
                let all = || Ok(store.chunks(run, 0, usize::MAX)?);
                let read = HotRun::read(stored, plan, all);
                let hot = read.inspect_err(|error| {
                    if matches!(error, Error::LogInvalid { .. }) {
                        self.invalid.push((run, error.clone()));
                    }
                })?;
                self.ids.insert(hot.run_id().clone(), run);
                let used = self.turn;
                Ok(&mut entry.insert(Box::new(Cached { hot, used })).hot)
            }
        }
    }

    /// Adds a run that is about to be created. Its id is known only once it is committed.
    pub(super) fn insert(&mut self, hot: HotRun, room: Room) -> &mut HotRun {
        self.evict(hot.run(), room);
        let used = self.turn;
        let cached = Box::new(Cached { hot, used });
        &mut self
            .runs
            .entry(cached.hot.run())
            .insert_entry(cached)
            .into_mut()
            .hot
    }

    /// Runs whose log could not be folded since the last call.
    pub(super) fn take_invalid(&mut self) -> Vec<(RunNo, Error)> {
        std::mem::take(&mut self.invalid)
    }

    /// Takes a run out of memory.
    pub(super) fn remove(&mut self, run: RunNo) -> Option<HotRun> {
        let hot = self.runs.remove(&run)?.hot;
        self.ids.remove(hot.run_id());
        Some(hot)
    }

    /// The number of a run.
    pub(super) fn number_of(&self, run_id: &str) -> Result<RunNo, Error> {
        if let Some(run) = self.ids.get(run_id) {
            return Ok(*run);
        }
        let found = self.store.find(run_id)?;
        found.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))
    }

    /// The number of a plan, which is kept in the store if it is not there yet.
    pub(super) fn plan_number(&mut self, plan: &Arc<Plan>) -> Result<PlanNo, StoreError> {
        if let Some(no) = self.plan_numbers.get(plan.hash()) {
            return Ok(*no);
        }
        let no = self.store.put_plan(plan)?;
        self.plans.insert(no, plan.clone());
        self.plan_numbers.insert(plan.hash().to_owned(), no);
        Ok(no)
    }

    /// Forgets runs that have been idle longest when there are too many, but not `wanted`, for which
    /// something is about to be done. An idle run has no timer and stands in no line, so no other part
    /// knows of it.
    fn evict(&mut self, wanted: RunNo, room: Room) {
        // Where most runs are busy, looking at all of them for each new one would be too much.
        let most = room.limit.max(self.kept);
        let enough = most.saturating_add(most / 4);
        if self.runs.len() <= enough {
            return;
        }
        let idle = self.runs.iter().map(|(run, it)| (it, *run));
        let idle = idle.filter(|(it, run)| *run != wanted && it.hot.is_idle(room.session));
        let mut idle: Vec<(u64, RunNo)> = idle.map(|(it, run)| (it.used, run)).collect();
        idle.sort_unstable();
        let extra = self.runs.len().saturating_sub(room.limit);
        for (_, run) in idle.into_iter().take(extra) {
            self.remove(run);
        }
        self.kept = self.runs.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::{hot, store_with};

    fn room(limit: usize) -> Room {
        Room {
            limit,
            session: SessionNo(99),
        }
    }

    #[test]
    fn a_run_is_read_once_and_known_by_number_and_id() {
        let (store, runs) = store_with(1);
        let mut cache = RunCache::new(store);
        assert_eq!(cache.number_of("run_0"), Ok(runs[0]));
        assert!(cache.get(runs[0]).is_none());
        let hot = cache.load(runs[0], room(9)).unwrap();
        assert!(hot.is_fresh() && hot.committed() > 0);
        hot.set_attended();
        assert!(!cache.load(runs[0], room(9)).unwrap().is_fresh());
        assert_eq!(&**cache.get(runs[0]).unwrap().run_id(), "run_0");
    }

    #[test]
    fn a_run_that_is_not_there_is_unknown() {
        let (store, _) = store_with(0);
        let mut cache = RunCache::new(store);
        let error = cache.load(RunNo(7), room(9)).unwrap_err();
        assert_eq!(error, Error::UnknownRun("number 7".into()));
        assert_eq!(
            cache.number_of("run_x"),
            Err(Error::UnknownRun("run_x".into()))
        );
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn runs_that_have_been_idle_longest_are_forgotten_first() {
        let (store, runs) = store_with(12);
        let mut cache = RunCache::new(store);
        for run in &runs {
            cache.next_turn();
            cache.load(*run, room(4)).unwrap();
            assert!(cache.len() <= 2 * 4 + 1);
        }
        assert!(cache.get(runs[11]).is_some());
        assert!(cache.get(runs[0]).is_none());
    }

    #[test]
    fn a_run_with_a_draft_stays() {
        let (store, runs) = store_with(12);
        let mut cache = RunCache::new(store);
        cache.load(runs[0], room(1)).unwrap().draft();
        for run in &runs[1..] {
            cache.next_turn();
            cache.load(*run, room(1)).unwrap();
        }
        assert!(cache.get(runs[0]).is_some());
        assert!(cache.len() < 12);
    }

    #[test]
    fn a_run_that_is_created_has_no_known_id_until_it_is_stored() {
        let (store, _) = store_with(0);
        let mut cache = RunCache::new(store);
        let run = cache.insert(hot(5, &["a"]), room(9)).run();
        assert!(cache.get(run).is_some());
        assert!(cache.number_of("run_5").is_err());
        assert!(cache.remove(run).is_some());
        assert!(cache.remove(run).is_none());
    }

    #[test]
    fn a_plan_is_kept_once() {
        let (store, runs) = store_with(1);
        let mut cache = RunCache::new(store);
        let plan = cache.load(runs[0], room(9)).unwrap().plan().clone();
        let no = cache.plan_number(&plan).unwrap();
        assert_eq!(cache.plan_number(&plan).unwrap(), no);
    }
}
