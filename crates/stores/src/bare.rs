//! The bare database: rows of a size in batches of a size, with nothing around them. What the engine
//! reaches is set against this, on the same disk in the same minute. Only with the feature `bench`.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use rusqlite::Connection;
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use crate::postgres::connector;
use crate::sqlite::Durability;

/// What a bare database did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bare {
    pub rows_per_second: f64,
    /// The median time of a commit.
    pub commit: Duration,
}

fn bare_error(error: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Unusable, error)
}

fn summary(rows: u64, elapsed: Duration, mut commits: Vec<Duration>) -> Bare {
    commits.sort_unstable();
    Bare {
        rows_per_second: rows as f64 / elapsed.as_secs_f64(),
        commit: commits.get(commits.len() / 2).copied().unwrap_or_default(),
    }
}

/// A new SQLite file with one table and one key.
pub fn sqlite(
    path: &Path,
    durability: Durability,
    row_bytes: usize,
    batch: usize,
    time: Duration,
) -> Result<Bare> {
    let mut conn = Connection::open(path).map_err(bare_error)?;
    let setup = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {}; PRAGMA cache_size = -65536;
         CREATE TABLE bare (id INTEGER PRIMARY KEY, body BLOB NOT NULL);",
        durability.name()
    );
    conn.execute_batch(&setup).map_err(bare_error)?;
    let body = vec![b'x'; row_bytes];
    let (begin, mut rows, mut commits) = (Instant::now(), 0, Vec::new());
    while begin.elapsed() < time {
        let start = Instant::now();
        let transaction = conn.transaction().map_err(bare_error)?;
        {
            let insert = "INSERT INTO bare (body) VALUES (?1)";
            let mut insert = transaction.prepare_cached(insert).map_err(bare_error)?;
            for _ in 0..batch {
                insert.execute([&body]).map_err(bare_error)?;
            }
        }
        transaction.commit().map_err(bare_error)?;
        rows += batch as u64;
        commits.push(start.elapsed());
    }
    Ok(summary(rows, begin.elapsed(), commits))
}

/// A new table in PostgreSQL, from as many connections as the store commits with.
pub fn postgres(
    url: &str,
    connections: usize,
    row_bytes: usize,
    batch: usize,
    time: Duration,
) -> Result<Bare> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(bare_error)?;
    runtime.block_on(async {
        let setup = "DROP TABLE IF EXISTS stepwell_bare;
             CREATE TABLE stepwell_bare (id bigserial PRIMARY KEY, body text NOT NULL)";
        let first = connect(url).await?;
        first.batch_execute(setup).await.map_err(bare_error)?;
        let begin = Instant::now();
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let url = url.to_owned();
            workers.spawn(async move {
                let client = connect(&url).await?;
                let insert = "INSERT INTO stepwell_bare (body) SELECT unnest($1::text[])";
                let insert = client.prepare(insert).await.map_err(bare_error)?;
                let bodies = vec!["x".repeat(row_bytes); batch];
                let (mut rows, mut commits) = (0_u64, Vec::new());
                while begin.elapsed() < time {
                    let start = Instant::now();
                    let sent = client.execute(&insert, &[&bodies]).await;
                    rows += sent.map_err(bare_error)?;
                    commits.push(start.elapsed());
                }
                Ok::<_, StoreError>((rows, commits))
            });
        }
        let (mut rows, mut commits) = (0, Vec::new());
        while let Some(done) = workers.join_next().await {
            let (some, times) = done.map_err(bare_error)??;
            rows += some;
            commits.extend(times);
        }
        let elapsed = begin.elapsed();
        let drop = "DROP TABLE stepwell_bare";
        first.batch_execute(drop).await.map_err(bare_error)?;
        Ok(summary(rows, elapsed, commits))
    })
}

/// Removes a schema that a bench has filled.
pub fn drop_schema(url: &str, schema: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(bare_error)?;
    runtime.block_on(async {
        let drop = format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE");
        connect(url)
            .await?
            .batch_execute(&drop)
            .await
            .map_err(bare_error)
    })
}

/// Connects as the store does: with the TLS and all other parameters of the address.
async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    let connected = connector(url)?.connect().await.map_err(bare_error)?;
    let mut messages = connected.messages;
    // The client sees a connection that broke.
    tokio::spawn(async move { while let Some(Ok(_)) = messages.next().await {} });
    Ok(connected.client)
}
