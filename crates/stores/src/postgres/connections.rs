//! Connections: made when they are needed, kept while they work, thrown away when they break.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stepwell_engine::store::{Result, StoreError, StoreErrorKind};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Statement};

use super::errors::{Fault, describe};
use super::{PostgresOptions, Values, block_on};

/// The oldest server whose SQL the store speaks.
const OLDEST_SERVER: i32 = 150_000;

/// How often a transaction that was in another's way is tried again.
const TRIES: u32 = 6;

/// One connection and its prepared statements.
pub(super) struct Link {
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

/// A statement with its values.
pub(super) struct Step<'a> {
    sql: &'static str,
    values: Vec<Box<dyn ToSql + Sync + 'a>>,
}

impl<'a> Step<'a> {
    pub(super) fn new(sql: &'static str) -> Step<'a> {
        Step {
            sql,
            values: Vec::new(),
        }
    }

    pub(super) fn with(mut self, value: impl ToSql + Sync + 'a) -> Step<'a> {
        self.values.push(Box::new(value));
        self
    }

    fn refs(&self) -> Vec<&(dyn ToSql + Sync)> {
        let refs = self.values.iter();
        refs.map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }
}

impl Link {
    async fn statement(&self, sql: &'static str) -> std::result::Result<Statement, Fault> {
        if let Some(known) = lock(&self.statements).get(sql) {
            return Ok(known.clone());
        }
        let made = self.client.prepare(sql).await;
        let made = made.map_err(|error| Fault::of(&error))?;
        lock(&self.statements).insert(sql, made.clone());
        Ok(made)
    }

    /// One statement.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> std::result::Result<Vec<Row>, Fault> {
        let statement = self.statement(sql).await?;
        let rows = self.client.query(&statement, values).await;
        rows.map_err(|error| Fault::of(&error))
    }

    /// Statements one after the other without waiting in between. The first fault counts: in a
    /// transaction those after it only say that it has failed.
    pub(super) async fn pipeline(
        &self,
        steps: &[Step<'_>],
    ) -> std::result::Result<Vec<Vec<Row>>, Fault> {
        let mut statements = Vec::with_capacity(steps.len());
        for step in steps {
            statements.push(self.statement(step.sql).await?);
        }
        let asked = steps.iter().zip(&statements).map(|(step, statement)| {
            let values = step.refs();
            async move { self.client.query(statement, &values).await }
        });
        let answers = block_on::all(asked.collect()).await;
        let mut rows = Vec::with_capacity(answers.len());
        for answer in answers {
            rows.push(answer.map_err(|error| Fault::of(&error))?);
        }
        Ok(rows)
    }

    /// Any text of statements, unprepared.
    pub(super) async fn script(&self, sql: &str) -> std::result::Result<(), Fault> {
        let done = self.client.batch_execute(sql).await;
        done.map_err(|error| Fault::of(&error))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// All connections of a store.
#[derive(Debug)]
pub(super) struct Links {
    runtime: Option<Runtime>,
    way: Arc<Way>,
    most: usize,
    patience: Duration,
    idle: Mutex<Idle>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Idle {
    links: Vec<Arc<Link>>,
    made: usize,
    failures: u32,
    not_before: Option<Instant>,
}

/// How to get to the database, and the news from there.
#[derive(Debug)]
struct Way {
    config: Config,
    prelude: String,
    channel: String,
    timeout: Duration,
    news: AtomicI64,
}

/// A connection that is ours until it is dropped.
#[derive(Debug)]
pub(super) struct Loan<'a> {
    links: &'a Links,
    link: Arc<Link>,
    sound: bool,
}

impl Loan<'_> {
    /// Waits for what was asked. A connection that does not answer in time is given up.
    pub(super) fn wait<T>(
        &mut self,
        asked: impl AsyncFnOnce(&Link) -> std::result::Result<T, Fault>,
    ) -> std::result::Result<T, Fault> {
        self.wait_within(self.links.patience, asked)
    }

    /// The same for what reads everything and may take its time.
    pub(super) fn wait_long<T>(
        &mut self,
        asked: impl AsyncFnOnce(&Link) -> std::result::Result<T, Fault>,
    ) -> std::result::Result<T, Fault> {
        self.wait_within(Duration::from_secs(24 * 3600), asked)
    }

    fn wait_within<T>(
        &mut self,
        patience: Duration,
        asked: impl AsyncFnOnce(&Link) -> std::result::Result<T, Fault>,
    ) -> std::result::Result<T, Fault> {
        let answer = block_on::until(asked(&self.link), Instant::now() + patience);
        let answer = answer.unwrap_or_else(|| Err(Fault::Lost("no answer in time".into())));
        if matches!(answer, Err(Fault::Lost(_))) {
            self.sound = false;
        }
        answer
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut idle = lock(&self.links.idle);
        if self.sound && !self.link.client.is_closed() {
            idle.links.push(Arc::clone(&self.link));
        } else {
            idle.made -= 1;
        }
        drop(idle);
        self.links.freed.notify_one();
    }
}

impl Links {
    /// Reads the address and sees that the server answers and is new enough.
    pub(super) fn open(url: &str, options: &PostgresOptions) -> Result<Links> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            StoreError::new(
                StoreErrorKind::Unusable,
                format!(
                    "this is not the address of a PostgreSQL database, which looks like \
                     postgresql://user:password@host:5432/database: {}",
                    describe(&error)
                ),
            )
        })?;
        config.connect_timeout(options.connect_timeout);
        if config.get_application_name().is_none() {
            config.application_name("stepwell");
        }
        // The channel's name must fit into a name of PostgreSQL too.
        if options.schema.is_empty() || options.schema.len() > 50 {
            return Err(StoreError::new(
                StoreErrorKind::Unusable,
                "the name of a schema has 1 to 50 bytes",
            ));
        }
        // Runtime threads only carry bytes; one is enough for all connections.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stepwell-postgres")
            .enable_all()
            .build()
            .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, error))?;
        let schema = quoted(&options.schema);
        let links = Links {
            runtime: Some(runtime),
            way: Arc::new(Way {
                config,
                prelude: prelude(&schema, options.statement_timeout),
                channel: quoted(&format!("stepwell/{}", options.schema)),
                timeout: options.connect_timeout,
                news: AtomicI64::new(0),
            }),
            most: options.connections.max(3),
            patience: options.statement_timeout + Duration::from_secs(5),
            idle: Mutex::new(Idle::default()),
            freed: Condvar::new(),
        };
        let mut loan = links.get()?;
        let version = loan.wait(async |link| link.query(SERVER_VERSION, &[]).await);
        let version: i32 = match version.map_err(Fault::of_read)?.first() {
            Some(row) => row.get(0),
            None => 0,
        };
        if version < OLDEST_SERVER {
            return Err(StoreError::new(
                StoreErrorKind::Unusable,
                format!(
                    "the server is PostgreSQL {}; 15 or newer is needed",
                    version / 10_000
                ),
            ));
        }
        drop(loan);
        Ok(links)
    }

    fn handle(&self) -> Result<&Handle> {
        let runtime = self.runtime.as_ref().map(Runtime::handle);
        runtime.ok_or_else(|| super::broken("the store is closed"))
    }

    /// A connection, an idle one if there is one that works.
    pub(super) fn get(&self) -> Result<Loan<'_>> {
        let mut idle = lock(&self.idle);
        loop {
            while let Some(link) = idle.links.pop() {
                if !link.client.is_closed() {
                    drop(idle);
                    return Ok(self.lend(link));
                }
                idle.made -= 1;
            }
            if idle.made < self.most {
                break;
            }
            let waited = self.freed.wait_timeout(idle, self.patience);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return Err(StoreError::new(
                    StoreErrorKind::Unavailable,
                    "all connections to PostgreSQL are busy",
                ));
            }
            idle = again;
        }
        idle.made += 1;
        let not_before = idle.not_before;
        drop(idle);
        // A server that is down is not asked all the time.
        if let Some(wait) = not_before.and_then(|at| at.checked_duration_since(Instant::now())) {
            thread::sleep(wait);
        }
        let made = self.make();
        let mut idle = lock(&self.idle);
        match made {
            Ok(link) => {
                idle.failures = 0;
                idle.not_before = None;
                drop(idle);
                Ok(self.lend(Arc::new(link)))
            }
            Err(error) => {
                idle.made -= 1;
                let pause = Duration::from_millis(25 << idle.failures.min(5));
                idle.failures += 1;
                idle.not_before = Some(Instant::now() + pause);
                drop(idle);
                self.freed.notify_one();
                Err(error)
            }
        }
    }

    fn lend(&self, link: Arc<Link>) -> Loan<'_> {
        Loan {
            links: self,
            link,
            sound: true,
        }
    }

    fn make(&self) -> Result<Link> {
        let way = Arc::clone(&self.way);
        let (answer, made) = sync_channel(1);
        self.handle()?.spawn(async move {
            // Nobody listens any more if it took too long; then the connection is dropped.
            let _ = answer.send(way.go(false).await);
        });
        let limit = self.way.timeout + Duration::from_secs(5);
        let client = made.recv_timeout(limit).unwrap_or_else(|_| {
            Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "PostgreSQL does not answer",
            ))
        })?;
        Ok(Link {
            client,
            statements: Mutex::new(HashMap::new()),
        })
    }

    /// Keeps one connection that hears when somebody posts something.
    pub(super) fn listen(&self) -> Result<()> {
        let way = Arc::downgrade(&self.way);
        let (listens, first) = sync_channel(1);
        self.handle()?.spawn(async move {
            let mut pause = Duration::from_millis(50);
            while let Some(way) = way.upgrade() {
                let client = way.go(true).await;
                // What was posted while nobody listened may be news.
                way.news.fetch_add(1, Ordering::Relaxed);
                drop(way);
                // Only the first is waited for.
                let _ = listens.try_send(());
                match client {
                    Ok(client) => {
                        pause = Duration::from_millis(50);
                        while !client.is_closed() {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                    }
                    Err(_) => pause = (pause * 2).min(Duration::from_secs(5)),
                }
                tokio::time::sleep(pause).await;
            }
        });
        // Without it news come late and nothing is lost: the engine looks by itself too.
        let _ = first.recv_timeout(self.way.timeout);
        Ok(())
    }

    /// Counts what was heard.
    pub(super) fn news(&self) -> i64 {
        self.way.news.load(Ordering::Relaxed)
    }

    /// Asks for something; nothing changes, so a broken connection is tried once more.
    pub(super) fn ask(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>> {
        let first = self.get()?.wait(async |link| link.query(sql, values).await);
        let answer = match first {
            Err(Fault::Lost(_)) => self.get()?.wait(async |link| link.query(sql, values).await),
            other => other,
        };
        answer.map_err(Fault::of_read)
    }

    /// Changes something in one statement.
    pub(super) fn tell(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>> {
        self.again(|loan| loan.wait(async |link| link.query(sql, values).await))
    }

    /// Changes something in several statements of one transaction.
    pub(super) fn transact(&self, steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>> {
        let mut all = vec![Step::new("BEGIN")];
        all.extend(steps);
        all.push(Step::new("COMMIT"));
        let mut rows = self.again(|loan| loan.wait(async |link| link.pipeline(&all).await))?;
        rows.remove(0);
        rows.pop();
        Ok(rows)
    }

    fn again<T>(
        &self,
        mut act: impl FnMut(&mut Loan<'_>) -> std::result::Result<T, Fault>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            tries += 1;
            match act(&mut self.get()?) {
                Err(Fault::Conflict(_)) if tries < TRIES => pause(tries),
                answer => return answer.map_err(Fault::of_write),
            }
        }
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

impl Drop for Links {
    fn drop(&mut self) {
        // Waiting for its tasks is not allowed inside another runtime, and nothing is lost.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Way {
    /// Connects; with `listening`, to hear news.
    async fn go(self: &Arc<Way>, listening: bool) -> Result<Client> {
        let connected = tokio::time::timeout(self.timeout, self.config.connect(NoTls)).await;
        let Ok(connected) = connected else {
            return Err(StoreError::new(
                StoreErrorKind::Unavailable,
                format!("PostgreSQL does not answer within {:?}", self.timeout),
            ));
        };
        let (client, mut connection) = connected.map_err(|error| cannot_connect(&error))?;
        let way = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                match std::future::poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(_))) => {
                        let Some(way) = way.upgrade() else { return };
                        way.news.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(Ok(_)) => {}
                    // Whoever asked on it hears of it.
                    Some(Err(_)) | None => return,
                }
            }
        });
        let mut prelude = self.prelude.clone();
        if listening {
            prelude.push_str(&format!("LISTEN {};", self.channel));
        }
        let set = client.batch_execute(&prelude).await;
        set.map_err(|error| Fault::of(&error).of_read())?;
        Ok(client)
    }
}

const SERVER_VERSION: &str = "SELECT current_setting('server_version_num')::integer";

/// What every connection is told first. Plans are made once, for arrays of any length: looking up
/// each element by an index is always right for them, whatever the statistics say.
fn prelude(schema: &str, timeout: Duration) -> String {
    format!(
        "SET search_path TO {schema}; SET statement_timeout = {}; SET TIME ZONE 'UTC'; \
         SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; \
         SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; \
         SET synchronous_commit = on; SET client_min_messages = warning; \
         SET default_transaction_isolation = 'read committed';",
        timeout.as_millis().max(1)
    )
}

fn cannot_connect(error: &tokio_postgres::Error) -> StoreError {
    let said = describe(error);
    match Fault::of(error) {
        Fault::Other(other) => StoreError::new(other.kind, format!("PostgreSQL: {said}")),
        _ => {
            // What the driver itself refuses (no password, TLS asked for) will not pass.
            let own = error.as_db_error().is_none()
                && std::error::Error::source(error).is_none_or(|it| !it.is::<std::io::Error>());
            let kind = if own && !error.is_closed() && !said.contains("timed out") {
                StoreErrorKind::Unusable
            } else {
                StoreErrorKind::Unavailable
            };
            StoreError::new(kind, format!("cannot connect to PostgreSQL: {said}"))
        }
    }
}

/// A name as SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A panic elsewhere does not make a list of connections wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
