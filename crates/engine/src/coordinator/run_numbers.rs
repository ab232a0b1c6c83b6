//! The numbers of new runs, which are reserved in the store some at a time. All shards of an engine take them from one
//! place, so that a later run has a larger number, whichever shard has it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use stepwell_kernel::time::Time;

use crate::shard::Shard;
use crate::store::{RunNo, Store, StoreError};

/// How many numbers are reserved at a time where few runs start.
const FEW: u32 = 256;
/// How many numbers are reserved at a time at most.
const MANY: u32 = 1 << 14;
/// A reservation is for about this time: a run that starts later has a larger number than the runs that other servers
/// have started meanwhile. In milliseconds.
const TERM_MS: u64 = 1_000;

/// Numbers that are reserved and not given out.
#[derive(Debug, Default)]
pub(crate) struct RunNumbers {
    reservation: Mutex<Reservation>,
}

#[derive(Debug, Default)]
struct Reservation {
    numbers: Range<i64>,
    size: u32,
    since: Time,
}

impl RunNumbers {
    /// The number of a new run of a shard. Numbers of other shards in between are never used.
    pub(super) fn next(
        &self,
        shard: Shard,
        store: &dyn Store,
        now: Time,
    ) -> Result<RunNo, StoreError> {
        let reservation = self.reservation.lock();
        let mut reservation = reservation.unwrap_or_else(PoisonError::into_inner);
        loop {
            let run = RunNo(reservation.next(store, now)?);
            if shard.has(run) {
                return Ok(run);
            }
        }
    }
}

impl Reservation {
    /// A reservation waits for the commit in progress and is a commit of its own, and nothing is decided meanwhile. So it
    /// grows where many runs start: one that is used up within its term is followed by one of twice its size.
    fn next(&mut self, store: &dyn Store, now: Time) -> Result<i64, StoreError> {
        let over = now.since(self.since) >= TERM_MS;
        // A large reservation ends with its term, and the numbers that are left are never used.
        if self.numbers.is_empty() || (over && self.size > FEW) {
            let size = match over {
                true => self.size / 2,
                false => self.size * 2,
            };
            let size = size.clamp(FEW, MANY);
            self.numbers = store.reserve_numbers(size)?;
            (self.size, self.since) = (size, now);
        }
        let number = self.numbers.start;
        self.numbers.start += 1;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Commits as _, MemoryStore};

    #[test]
    fn no_two_runs_get_the_same_number() {
        let store = MemoryStore::default();
        let (one, two) = (RunNumbers::default(), RunNumbers::default());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..600 {
            assert!(seen.insert(one.next(Shard::ALL, &store, Time(0)).unwrap()));
            assert!(seen.insert(two.next(Shard::ALL, &store, Time(0)).unwrap()));
        }
    }

    #[test]
    fn a_later_run_has_a_larger_number_of_its_own_shard() {
        let store = MemoryStore::default();
        let numbers = RunNumbers::default();
        let shards: Vec<Shard> = Shard::all(3).collect();
        let mut last = RunNo(i64::MIN);
        for turn in 0..600 {
            let shard = shards[turn * turn % 3];
            let run = numbers.next(shard, &store, Time(0)).unwrap();
            assert!(shard.has(run) && run > last);
            last = run;
        }
    }

    #[test]
    fn many_numbers_are_reserved_only_where_many_runs_start() {
        let store = MemoryStore::default();
        let numbers = RunNumbers::default();
        let reserve = |count: u32, now: i64| {
            let next = |_| numbers.next(Shard::ALL, &store, Time(now)).unwrap().0;
            let runs: Vec<i64> = (0..count).map(next).collect();
            assert!(runs.is_sorted_by(|a, b| a < b));
            numbers.reservation.lock().unwrap().size
        };
        assert_eq!(reserve(1, 5_000), FEW);
        assert_eq!(reserve(100_000, 5_500), MANY);
        // Few runs start from now on: each term reserves half as many.
        assert_eq!(reserve(1, 6_500), MANY / 2);
        let sizes: Vec<u32> = (0..8)
            .map(|turn| reserve(1, 8_000 + turn * 1_000))
            .collect();
        assert_eq!(sizes, [4_096, 2_048, 1_024, 512, FEW, FEW, FEW, FEW]);
        // A small reservation is used up, however long that takes.
        let (before, after) = (reserve(1, 90_000), store.reserve_numbers(1).unwrap());
        reserve(200, 99_000);
        assert_eq!(before, FEW);
        assert_eq!(store.reserve_numbers(1).unwrap().start, after.end);
    }
}
