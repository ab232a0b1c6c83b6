//! The part of an engine outside that is in this process: a thread with a runtime of its own, which ends with its value.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stepwell_engine::store::RunNo;
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::codes::{ENGINE_ADDRESS, ENGINE_DENIED, ENGINE_TLS, ENGINE_UNREACHABLE};
use crate::driver::Driver;

/// Why an engine outside cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{ENGINE_ADDRESS}: {0}")]
    Address(String),
    #[error("{ENGINE_UNREACHABLE}: {0}")]
    Unreachable(String),
    #[error("{ENGINE_TLS}: {0}")]
    Tls(String),
    #[error("{ENGINE_DENIED}: {0}")]
    Denied(String),
}

impl HostError {
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            HostError::Address(_) => ENGINE_ADDRESS,
            HostError::Unreachable(_) => ENGINE_UNREACHABLE,
            HostError::Tls(_) => ENGINE_TLS,
            HostError::Denied(_) => ENGINE_DENIED,
        }
    }
}

/// Whether an engine outside answers: its host says so, for those who show it.
#[derive(Clone, Debug, Default)]
pub struct HostHealth(Arc<Mutex<Option<String>>>);

impl HostHealth {
    /// The last call of the engine was answered.
    pub fn answers(&self) {
        if self.set(None).is_some() {
            tracing::warn!("the engine answers again; its runs go on");
        }
    }

    /// The last call of the engine was not answered, for this reason.
    pub fn fails(&self, why: String) {
        if self.set(Some(why.clone())).is_none() {
            tracing::warn!(
                "{ENGINE_UNREACHABLE}: the engine does not answer: {why}; its runs wait until it does"
            );
        }
    }

    /// Keeps how the engine is, and gives how it was.
    fn set(&self, fault: Option<String>) -> Option<String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *kept, fault)
    }

    /// Why the engine does not answer; none if it does.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let fault = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fault.clone()
    }
}

/// What every host is made of.
#[derive(Debug)]
pub struct HostParts {
    pub driver: Arc<Driver>,
    /// The numbers of runs that have changed.
    pub changes: UnboundedReceiver<RunNo>,
    /// What belongs to the store: what the ids at the engine begin with, and what the queue of this store is named after.
    pub place: String,
    /// Attempts at a time.
    pub parallel: usize,
    /// What this process is called.
    pub identity: String,
    /// How long attempts in flight may take once the host stops; then they are told to stop.
    pub grace: Duration,
    pub health: HostHealth,
}

/// Says once whether the engine can be used.
pub type Ready = Sender<Result<(), HostError>>;
/// Ends when the host is to stop.
pub type Stopped = oneshot::Receiver<()>;

/// A running thread; dropped, it stops and is waited for.
#[derive(Debug)]
pub struct HostThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HostThread {
    /// Starts a thread, and waits until what it serves says that it is ready.
    pub fn start<F: Future<Output = ()>>(
        name: &'static str,
        serve: impl FnOnce(Ready, Stopped) -> F + Send + 'static,
    ) -> Result<HostThread, HostError> {
        let unreachable = |error: std::io::Error| HostError::Unreachable(error.to_string());
        let runtime = Builder::new_multi_thread()
            .thread_name(name)
            .enable_all()
            .build();
        let runtime = runtime.map_err(unreachable)?;
        let (ready, is_ready) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                runtime.block_on(serve(ready, stopped));
                // Blocking calls of a store that does not answer must not hold up the end.
                runtime.shutdown_background();
            });
        let host = HostThread {
            stop: Some(stop),
            thread: Some(thread.map_err(unreachable)?),
        };
        match is_ready.recv() {
            Ok(Ok(())) => Ok(host),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(HostError::Unreachable(
                "the worker ended at its start".to_owned(),
            )),
        }
    }
}

impl Drop for HostThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
