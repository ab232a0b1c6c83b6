//! PostgreSQL, for many servers on one database.
//!
//! `access` reads the address, `connection` and `connections` keep a pool, `query` is a statement with its
//! values, `errors` says what an error of the database means for the port, `migrate` makes the tables. `commit` appends (`columns`
//! turns appends into arrays, `append_checks` asks whether each append may be written, `refusals` says
//! why one may not, `row_changes` writes the rows that follow, all with the statements of `sql`);
//! `reads`, `run_list`, `sessions`, `tasks`, `mailbox`, `outbox`, `installation`, `retention` and `maintenance` implement the other traits of the port.
//!
//! All calls block the caller's thread and never need its runtime: the connections' tasks live on a
//! runtime of the store's own, and the caller only parks until they answer.

mod access;
mod append_checks;
mod change_feed;
mod columns;
mod commit;
mod connection;
mod connections;
mod errors;
mod installation;
mod mailbox;
mod maintenance;
mod migrate;
mod outbox;
mod query;
mod reads;
mod refusals;
mod retention;
mod row_changes;
mod run_list;
mod run_search;
mod sessions;
mod sql;
#[cfg(feature = "suite")]
mod store_dump;
mod tasks;

use std::time::Duration;

use stepwell_engine::store::{Capabilities, Result, Store, StoreError, StoreErrorKind};
use stepwell_kernel::time::Time;

use connections::Connections;
use query::Values;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The schema that has the tables; made if it is missing.
    pub schema: String,
    /// The time of a call counts, not the database's clock: for tests and simulators.
    pub given_time: bool,
    /// Whether missing tables are created and older ones migrated; else a store that is not current is refused.
    pub migrates: bool,
    /// At most this many connections.
    pub connections: usize,
    /// How long a statement may take.
    pub statement_timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
}

/// What makes connections as the store makes them.
#[cfg(feature = "bench")]
pub(crate) fn connector(url: &str) -> Result<stepwell_pg::Connector> {
    Ok(access::Access::read(url, &PostgresOptions::default())?.connector)
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            schema: "stepwell".into(),
            given_time: false,
            migrates: true,
            connections: 8,
            statement_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A store on a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    connections: Connections,
    given_time: bool,
}

impl PostgresStore {
    /// Connects, makes or migrates the tables, and begins to listen for news.
    ///
    /// `url` is `postgresql://user:password@host:port/database?name=value` or the `name=value` form, with
    /// the parameters that libpq documents and three of the store's own: `schema`, `pool_mode` and
    /// `prepared_statements`. What it does not say comes from a service file and the `PG*` variables.
    pub fn connect(url: &str, options: PostgresOptions) -> Result<PostgresStore> {
        let connections = Connections::open(url, &options)?;
        match options.migrates {
            true => migrate::migrate(&connections)?,
            false => migrate::must_be_current(&connections)?,
        }
        connections.listen()?;
        Ok(PostgresStore {
            connections,
            given_time: options.given_time,
        })
    }

    /// What goes to the database as the time: nothing, so that its own clock counts, unless the
    /// store was opened for given time.
    fn given(&self, now: Time) -> Option<i64> {
        self.given_time.then_some(now.0)
    }
}

impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: true,
            durable: true,
            concurrent_commits: 2,
        }
    }
}

/// A number of the port as the tables have it. What is larger than any row is after all of them.
fn seq(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number that cannot be negative: a count, or a column with a constraint (`CHECK`).
fn unsigned<N: TryFrom<i64> + Default>(value: impl Into<i64>) -> N {
    N::try_from(value.into()).unwrap_or_default()
}

fn broken(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Internal, what)
}
