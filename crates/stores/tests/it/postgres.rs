//! PostgreSQL under the suite, and beside the memory store.

use stepwell_engine::store::{MemoryStore, RunReader as _, Store as _};
use stepwell_engine::suite::{self, Fresh};
use stepwell_stores::postgres::PostgresStore;

use crate::server::{fresh, options, schema, url};

#[test]
fn postgres_keeps_every_rule() {
    suite::run("", &|| {
        let schema = schema();
        let open = || PostgresStore::connect(&url(), options(&schema)).unwrap();
        Fresh {
            store: Box::new(open()),
            second: Some(Box::new(open())),
        }
    });
}

#[test]
fn postgres_and_memory_driven_alike_hold_the_same() {
    for seed in 0..6 {
        suite::differential(seed, 400, &[&MemoryStore::default(), &fresh()]);
    }
}

#[test]
fn calls_inside_another_runtime_do_not_panic() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = fresh();
        assert_eq!(store.name(), "postgres");
        assert_eq!(store.find("nothing").unwrap(), None);
    });
}
