//! One connection to a server: making it, readying it for a task, cleaning up behind one, and
//! stopping what it does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use stepwell_pg::{CancelHandle, ConnectError, Connector, Messages};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Error};

use super::address::Address;
use crate::step_log::StepLog;

/// Sees to it that values look the same whatever the server's settings are.
const LOOKS: &str = "SELECT set_config('datestyle', 'ISO', false), \
                     set_config('bytea_output', 'hex', false), \
                     set_config('extra_float_digits', '3', false)";

/// Lets the server notice soon that we are gone, however we went; not every server can.
const NOTICES: &str = "SELECT CASE WHEN current_setting('server_version_num')::int >= 140000 \
                       THEN set_config('client_connection_check_interval', '5000', false) END";

/// How long a request to cancel may take that nobody waits for.
const CANCEL: Duration = Duration::from_secs(5);

/// An open connection. Dropping it ends everything that it started.
pub(super) struct Connection {
    pub(super) client: Client,
    cancel: CancelHandle,
    address: Address,
    log: LogSlot,
    driver: JoinHandle<()>,
}

/// The log of the task that receives the notices of the server.
type LogSlot = Arc<Mutex<Option<StepLog>>>;

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects, and fails if that takes longer than `within`.
    pub(super) async fn open(
        address: &Address,
        connector: Connector,
        within: Duration,
    ) -> Result<Connection, ConnectError> {
        let connected = connector.with_timeout(within).connect().await?;
        let log = LogSlot::default();
        Ok(Connection {
            client: connected.client,
            cancel: connected.cancel,
            address: address.clone(),
            driver: drive(connected.messages, Arc::clone(&log)),
            log,
        })
    }

    /// Readies it for a task; an error if it is broken.
    pub(super) async fn ready(&self, log: &StepLog) -> Result<(), Error> {
        self.set_log(Some(log.clone()));
        let client = &self.client;
        let (looks, notices) =
            tokio::join!(client.batch_execute(LOOKS), client.batch_execute(NOTICES));
        // A server that does not know these settings is still good enough to work with.
        let lost = |error: &Error| error.as_db_error().is_none();
        match looks.err().into_iter().chain(notices.err()).find(lost) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Takes everything back that a task left in the session.
    pub(super) async fn reset(&self) -> Result<(), Error> {
        let done = self.client.batch_execute("DISCARD ALL").await;
        self.set_log(None);
        done
    }

    pub(super) fn is_at(&self, address: &Address) -> bool {
        self.address == *address
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }

    /// Asks the server to stop what this connection does.
    pub(super) async fn cancel(&self) {
        // If the server cannot be asked, it notices when the connection is closed.
        let _ = self.cancel.cancel().await;
    }

    fn set_log(&self, log: Option<StepLog>) {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = log;
    }
}

/// Moves bytes between the socket and the client, and notices into the log.
fn drive(mut messages: Messages, log: LogSlot) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            let AsyncMessage::Notice(notice) = message else {
                continue;
            };
            let log = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(log) = log {
                log.note(&format!("{}: {}", notice.severity(), notice.message()));
            }
        }
    })
}

/// A connection that a task works with. If the task goes away, what it does on the server is
/// cancelled.
pub(super) struct Busy(Option<Connection>);

impl Busy {
    pub(super) fn new(connection: Connection) -> Busy {
        Busy(Some(connection))
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        self.0.as_ref()
    }

    /// The task is over.
    pub(super) fn done(mut self) -> Option<Connection> {
        self.0.take()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Some(connection) = self.0.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(CANCEL, connection.cancel()).await;
            });
        }
    }
}
