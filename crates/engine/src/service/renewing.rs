//! The threads that keep sessions: each calls its renewer when that is due, and nothing else.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::service_loop::ServiceLoop;
use super::{Input, Setup, Worker};
use crate::coordinator::LeaseTerm;
use crate::port::Clock;
use crate::session_renewer::{SessionRenewer, read_clock};
use crate::store::{Store, StoreError, StoreErrorKind};

/// How long a renewer sleeps at most: a machine that wakes up from its suspension goes on with the sleep that it was in.
const LONGEST_NAP: Duration = Duration::from_millis(250);

/// A session that nobody can take over is never over while its process lives. Milliseconds.
const FOR_EVER: u64 = u64::MAX / 4;

/// How long a session lives without being renewed. Where no other process may write to the store, as a lock proves, a
/// session ends with its process and at no other time: no clock can end it.
pub(super) fn session_length(store: &dyn Store, configured_ms: u64) -> u64 {
    match store.is_shared() {
        true => configured_ms,
        false => FOR_EVER,
    }
}

/// Lets the engine go by the clock of its store, if the store has one that several servers share.
pub(super) fn follow_store<W>(setup: &mut Setup<W>) -> Result<(), StoreError> {
    if setup.clock.is_virtual() || !setup.store.is_shared() {
        return Ok(());
    }
    if let Some(reference) = read_clock(&*setup.store, &*setup.clock)?
        && let Some(clock) = setup.clock.following(reference)
    {
        setup.clock = clock;
    }
    Ok(())
}

impl<W: Worker> ServiceLoop<W> {
    /// What keeps the session of this loop, if it needs one: other processes share the store, and time passes by itself.
    pub(super) fn renewer(&self) -> Option<SessionRenewer> {
        let store = self.coordinator.store();
        if !store.is_shared() || self.clock.is_virtual() {
            return None;
        }
        let term = self
            .coordinator
            .keep_session(self.clock.clone(), self.opened_at);
        let (work, shard) = (self.worker.lost_work(), self.coordinator.shard());
        let inbox = self.inbox.clone();
        let on_lost = move || {
            if let Some(work) = &work {
                work.end(&|run| shard.has(run));
            }
            // A loop that is gone needs to know nothing.
            let _ = inbox.send(Input::Look);
        };
        Some(SessionRenewer::new(
            store.clone(),
            self.clock.clone(),
            term,
            self.coordinator.session_ms(),
            Box::new(on_lost),
        ))
    }
}

/// A thread that keeps a session until this is dropped.
#[derive(Debug)]
pub(super) struct RenewerThread {
    _stop: Sender<()>,
}

impl RenewerThread {
    pub(super) fn start(
        mut renewer: SessionRenewer,
        clock: Arc<dyn Clock>,
    ) -> Result<RenewerThread, StoreError> {
        let (stop, stopped) = mpsc::channel();
        let keep = move || {
            loop {
                let next = renewer.poll();
                let nap = Duration::from_millis(next.since(clock.steady()));
                let told = stopped.recv_timeout(nap.min(LONGEST_NAP));
                if told != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("stepwell-session".into())
            .spawn(keep)
            .map_err(|error| StoreError::new(StoreErrorKind::Unusable, error))?;
        Ok(RenewerThread { _stop: stop })
    }
}

/// Ends the session of a loop that panics: nobody would renew it or look after its runs.
pub(super) struct CloseOnPanic {
    pub(super) store: Arc<dyn Store>,
    pub(super) term: Arc<LeaseTerm>,
}

impl Drop for CloseOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.term.lose();
            if let Err(error) = self.store.close_session(self.term.session()) {
                tracing::error!(%error, "the session of a loop that panicked could not be closed");
            }
        }
    }
}
