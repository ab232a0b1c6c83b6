//! The connections of a store: a pool of them, and what is read and written over them.
//!
//! Calls block the caller's thread; the connections' tasks live on a runtime of the store's own. Behind a
//! pooler that gives every transaction another server connection (`pool_mode=transaction`) nothing is
//! kept in a session: settings belong to a transaction, statements are not prepared, nobody listens.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use deadpool::Runtime as PoolRuntime;
use deadpool::managed::{Object, Pool, PoolError, TimeoutType, Timeouts};
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Row;

use super::PostgresOptions;
use super::access::Access;
use super::connection::{Connection, DbResult, Manager};
use super::errors::DbError;
use super::query::{Query, Values};

/// The oldest server whose SQL the store speaks.
const OLDEST_SERVER: i32 = 150_000;

/// How often a transaction that was in another's way is tried again.
const TRIES: u32 = 6;

/// How often a store that nobody listens to is asked for news.
const ASK_FOR_NEWS: Duration = Duration::from_millis(200);

/// A connection that broke this fast is replaced at once.
const SOON: Duration = Duration::from_secs(1);

/// For what reads everything and may take its time.
const LONG: Duration = Duration::from_secs(24 * 3600);

const SERVER_VERSION: &str = "SELECT current_setting('server_version_num')::integer";

/// The number of the last message.
///
/// The value of a sequence that was never used is the same as after its first use.
const LAST_MESSAGE: &str =
    "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM mailbox_mail_no_seq";

/// All connections of a store.
#[derive(Debug)]
pub(super) struct Connections {
    runtime: Option<Runtime>,
    pool: Pool<Manager>,
    /// One connection for what must not wait behind anything else: the renewals of sessions.
    apart: Pool<Manager>,
    access: Arc<Access>,
    patience: Duration,
    /// Counts what was heard.
    news: Arc<AtomicI64>,
    /// When news were asked for last, where nobody listens.
    asked: Mutex<Option<Instant>>,
}

/// A connection that is ours until it is dropped.
pub(super) struct PooledConnection<'a> {
    connections: &'a Connections,
    connection: Object<Manager>,
}

impl PooledConnection<'_> {
    /// Waits for what was asked. A connection that does not answer in time is given up.
    pub(super) fn wait<T>(
        &mut self,
        asked: impl AsyncFnOnce(&Connection) -> DbResult<T>,
    ) -> DbResult<T> {
        self.wait_within(self.connections.patience, asked)
    }

    /// The same for what reads everything and may take its time.
    pub(super) fn wait_long<T>(
        &mut self,
        asked: impl AsyncFnOnce(&Connection) -> DbResult<T>,
    ) -> DbResult<T> {
        self.wait_within(LONG, asked)
    }

    fn wait_within<T>(
        &mut self,
        patience: Duration,
        asked: impl AsyncFnOnce(&Connection) -> DbResult<T>,
    ) -> DbResult<T> {
        let connection = &*self.connection;
        let answer = self
            .connections
            .block_on(async { tokio::time::timeout(patience, asked(connection)).await })?;
        let Ok(answer) = answer else {
            connection.give_up();
            // The server ends a slow statement earlier, so it is the network that does not answer. What waits in
            // the pool goes through the same network: each of them would cost as long as this one.
            self.connections.pool.retain(|_, _| false);
            let what = format!("no answer within {} s", patience.as_secs());
            return Err(DbError::ConnectionLost(what));
        };
        if matches!(answer, Err(DbError::ConnectionLost(_))) {
            connection.give_up();
        }
        answer
    }
}

