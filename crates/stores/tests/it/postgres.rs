//! PostgreSQL under the suite, and beside the memory store.

use std::sync::Arc;
use std::time::Duration;

use stepwell_engine::store::{AuditLog as _, AuditRow, MemoryStore, RunReader as _, Store as _};
use stepwell_engine::suite::{self, Fresh};
use stepwell_kernel::time::Time;
use stepwell_stores::postgres::PostgresStore;

use crate::pgbouncer::Pgbouncer;
use crate::runs::{engine, run};
use crate::server::cluster::Cluster;
use crate::server::{fresh, options, schema, sql, url};

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
fn postgres_behind_a_pooler_keeps_every_rule() {
    let server = Cluster::start(&[]).unwrap();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(schema());
    std::fs::create_dir_all(&folder).unwrap();
    let pooler = Pgbouncer::start(&folder, &server.port().to_string(), 10);
    let url = format!(
        "postgresql://postgres@127.0.0.1:{}/postgres?pool_mode=transaction&sslmode=disable",
        pooler.port
    );
    suite::run("", &|| {
        let schema = schema();
        let open = || PostgresStore::connect(&url, options(&schema)).unwrap();
        Fresh {
            store: Box::new(open()),
            second: Some(Box::new(open())),
        }
    });
    let alike = PostgresStore::connect(&url, options(&schema())).unwrap();
    suite::differential(7, 400, &[&MemoryStore::default(), &alike]);
    std::fs::remove_dir_all(&folder).unwrap();
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

#[test]
fn nobody_changes_the_audit_log_of_postgres_with_sql() {
    let schema = schema();
    let store = PostgresStore::connect(&url(), options(&schema)).unwrap();
    let row = AuditRow {
        at: Time(5),
        actor: "ada".into(),
        ..AuditRow::default()
    };
    store.record(&[row]).unwrap();
    let refused = |change: &str| {
        let change = change.to_owned();
        let answer = std::thread::spawn(move || sql(&url(), &change)).join();
        answer.is_err()
    };
    let changes = [
        format!("UPDATE {schema}.audit_log SET actor = 'bob'"),
        format!("DELETE FROM {schema}.audit_log"),
        format!("TRUNCATE {schema}.audit_log"),
    ];
    for change in &changes {
        assert!(refused(change), "{change}");
    }
    // What the program deletes by age leaves no way for others.
    assert_eq!(store.prune_audit(Time(5), 9).unwrap(), 0);
    assert!(refused(&changes[1]));
    assert_eq!(store.prune_audit(Time(6), 9).unwrap(), 1);
}

/// Two strangers append to one run at the same time, each in a transaction of its own, with a search_path that does not
/// name the schema: the second waits for the first, and is refused.
#[test]
fn appends_under_way_at_once_have_no_number_in_common() {
    let schema = schema();
    let store = Arc::new(PostgresStore::connect(&url(), options(&schema)).unwrap());
    let mut engine = engine(store, &[]);
    run(&mut engine, "run_1", 1);
    let append = |first: u32, begin: &str, after: &str| {
        format!(
            "{begin}; INSERT INTO {schema}.log
               SELECT run_no, commit_session, commit_number, {first}, {first} + 2, codec, body, digests
               FROM {schema}.log WHERE first_seq = 1;
             {after} COMMIT;"
        )
    };
    let refused = |script: &str| {
        let script = script.to_owned();
        let answer = std::thread::spawn(move || sql(&url(), &script)).join();
        answer.is_err()
    };
    let first = append(100, "BEGIN", "SELECT pg_sleep(2);");
    let first = std::thread::spawn(move || sql(&url(), &first));
    std::thread::sleep(Duration::from_millis(700));
    assert!(refused(&append(101, "BEGIN", "")), "they meet");
    first.join().unwrap();
    assert!(!refused(&append(103, "BEGIN", "")), "they do not meet");
    let other = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    assert!(
        refused(&append(200, other, "")),
        "it would not see the others"
    );
    let there = format!("SELECT first_seq FROM {schema}.log WHERE first_seq >= 100 ORDER BY 1");
    let there: Vec<_> = sql(&url(), &there)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    assert_eq!(there, ["100", "103"]);
}
