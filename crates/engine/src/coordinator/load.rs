//! How much work of this process is in flight, in all and of each queue. All shards of an engine count together, so
//! that a limit holds for the process. Which runs wait for room is each shard's own (`capacity`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Config;
use crate::shard::Shard;

/// Counts the work in flight. All shards of an engine share one value.
#[derive(Debug, Default)]
pub(crate) struct Load {
    counts: Mutex<Counts>,
    /// A bit for each shard in which runs wait for room.
    waiting: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    busy: usize,
    /// How many of `busy` are of which queue.
    queues: HashMap<String, usize>,
}

/// Whether there was room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There was, and it is taken.
    Taken,
    /// This process does as much as it may.
    Full,
    /// There is room for work of other queues.
    QueueFull,
}

impl Counts {
    fn room(&self, config: &Config) -> usize {
        config.capacity.saturating_sub(self.busy)
    }

    fn room_in(&self, queue: &str, config: &Config) -> usize {
        let room = self.room(config);
        let Some(limit) = config.queues.get(queue) else {
            return room;
        };
        // A queue without work in flight is not in the map.
        let busy = self.queues.get(queue).copied().unwrap_or(0);
        room.min(limit.saturating_sub(busy))
    }

    fn add(&mut self, queue: &str) {
        self.busy += 1;
        match self.queues.get_mut(queue) {
            Some(count) => *count += 1,
            None => drop(self.queues.insert(queue.to_owned(), 1)),
        }
    }
}

impl Load {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing that holds the lock can panic halfway.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn busy(&self) -> usize {
        self.counts().busy
    }

    /// How much more this process may do.
    pub(super) fn room(&self, config: &Config) -> usize {
        self.counts().room(config)
    }

    /// How much more of a queue's work this process may do.
    pub(super) fn room_in(&self, queue: &str, config: &Config) -> usize {
        self.counts().room_in(queue, config)
    }

    /// Counts work of a queue, if there is room for it.
    pub(super) fn try_add(&self, queue: &str, config: &Config) -> Room {
        let mut counts = self.counts();
        if counts.room(config) == 0 {
            return Room::Full;
        }
        if counts.room_in(queue, config) == 0 {
            return Room::QueueFull;
        }
        counts.add(queue);
        Room::Taken
    }

    /// Counts work of a queue that goes on, whether there is room or not.
    pub(super) fn add(&self, queue: &str) {
        self.counts().add(queue);
    }

    /// Work of a queue has ended. Says whether that work had been counted.
    pub(super) fn end(&self, queue: &str) -> bool {
        let mut counts = self.counts();
        let Some(count) = counts.queues.get_mut(queue) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            counts.queues.remove(queue);
        }
        counts.busy -= 1;
        true
    }

    /// Says whether runs of a shard wait for room.
    pub(super) fn set_waiting(&self, shard: Shard, waits: bool) {
        let bit = 1 << shard.index();
        match waits {
            true => self.waiting.fetch_or(bit, Ordering::SeqCst),
            false => self.waiting.fetch_and(!bit, Ordering::SeqCst),
        };
    }

    /// Whether runs of other shards wait for room.
    pub(super) fn others_wait(&self, shard: Shard) -> bool {
        self.waiting.load(Ordering::SeqCst) & !(1 << shard.index()) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_all_who_count_together() {
        let config = Config {
            capacity: 3,
            queues: [("a".to_owned(), 1)].into(),
            ..Config::default()
        };
        let load = Load::default();
        assert_eq!(load.try_add("a", &config), Room::Taken);
        assert_eq!(load.try_add("a", &config), Room::QueueFull);
        assert_eq!(load.try_add("b", &config), Room::Taken);
        load.add("b");
        assert_eq!(load.try_add("c", &config), Room::Full);
        assert_eq!(load.busy(), 3);
        assert!(load.end("a"));
        assert!(!load.end("a"), "it was not counted");
        assert_eq!((load.busy(), load.room_in("a", &config)), (2, 1));
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let config = Config {
            capacity: 5,
            ..Config::default()
        };
        let load = Load::default();
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while load.try_add("a", &config) == Room::Taken {
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!((taken.into_inner(), load.busy()), (5, 5));
    }

    #[test]
    fn a_shard_sees_that_others_wait() {
        let load = Load::default();
        let shards: Vec<Shard> = Shard::all(3).collect();
        load.set_waiting(shards[1], true);
        assert!(load.others_wait(shards[0]) && !load.others_wait(shards[1]));
        load.set_waiting(shards[1], false);
        assert!(!load.others_wait(shards[0]));
    }
}