impl Connections {
    /// Sees that the server answers and is new enough.
    pub(super) fn open(url: &str, options: &PostgresOptions) -> Result<Connections> {
        let access = Arc::new(Access::read(url, options)?);
        // Runtime threads only carry bytes; one is enough for all connections.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stepwell-postgres")
            .enable_all()
            .build()
            .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?;
        let patience = options.statement_timeout + Duration::from_secs(5);
        let news = Arc::new(AtomicI64::new(0));
        let manager = Manager::new(Arc::clone(&access), Arc::clone(&news));
        let timeouts = Timeouts {
            wait: Some(patience),
            create: Some(access.connect_timeout * 2 + Duration::from_secs(5)),
            recycle: None,
        };
        let pool = Pool::builder(manager)
            .max_size(options.connections.max(3))
            .timeouts(timeouts)
            .runtime(PoolRuntime::Tokio1)
            .build()
            .map_err(|error| super::broken(&error.to_string()))?;
        let manager = Manager::new(Arc::clone(&access), Arc::clone(&news));
        let apart = Pool::builder(manager)
            .max_size(1)
            .runtime(PoolRuntime::Tokio1)
            .build()
            .map_err(|error| super::broken(&error.to_string()))?;
        let connections = Connections {
            runtime: Some(runtime),
            pool,
            apart,
            access,
            patience,
            news,
            asked: Mutex::new(None),
        };
        connections.check_version()?;
        Ok(connections)
    }

