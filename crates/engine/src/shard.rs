//! Shards: the runs of one engine, divided among threads that decide. A shard has the runs whose number leaves its
//! index when divided by the number of shards, so every run has one owner. A store knows nothing of shards: to
//! the store each of them is a server with a session of its own, which is what makes sharding safe.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::store::RunNo;

/// Which runs a coordinator has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// More shards than this bring nothing: all of them share one commit pipeline.
    pub const MAX: usize = 16;

    /// The only shard of an engine with one: it has all runs.
    pub const ALL: Shard = Shard { index: 0, count: 1 };

    /// Every shard of `count`, which is at least one and at most `MAX`.
    pub fn all(count: usize) -> impl Iterator<Item = Shard> {
        let count = count.clamp(1, Shard::MAX);
        (0..count).map(move |index| Shard { index, count })
    }

    /// How many shards suit this machine: one core is left to the commits and the work, and with two cores or
    /// fewer one thread decides.
    #[must_use]
    pub fn suited() -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match cores {
            0..=2 => 1,
            _ => (cores / 2).clamp(2, Shard::MAX),
        }
    }

    /// Which of the shards this is, from zero.
    #[must_use]
    pub fn index(self) -> usize {
        self.index
    }

    /// How many shards there are.
    #[must_use]
    pub fn count(self) -> usize {
        self.count
    }

    /// Whether this shard has all runs.
    #[must_use]
    pub fn is_all(self) -> bool {
        self.count == 1
    }

    /// Whether this shard has a run.
    #[must_use]
    pub fn has(self, run: RunNo) -> bool {
        self.is_all() || Shard::of_run(run, self.count) == self.index
    }

    /// The shard of a run among `count`.
    #[must_use]
    pub fn of_run(run: RunNo, count: usize) -> usize {
        // The remainder is smaller than the count, which is small.
        run.0.rem_euclid(count.max(1) as i64) as usize
    }

    /// Where to send what is for a run of this id. New runs get a number of this shard. It is a guess for runs that were
    /// created as children, or under another number of shards; the shard that gets a command for such a run
    /// passes the command on.
    #[must_use]
    pub fn of_id(run_id: &str, count: usize) -> usize {
        if count <= 1 {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        run_id.hash(&mut hasher);
        (hasher.finish() % count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_one_shard() {
        for count in 1..=Shard::MAX {
            for run in 0..100 {
                let owners: Vec<Shard> =
                    Shard::all(count).filter(|it| it.has(RunNo(run))).collect();
                assert_eq!(owners.len(), 1);
                assert_eq!(owners[0].index(), Shard::of_run(RunNo(run), count));
            }
        }
    }

    #[test]
    fn the_number_of_shards_is_bounded() {
        assert_eq!(Shard::all(0).count(), 1);
        assert_eq!(Shard::all(1_000).count(), Shard::MAX);
        assert!((1..=Shard::MAX).contains(&Shard::suited()));
        assert!(Shard::all(1).all(Shard::is_all));
    }

    #[test]
    fn an_id_always_has_the_same_shard() {
        let shard = Shard::of_id("run_1", 7);
        assert!(shard < 7);
        assert_eq!(shard, Shard::of_id("run_1", 7));
        assert_eq!(Shard::of_id("run_1", 1), 0);
    }
}
