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
use crate::store::{PlanNo, RunNo, SessionNo, Store, StoreError, StoredRun};

/// Runs in memory, by number and by id, and their plans.
pub(super) struct RunCache {
    reader: Reader,
    runs: NumberMap<RunNo, Cached>,
    ids: HashMap<Arc<str>, RunNo>,
    /// Counts the batches; says which run was used last.
    turn: u64,
    /// How many runs were left in memory when some were forgotten last.
    kept: usize,
    /// Runs that are about to be asked for, and those of them that were read already.
    expected: Vec<RunNo>,
    read_ahead: NumberMap<RunNo, StoredRun>,
}

/// Reads runs from the store, with plans that are read once.
struct Reader {
    store: Arc<dyn Store>,
    plans: NumberMap<PlanNo, Arc<Plan>>,
    plan_numbers: HashMap<String, PlanNo>,
    /// Runs whose log could not be folded, to be reported.
    invalid: Vec<(RunNo, Error)>,
    /// Damaged runs that are not served, and why.
    quarantined: NumberMap<RunNo, String>,
    /// Runs that are not read for anyone until what is parked for them can join them, and why they could not be read.
    withheld: NumberMap<RunNo, Error>,
}

/// How many runs are read at a time.
const READ_AHEAD: usize = 64;

struct Cached {
    hot: Box<HotRun>,
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
            reader: Reader {
                store,
                plans: NumberMap::default(),
                plan_numbers: HashMap::new(),
                invalid: Vec::new(),
                quarantined: NumberMap::default(),
                withheld: NumberMap::default(),
            },
            runs: NumberMap::default(),
            ids: HashMap::new(),
            turn: 0,
            kept: 0,
            expected: Vec::new(),
            read_ahead: NumberMap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn get(&self, run: RunNo) -> Option<&HotRun> {
        self.runs.get(&run).map(|cached| &*cached.hot)
    }

