//! The numbers of new runs, which are reserved in the store some at a time. All shards of an engine take them from one
//! place, so that a later run has a larger number, whichever shard has it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::shard::Shard;
use crate::store::{RunNo, Store, StoreError};

/// How many numbers are reserved at a time.
const NUMBERS: u32 = 256;

/// Numbers that are reserved and not given out.
#[derive(Debug, Default)]
pub(crate) struct RunNumbers {
    reserved: Mutex<Range<i64>>,
}

impl RunNumbers {
    /// The number of a new run of a shard. Numbers of other shards in between are never used.
    pub(super) fn next(&self, shard: Shard, store: &dyn Store) -> Result<RunNo, StoreError> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if reserved.is_empty() {
                *reserved = store.reserve_numbers(NUMBERS)?;
            }
            let run = RunNo(reserved.start);
            reserved.start += 1;
            if shard.has(run) {
                return Ok(run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn no_two_runs_get_the_same_number() {
        let store = MemoryStore::default();
        let (one, two) = (RunNumbers::default(), RunNumbers::default());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..600 {
            assert!(seen.insert(one.next(Shard::ALL, &store).unwrap()));
            assert!(seen.insert(two.next(Shard::ALL, &store).unwrap()));
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
            let run = numbers.next(shard, &store).unwrap();
            assert!(shard.has(run) && run > last);
            last = run;
        }
    }
}
