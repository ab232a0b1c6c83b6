//! One connection: making it, sending statements over it, and giving it up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::ClientWrapper;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};
use stepwell_pg::ConnectError;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Row};

use super::access::Access;
use super::errors::{DbError, describe};
use super::query::{Param, Query, Values};

/// The result of a statement.
pub(super) type DbResult<T> = std::result::Result<T, DbError>;

/// One connection with its prepared statements.
pub(super) struct Connection {
    client: ClientWrapper,
    access: Arc<Access>,
    carrier: AbortHandle,
    sound: AtomicBool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

fn db_error(error: tokio_postgres::Error) -> DbError {
    DbError::of(&error)
}

impl Connection {
    /// One statement of a transaction that has begun.
    pub(super) async fn query(&self, sql: &str, values: Values<'_>) -> DbResult<Vec<Row>> {
        if self.access.prepared {
            let statement = self.client.prepare_cached(sql).await.map_err(db_error)?;
            let values: Vec<_> = values.iter().map(|it| it.value()).collect();
            self.client.query(&statement, &values).await
        } else {
            let typed: Vec<_> = values.iter().map(|it| (it.value(), it.pg_type())).collect();
            self.client.query_typed(sql, &typed).await
        }
        .map_err(db_error)
    }

    /// One statement that is a transaction by itself.
    pub(super) async fn query_alone(&self, sql: &str, values: Values<'_>) -> DbResult<Vec<Row>> {
        if self.access.keeps_session {
            return self.query(sql, values).await;
        }
        let settings = self.access.transaction_settings();
        let set_values = settings.values();
        let sent: [(&str, &[&dyn Param]); 4] = [
            ("BEGIN", &[]),
            (settings.sql, &set_values),
            (sql, values),
            ("COMMIT", &[]),
        ];
        self.prepare(sent.iter().map(|(sql, _)| *sql)).await?;
        let asked = sent.map(|(sql, values)| self.query(sql, values));
        // The first error counts: those after it only say that the transaction has failed.
        let answers: DbResult<Vec<_>> = join_all(asked).await.into_iter().collect();
        let rows = answers?.into_iter().nth(2);
        rows.ok_or_else(|| DbError::Other(super::broken("a statement has no answer")))
    }

    /// Statements one after the other without waiting in between. The first error counts: in a
    /// transaction those after it only say that it has failed.
    pub(super) async fn pipeline(&self, queries: &[Query<'_>]) -> DbResult<Vec<Vec<Row>>> {
        self.prepare(queries.iter().map(|it| it.sql)).await?;
        let asked = queries.iter().map(async |query| {
            let values = query.values();
            self.query(query.sql, &values).await
        });
        // All are begun in their order before any is waited for: that is what makes a pipeline.
        join_all(asked).await.into_iter().collect()
    }

    /// Prepares what is not prepared, so that a pipeline is not held up by it.
    async fn prepare<'s>(&self, statements: impl Iterator<Item = &'s str>) -> DbResult<()> {
        if self.access.prepared {
            for sql in statements {
                self.client.prepare_cached(sql).await.map_err(db_error)?;
            }
        }
        Ok(())
    }

    /// Any text of statements, unprepared.
    pub(super) async fn script(&self, sql: &str) -> DbResult<()> {
        self.client.batch_execute(sql).await.map_err(db_error)
    }

    /// Begins a transaction for which a script or single statements follow.
    pub(super) async fn begin(&self, begin: &'static str) -> DbResult<()> {
        self.script(begin).await?;
        if !self.access.keeps_session {
            let settings = self.access.transaction_settings();
            self.query(settings.sql, &settings.values()).await?;
        }
        Ok(())
    }

    /// Closes the connection at once: the server rolls back what it had begun.
    pub(super) fn give_up(&self) {
        self.sound.store(false, Ordering::Relaxed);
        self.carrier.abort();
    }

    pub(super) fn is_closed(&self) -> bool {
        !self.sound.load(Ordering::Relaxed) || self.client.is_closed()
    }
}

/// Makes the connections of the pool.
#[derive(Debug)]
pub(super) struct Manager {
    access: Arc<Access>,
    news: Arc<AtomicI64>,
}

impl Manager {
    pub(super) fn new(access: Arc<Access>, news: Arc<AtomicI64>) -> Manager {
        Manager { access, news }
    }

    /// A connection that counts news.
    pub(super) async fn listen(&self) -> Result<Connection> {
        let connection = self.connect().await?;
        let listen = format!("LISTEN {}", self.access.channel());
        connection.script(&listen).await.map_err(DbError::of_read)?;
        Ok(connection)
    }

    async fn connect(&self) -> Result<Connection> {
        let connected = self.access.connector.connect().await;
        let connected = connected.map_err(|error| cannot_connect(&error))?;
        let mut messages = connected.messages;
        let news = Arc::clone(&self.news);
        let carrier = tokio::spawn(async move {
            // What asked on a connection that breaks hears of it.
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(_) = message {
                    news.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let connection = Connection {
            carrier: carrier.abort_handle(),
            client: ClientWrapper::new(connected.client, carrier),
            access: Arc::clone(&self.access),
            sound: AtomicBool::new(true),
        };
        if let Some(settings) = self.access.session_settings() {
            connection
                .script(&settings)
                .await
                .map_err(DbError::of_read)?;
        }
        Ok(connection)
    }
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = StoreError;

    async fn create(&self) -> Result<Connection> {
        self.connect().await
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<StoreError> {
        match connection.is_closed() {
            true => Err(RecycleError::message("the connection is closed")),
            false => Ok(()),
        }
    }
}

fn cannot_connect(error: &ConnectError) -> StoreError {
    let error = match error {
        ConnectError::Driver(error) => error,
        other @ (ConnectError::WrongKind(_) | ConnectError::Timeout(_)) => {
            let message = format!("cannot connect to PostgreSQL: {other}");
            return StoreError::new(StoreErrorKind::Unavailable, message);
        }
    };
    let said = match describe(error) {
        said if said.contains("password missing") => "the server asks for a password and none is given; \
             write it into the address (postgresql://USER:PASSWORD@HOST/DATABASE), into PGPASSWORD or into \
             ~/.pgpass"
            .to_owned(),
        said => said,
    };
    match DbError::of(error) {
        DbError::Other(other) => StoreError::new(other.kind, format!("PostgreSQL: {said}")),
        DbError::ConnectionLost(_)
        | DbError::Conflict(_)
        | DbError::Duplicate(_)
        | DbError::InvalidValue(_) => {
            // What the driver itself refuses (no password, TLS asked for) will not pass.
            let own = error.as_db_error().is_none()
                && std::error::Error::source(error).is_none_or(|it| !it.is::<std::io::Error>());
            let handshake = said.contains("invalid peer certificate");
            let kind = if handshake || (own && !error.is_closed() && !said.contains("timed out")) {
                StoreErrorKind::Unusable
            } else {
                StoreErrorKind::Unavailable
            };
            StoreError::new(kind, format!("cannot connect to PostgreSQL: {said}"))
        }
    }
}