    pub(super) fn get_mut(&mut self, run: RunNo) -> Option<&mut HotRun> {
        let cached = self.runs.get_mut(&run)?;
        cached.used = self.turn;
        Some(&mut cached.hot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HotRun> {
        self.runs.values().map(|cached| &*cached.hot)
    }

    /// Counts a new batch. Eviction removes the idle runs whose last use was the most batches ago.
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
    }

    /// A run, brought into memory if it is not there.
    pub(super) fn load(&mut self, run: RunNo, room: Room) -> Result<&mut HotRun, Error> {
        self.evict(run, room);
        let ahead = self.take_read_ahead(run);
        match self.runs.entry(run) {
            Entry::Occupied(entry) => {
                let cached = entry.into_mut();
                cached.used = self.turn;
                Ok(&mut cached.hot)
            }
            Entry::Vacant(entry) => {
                if let Some(why) = self.reader.withheld.get(&run) {
                    return Err(why.clone());
                }
                let hot = self.reader.read(run, ahead)?;
                self.ids.insert(hot.run_id().clone(), run);
                let (hot, used) = (Box::new(hot), self.turn);
                Ok(&mut entry.insert(Cached { hot, used }).hot)
            }
        }
    }

    /// A run as the store has it now, beside what is in memory.
    pub(super) fn read(&mut self, run: RunNo) -> Result<HotRun, Error> {
        self.reader.read(run, None)
    }

    /// These runs are about to be asked for, in this order: those that are not in memory are read some at a
    /// time. Nothing may change them in the store before `expect_no_more`, or what was read is out of date.
    pub(super) fn expect(&mut self, runs: impl Iterator<Item = RunNo>) {
        self.expected = runs.collect();
    }

    /// Forgets what was read ahead and not asked for.
    pub(super) fn expect_no_more(&mut self) {
        self.expected.clear();
        self.read_ahead.clear();
    }

    /// A run that is expected, read together with those after it.
    fn take_read_ahead(&mut self, run: RunNo) -> Option<StoredRun> {
        if self.runs.contains_key(&run) {
            return None;
        }
        if let Some(stored) = self.read_ahead.remove(&run) {
            return Some(stored);
        }
        let at = self.expected.iter().position(|it| *it == run)?;
        let mut next = self.expected.split_off(at);
        self.expected = next.split_off(next.len().min(READ_AHEAD));
        next.retain(|run| !self.runs.contains_key(run));
        next.sort_unstable();
        next.dedup();
        // One that cannot be read must not keep the others from being read: each is read alone then.
        let stored = self.reader.store.load_all(&next).unwrap_or_default();
        self.read_ahead
            .extend(stored.into_iter().map(|it| (it.run, it)));
        self.read_ahead.remove(&run)
    }

    /// Adds a run that is about to be created. Its id is known only once it is committed.
    pub(super) fn insert(&mut self, hot: Box<HotRun>, room: Room) -> &mut HotRun {
        self.evict(hot.run(), room);
        let used = self.turn;
        let cached = Cached { hot, used };
        &mut self
            .runs
            .entry(cached.hot.run())
            .insert_entry(cached)
            .into_mut()
            .hot
    }

    /// The creation of a run is committed: from now on its id is known without asking the store.
    pub(super) fn set_created(&mut self, run: RunNo) {
        if let Some(cached) = self.runs.get(&run) {
            self.ids.insert(cached.hot.run_id().clone(), run);
        }
    }

    /// Serves these runs no more, and all others again. Of a run in memory nothing more is written.
    pub(super) fn set_quarantined(&mut self, runs: Vec<(RunNo, String)>) {
        for (run, why) in &runs {
            if let Some(cached) = self.runs.get_mut(run) {
                cached.hot.condemn(why);
            }
        }
        self.reader.quarantined = runs.into_iter().collect();
    }

    /// A run that could not be read stays out of memory, although the store may have it again, until it is admitted.
    pub(super) fn withhold(&mut self, run: RunNo, why: Error) {
        debug_assert!(self.get(run).is_none(), "a run in memory is withheld");
        self.reader.withheld.insert(run, why);
    }

    /// A run may be read again.
    pub(super) fn admit(&mut self, run: RunNo) {
        self.reader.withheld.remove(&run);
    }

    /// Runs whose log could not be folded since the last call.
    pub(super) fn take_invalid(&mut self) -> Vec<(RunNo, Error)> {
        std::mem::take(&mut self.reader.invalid)
    }

    /// Takes a run out of memory.
    pub(super) fn remove(&mut self, run: RunNo) -> Option<Box<HotRun>> {
        let hot = self.runs.remove(&run)?.hot;
        self.ids.remove(hot.run_id());
        Some(hot)
    }

    /// The number of a run that is in memory.
    pub(super) fn known_number(&self, run_id: &str) -> Option<RunNo> {
        self.ids.get(run_id).copied()
    }

    /// The number of a run.
    pub(super) fn number_of(&self, run_id: &str) -> Result<RunNo, Error> {
        if let Some(run) = self.known_number(run_id) {
            return Ok(run);
        }
        let found = self.reader.store.find(run_id)?;
        found.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))
    }

    /// The number of a plan, which is kept in the store if it is not there yet.
    pub(super) fn plan_number(&mut self, plan: &Arc<Plan>) -> Result<PlanNo, StoreError> {
        self.reader.plan_number(plan)
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

impl Reader {
    /// A run; `ahead` is what was read of it already.
    fn read(&mut self, run: RunNo, ahead: Option<StoredRun>) -> Result<HotRun, Error> {
        if let Some(why) = self.quarantined.get(&run) {
            return Err(Error::Quarantined {
                run_id: format!("number {}", run.0),
                why: why.clone(),
            });
        }
        self.read_any(run, ahead).inspect_err(|error| {
            if error.is_damage() {
                self.invalid.push((run, error.clone()));
            }
        })
    }

    fn read_any(&mut self, run: RunNo, ahead: Option<StoredRun>) -> Result<HotRun, Error> {
        let stored = match ahead {
            Some(stored) => stored,
            None => {
                let unknown = || Error::UnknownRun(format!("number {}", run.0));
                self.store.load(run)?.ok_or_else(unknown)?
            }
        };
        let plan = self.plan(&stored)?;
        let all = || Ok(self.store.chunks(run, 0, usize::MAX)?);
        HotRun::read(stored, plan, all)
    }

    fn plan(&mut self, stored: &StoredRun) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = self.plans.get(&stored.plan) {
            return Ok(plan.clone());
        }
        let plan = read::plan(&*self.store, stored.plan, &stored.run_id)?;
        self.keep_plan(stored.plan, &plan);
        Ok(plan)
    }

    fn plan_number(&mut self, plan: &Arc<Plan>) -> Result<PlanNo, StoreError> {
        if let Some(no) = self.plan_numbers.get(plan.hash()) {
            return Ok(*no);
        }
        let no = self.store.put_plan(plan)?;
        self.keep_plan(no, plan);
        Ok(no)
    }

    fn keep_plan(&mut self, no: PlanNo, plan: &Arc<Plan>) {
        self.plans.insert(no, plan.clone());
        self.plan_numbers.insert(plan.hash().to_owned(), no);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::{hot, store_with};
    use crate::store::StoreErrorKind;

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
    fn a_run_that_is_withheld_is_read_once_it_is_admitted() {
        let (store, runs) = store_with(2);
        let mut cache = RunCache::new(store);
        let away = StoreError::new(StoreErrorKind::Unavailable, "nobody is there");
        cache.withhold(runs[0], away.clone().into());
        assert_eq!(cache.load(runs[0], room(9)).unwrap_err(), away.into());
        cache.load(runs[1], room(9)).unwrap();
        cache.admit(runs[0]);
        cache.load(runs[0], room(9)).unwrap();
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
        let run = cache.insert(Box::new(hot(5, &["a"])), room(9)).run();
        assert!(cache.get(run).is_some());
        assert!(cache.number_of("run_5").is_err());
        assert!(cache.remove(run).is_some());
        assert!(cache.remove(run).is_none());
    }

    #[test]
    fn runs_that_are_expected_are_read_some_at_a_time() {
        let (store, runs) = store_with(READ_AHEAD + 5);
        let mut cache = RunCache::new(store);
        cache.expect(runs.iter().chain(&runs[..3]).copied());
        cache.load(runs[0], room(999)).unwrap();
        assert_eq!(cache.read_ahead.len(), READ_AHEAD - 1);
        for run in &runs {
            assert_eq!(cache.load(*run, room(999)).unwrap().run(), *run);
        }
        assert_eq!((cache.len(), cache.read_ahead.len()), (runs.len(), 0));
    }

    #[test]
    fn a_run_that_is_not_there_keeps_none_of_the_expected_runs_from_being_read() {
        let (store, runs) = store_with(2);
        let mut cache = RunCache::new(store);
        cache.expect([runs[0], RunNo(77), runs[1]].into_iter());
        assert!(cache.load(runs[0], room(9)).is_ok());
        assert!(cache.load(RunNo(77), room(9)).is_err());
        assert_eq!(cache.read_ahead.len(), 1);
        cache.expect_no_more();
        assert_eq!(cache.read_ahead.len(), 0);
        assert!(cache.load(runs[1], room(9)).is_ok());
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
