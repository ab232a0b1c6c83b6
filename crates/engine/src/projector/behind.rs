//! Which runs have changed and are not projected yet, and since when.

use std::collections::{BTreeSet, HashMap};

use stepwell_kernel::time::Time;

use crate::store::RunNo;

#[derive(Clone, Copy, Debug)]
struct Change {
    since: Time,
    seq: u64,
    /// This process has committed the events up to here by itself.
    own: u64,
    /// Not to be tried before.
    rest_until: Time,
}

/// Runs that have changed and are not projected yet.
#[derive(Debug, Default)]
pub(super) struct Behind {
    runs: HashMap<RunNo, Change>,
    by_age: BTreeSet<(Time, RunNo)>,
}

impl Behind {
    /// This process has committed events of a run. Says whether there was no other that is not projected yet.
    pub(super) fn committed(&mut self, run: RunNo, seq: u64, at: Time) -> bool {
        let is_first = self.runs.is_empty();
        let change = self.changed(run, seq, at);
        change.own = change.own.max(seq);
        is_first
    }

    /// Events of a run were found.
    pub(super) fn found(&mut self, run: RunNo, seq: u64, at: Time) {
        self.changed(run, seq, at);
    }

    fn changed(&mut self, run: RunNo, seq: u64, at: Time) -> &mut Change {
        let change = self.runs.entry(run).or_insert(Change {
            since: at,
            seq,
            own: 0,
            rest_until: Time(i64::MIN),
        });
        change.seq = change.seq.max(seq);
        // What has just been written may be what was missing.
        change.rest_until = Time(i64::MIN);
        self.by_age.insert((change.since, run));
        change
    }

    /// The last event of a run that this process has committed by itself, as far as there are events to project.
    pub(super) fn own(&self, run: RunNo) -> u64 {
        self.runs.get(&run).map_or(0, |change| change.own)
    }

    /// A run is projected up to here; the last event that is has this time, so no other is older.
    pub(super) fn reached(&mut self, run: RunNo, seq: u64, at: Option<Time>) {
        let Some(change) = self.runs.get_mut(&run) else {
            return;
        };
        if seq >= change.seq {
            self.by_age.remove(&(change.since, run));
            self.runs.remove(&run);
        } else if let Some(at) = at.filter(|at| *at > change.since) {
            self.by_age.remove(&(change.since, run));
            change.since = at;
            self.by_age.insert((at, run));
        }
    }

    /// Nothing more can be done for a run until then.
    pub(super) fn rest(&mut self, run: RunNo, until: Time) {
        if let Some(change) = self.runs.get_mut(&run) {
            change.rest_until = until;
        }
    }

    /// A run that cannot be projected.
    pub(super) fn give_up(&mut self, run: RunNo) {
        if let Some(change) = self.runs.remove(&run) {
            self.by_age.remove(&(change.since, run));
        }
    }

    /// Those that have waited longest, of those that have waited since `before`.
    pub(super) fn oldest(&self, (before, now): (Time, Time), limit: usize) -> Vec<RunNo> {
        let ready = |run: &RunNo| self.runs.get(run).is_some_and(|it| it.rest_until <= now);
        let old = self.by_age.iter().take_while(|(since, _)| *since <= before);
        let runs = old.map(|(_, run)| *run);
        runs.filter(ready).take(limit).collect()
    }

    /// The one that has waited longest, and since when.
    pub(super) fn first(&self) -> Option<(RunNo, Time)> {
        self.by_age.first().map(|(since, run)| (*run, *since))
    }

    /// Since when a run has waited.
    pub(super) fn since(&self, run: RunNo) -> Option<Time> {
        self.runs.get(&run).map(|change| change.since)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }
}
