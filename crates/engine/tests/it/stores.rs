//! The memory store under the suite that every store must pass.

use stepwell_engine::store::MemoryStore;
use stepwell_engine::suite::{self, Fresh};

#[test]
fn the_memory_store_keeps_every_rule() {
    suite::run("", &|| Fresh::alone(MemoryStore::default()));
}
