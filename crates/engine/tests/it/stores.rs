//! The memory store under the suite that every store must pass.

use stepwell_engine::store::{Commits as _, MemoryStore, Sessions};
use stepwell_engine::suite::{self, Fresh};
use stepwell_kernel::time::Time;

#[test]
fn the_memory_store_keeps_every_rule() {
    suite::run("", &|| Fresh::alone(MemoryStore::default()));
}

#[test]
fn two_memory_stores_driven_alike_hold_the_same() {
    for seed in 0..20 {
        let (a, b) = (MemoryStore::default(), MemoryStore::default());
        // Numbers that a store gives out itself must not show.
        b.reserve_numbers(1000).unwrap();
        b.close_session(b.open_session("before", Time(0), Time(0)).unwrap())
            .unwrap();
        b.dead_sessions(Time(0)).unwrap();
        suite::differential(seed, 400, &[&a, &b]);
    }
}