    fn check_version(&self) -> Result<()> {
        let rows = self.read(SERVER_VERSION, &[])?;
        let version: i32 = super::reads::first(&rows)?.get(0);
        if version < OLDEST_SERVER {
            return Err(StoreError::new(
                StoreErrorKind::Unusable,
                format!(
                    "the server is PostgreSQL {}; 15 or newer is needed",
                    version / 10_000
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn schema(&self) -> &str {
        &self.access.schema
    }

    /// Waits on this thread, with the timers and sockets of the store's own runtime; also inside
    /// the runtime of the caller.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> std::result::Result<T, DbError> {
        let Some(runtime) = &self.runtime else {
            return Err(DbError::Other(super::broken("the store is closed")));
        };
        let _inside = runtime.enter();
        Ok(pollster::block_on(future))
    }

    /// One statement over the connection that is kept apart, all within `patience`: neither the other connections nor
    /// what they wait for can hold it up.
    pub(super) fn ask_apart(
        &self,
        sql: &'static str,
        values: Values<'_>,
        patience: Duration,
    ) -> Result<Vec<Row>> {
        let asked = async {
            let connection = self.apart.get().await.map_err(no_connection)?;
            let answer = connection.query_alone(sql, values).await;
            if matches!(answer, Err(DbError::ConnectionLost(_))) {
                connection.give_up();
            }
            answer.map_err(DbError::of_write)
        };
        // What is dropped half done leaves a connection that is busy with it: the next call makes another one.
        let limited = self.block_on(async { tokio::time::timeout(patience, asked).await });
        limited.map_err(DbError::of_read)?.unwrap_or_else(|_| {
            self.apart.retain(|connection, _| {
                connection.give_up();
                false
            });
            Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!(
                    "PostgreSQL did not answer within {} ms",
                    patience.as_millis()
                ),
            ))
        })
    }

    /// A connection, an idle one if there is one that works.
    pub(super) fn get(&self) -> Result<PooledConnection<'_>> {
        let got = self.block_on(self.pool.get()).map_err(DbError::of_read)?;
        let connection = got.map_err(no_connection)?;
        Ok(PooledConnection {
            connections: self,
            connection,
        })
    }

    /// Keeps one connection that hears when a process posts a message.
    pub(super) fn listen(&self) -> Result<()> {
        let (Some(runtime), true) = (&self.runtime, self.access.keeps_session) else {
            return Ok(());
        };
        let access = Arc::downgrade(&self.access);
        let news = Arc::clone(&self.news);
        let (listens, first) = sync_channel(1);
        runtime.spawn(async move {
            let mut pause = Duration::from_millis(50);
            while let Some(access) = access.upgrade() {
                let connection = Manager::new(access, Arc::clone(&news)).listen().await;
                // What was posted while nobody listened may be news.
                news.fetch_add(1, Ordering::Relaxed);
                // Only the first is waited for.
                let _ = listens.try_send(());
                match connection {
                    Ok(connection) => {
                        pause = Duration::from_millis(50);
                        while !connection.is_closed() {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                    }
                    Err(_) => pause = (pause * 2).min(Duration::from_secs(5)),
                }
                tokio::time::sleep(pause).await;
            }
        });
        // Without it news come late and nothing is lost: the engine looks by itself too.
        let _ = first.recv_timeout(self.access.connect_timeout);
        Ok(())
    }

    /// A number that changes when a process posts a message. Where nobody can listen it is asked for, not
    /// all the time.
    pub(super) fn news(&self) -> Result<i64> {
        if !self.access.keeps_session && self.is_time_to_ask() {
            let rows = self.read(LAST_MESSAGE, &[])?;
            let last: i64 = super::reads::first(&rows)?.get(0);
            self.news.store(last, Ordering::Relaxed);
        }
        Ok(self.news.load(Ordering::Relaxed))
    }

    fn is_time_to_ask(&self) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = asked.is_none_or(|at| at.elapsed() >= ASK_FOR_NEWS);
        if due {
            *asked = Some(Instant::now());
        }
        due
    }

    /// Reads something; nothing changes, so after a broken connection it is tried once more, unless that would
    /// double a long wait.
    pub(super) fn read(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>> {
        let ask = || {
            let mut connection = self.get()?;
            Ok(connection.wait(async |it| it.query_alone(sql, values).await))
        };
        let asked = Instant::now();
        let answer = match ask()? {
            Err(DbError::ConnectionLost(_)) if asked.elapsed() < SOON => ask()?,
            other => other,
        };
        answer.map_err(DbError::of_read)
    }

    /// Changes something in one statement.
    pub(super) fn write(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>> {
        self.again(|connection| connection.wait(async |it| it.query_alone(sql, values).await))
    }

    /// Changes something in several statements of one transaction.
    pub(super) fn transact(&self, queries: Vec<Query<'_>>) -> Result<Vec<Vec<Row>>> {
        self.in_transaction("BEGIN ISOLATION LEVEL READ COMMITTED", queries)
    }

    /// Reads with several statements what was there at one moment.
    pub(super) fn read_at_once(&self, queries: Vec<Query<'_>>) -> Result<Vec<Vec<Row>>> {
        self.in_transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", queries)
    }

    fn in_transaction(
        &self,
        begin: &'static str,
        queries: Vec<Query<'_>>,
    ) -> Result<Vec<Vec<Row>>> {
        let mut all = self.begin(begin);
        let before = all.len();
        all.extend(queries);
        all.push(Query::new("COMMIT"));
        let rows = self.again(|connection| connection.wait(async |it| it.pipeline(&all).await))?;
        let wanted = rows.len().saturating_sub(before + 1);
        Ok(rows.into_iter().skip(before).take(wanted).collect())
    }

    /// The statements that begin a transaction.
    pub(super) fn begin(&self, begin: &'static str) -> Vec<Query<'static>> {
        let mut queries = vec![Query::new(begin)];
        if !self.access.keeps_session {
            queries.push(self.access.transaction_settings());
        }
        queries
    }

    fn again<T>(&self, mut act: impl FnMut(&mut PooledConnection<'_>) -> DbResult<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            tries += 1;
            match act(&mut self.get()?) {
                Err(DbError::Conflict(_)) if tries < TRIES => pause(tries),
                answer => return answer.map_err(DbError::of_write),
            }
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        // Waiting for its tasks is not allowed inside another runtime, and nothing is lost.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn no_connection(error: PoolError<StoreError>) -> StoreError {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(TimeoutType::Wait) => StoreError::new(
            StoreErrorKind::Unavailable,
            "all connections to PostgreSQL are busy",
        ),
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
            StoreError::new(StoreErrorKind::Unavailable, "PostgreSQL does not answer")
        }
        other @ (PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_)) => super::broken(&other.to_string()),
    }
}

/// Before the same is tried again; longer each time, so that one of two gets through.
pub(super) fn pause(tries: u32) {
    thread::sleep(Duration::from_millis(1 << tries.min(6)));
}

/// Whether a transaction that was in another's way may be tried once more.
pub(super) fn may_try(tries: u32) -> bool {
    tries < TRIES
}
