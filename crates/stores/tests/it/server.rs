//! A PostgreSQL for tests: the one that `cargo xtask test` starts, with a schema for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use stepwell_stores::postgres::{PostgresOptions, PostgresStore};

/// Only the standard library is in it, so it can be included here as it is.
#[path = "../../../../xtask/src/cluster.rs"]
#[allow(dead_code, reason = "xtask uses the rest")]
pub(crate) mod cluster;

/// The server's address. Tests never skip: without one they fail and say what to do.
pub(crate) fn url() -> String {
    std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, or `cargo xtask postgres -- \
             cargo test -p stepwell-stores`, which start a PostgreSQL; or set it to the address of \
             one, like postgresql://user@host:5432/database"
        )
    })
}

/// A schema that no other test has, in this process or another.
pub(crate) fn schema() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_millis();
    format!(
        "test_{}_{}_{count}",
        now % 1_000_000_000,
        std::process::id()
    )
}

/// In the time of its callers.
pub(crate) fn options(schema: &str) -> PostgresOptions {
    PostgresOptions {
        schema: schema.to_owned(),
        given_time: true,
        connections: 4,
        ..PostgresOptions::default()
    }
}

/// A new, empty store.
pub(crate) fn fresh() -> PostgresStore {
    PostgresStore::connect(&url(), options(&schema())).unwrap()
}

/// What a query answers, as text, asked past the store.
pub(crate) fn sql(url: &str, query: &str) -> Vec<Vec<Option<String>>> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        let answer = client.simple_query(query).await.unwrap();
        let rows = answer.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let texts = |row: &tokio_postgres::SimpleQueryRow| {
            let columns = 0..row.len();
            columns.map(|it| row.get(it).map(str::to_owned)).collect()
        };
        rows.map(texts).collect()
    })
}
