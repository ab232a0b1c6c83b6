//! Connections that wait for the next task. Few, and not for long: a server counts them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepwell_pg::ConnectError;
use tokio::time::Instant;

use super::PostgresOptions;
use super::address::Address;
use super::connection::Connection;
use crate::hosts::DeniedHost;
use crate::tool::TaskContext;

/// How many wait for one address.
const IDLE: usize = 8;

/// How long one waits.
const KEPT: Duration = Duration::from_secs(60);

/// How soon a connection that waited must answer, or it is taken for broken.
const PROMPT: Duration = Duration::from_secs(2);

/// Why there is no connection.
pub(super) enum Unconnected {
    Connecting(ConnectError),
    /// No host of the address may be connected to.
    Denied(DeniedHost),
    /// No host of the address has an address.
    Unknown(String),
    Slow(Duration),
}

impl From<ConnectError> for Unconnected {
    fn from(error: ConnectError) -> Unconnected {
        Unconnected::Connecting(error)
    }
}

#[derive(Clone, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Idle>>>);

struct Idle {
    connection: Connection,
    until: Instant,
}

impl Pool {
    /// A connection that works: one that waited, or a new one.
    pub(super) async fn take(
        &self,
        address: &Address,
        options: &PostgresOptions,
        cx: &TaskContext,
    ) -> Result<Connection, Unconnected> {
        let within = options.connect_timeout.min(cx.left());
        while let Some(connection) = self.waiting(address) {
            let ready = tokio::time::timeout(PROMPT, connection.ready(&cx.log));
            if let Ok(Ok(())) = ready.await {
                return Ok(connection);
            }
        }
        let made = tokio::time::timeout(within, async {
            let connector = address.connector(&options.hosts).await?;
            let connection = Connection::open(address, connector, within).await?;
            let ready = connection.ready(&cx.log).await;
            ready.map_err(ConnectError::from)?;
            Ok::<_, Unconnected>(connection)
        });
        match made.await {
            Ok(made) => made,
            Err(_) => Err(Unconnected::Slow(within)),
        }
    }

    /// Keeps a connection whose session is clean.
    pub(super) fn give(&self, connection: Connection, address: &Address) {
        let until = Instant::now() + KEPT;
        let mut idle = self.idle();
        let others = idle.iter().filter(|it| it.connection.is_at(address));
        if connection.is_closed() || others.count() >= IDLE {
            return;
        }
        idle.push(Idle { connection, until });
        drop(idle);
        let pool = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(pool) = pool.upgrade() {
                drop(Pool(pool).idle());
            }
        });
    }

    fn waiting(&self, address: &Address) -> Option<Connection> {
        let mut idle = self.idle();
        // The one that worked last is the likeliest to work.
        let at = idle.iter().rposition(|it| it.connection.is_at(address))?;
        Some(idle.remove(at).connection)
    }

    /// Those that still wait.
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        idle.retain(|it| it.until > now && !it.connection.is_closed());
        idle
    }
}
