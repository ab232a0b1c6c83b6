//! Keeps the session of a server alive: renews it away from the work, and ends the work before anyone else can begin
//! it if the session cannot be renewed. A plain object: a thread of the service calls `poll`, and a simulator may.
//!
//! The bound, for a session of length L: a renewal is sent every L/3. The term of a renewal counts from before the
//! renewal is sent, by a clock that never jumps and goes on while the machine is suspended. After 4/5 L without a
//! renewal that came through, the session is given up: nothing is begun, and work in flight is ended at once. The
//! store counts L from a later instant, so 1/5 L is left until another server may begin the same work.

use std::fmt;
use std::sync::Arc;

use stepwell_kernel::codes;
use stepwell_kernel::time::Time;

use crate::clock::machine_ahead_of;
use crate::coordinator::LeaseTerm;
use crate::port::Clock;
use crate::store::{Store, StoreError};

/// How far the clocks of this machine and of the store may be apart before a server says so.
const MAX_SKEW_MS: u64 = 5_000;

/// Keeps a session alive.
pub struct SessionRenewer {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    term: Arc<LeaseTerm>,
    length_ms: u64,
    /// The clock of this machine differs from the store's, and that was said.
    told_skew: bool,
    /// Ends the work of the session and tells its server.
    on_lost: Box<dyn FnMut() + Send>,
}

impl fmt::Debug for SessionRenewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRenewer")
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}

impl SessionRenewer {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        term: Arc<LeaseTerm>,
        length_ms: u64,
        on_lost: Box<dyn FnMut() + Send>,
    ) -> SessionRenewer {
        SessionRenewer {
            store,
            clock,
            term,
            length_ms,
            told_skew: false,
            on_lost,
        }
    }

    /// Does what is due, and says when to call again at the latest, by [`Clock::steady`].
    pub fn poll(&mut self) -> Time {
        let (renew_at, until) = self.term.due();
        let now = self.clock.steady();
        if self.term.is_lost() {
            // The server opens another session; until then there is nothing to keep.
            return later(now, self.length_ms / 20);
        }
        if now >= until {
            self.lose("it could not be renewed in time");
            return later(now, self.length_ms / 20);
        }
        if now < renew_at {
            return renew_at.min(until);
        }
        // A renewal that hangs is given up by the store after a fifth of the length. One that could not end before
        // the work must end is not begun: the end of the work must not wait for it.
        if until.since(now) < self.length_ms / 5 {
            return until;
        }
        let session = self.term.session();
        let told = self.clock.now();
        match self
            .store
            .renew_session(session, told, told.plus(self.length_ms))
        {
            Ok(true) => {
                self.term.renewed(session, now);
                self.look_at_clocks();
            }
            Ok(false) => self.lose("the store has declared it dead"),
            Err(error) => {
                tracing::warn!(%error, session = session.0, "the session could not be renewed yet");
                let again = later(self.clock.steady(), self.length_ms / 20);
                self.term.try_again(again);
            }
        }
        let (renew_at, until) = self.term.due();
        renew_at.min(until)
    }

    /// The engine follows the clock of the store, so that all servers of the store have one time. A machine whose own
    /// clock differs says so.
    fn look_at_clocks(&mut self) {
        let reference = match read_clock(&*self.store, &*self.clock) {
            Ok(Some(reference)) => reference,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "the clock of the store could not be read");
                return;
            }
        };
        self.clock.follow(reference);
        let ahead = machine_ahead_of(reference);
        let differs = ahead.unsigned_abs() > MAX_SKEW_MS;
        if differs && !self.told_skew {
            warn_of_skew(ahead);
        }
        self.told_skew = differs;
    }

    fn lose(&mut self, why: &str) {
        let session = self.term.session();
        if self.term.lose_session(session) {
            tracing::warn!(
                session = session.0,
                why,
                "the session is lost; its work is ended"
            );
            (self.on_lost)();
        }
    }
}

/// What the clock of the store shows, if it has one: half of the time that the question took is added.
pub(crate) fn read_clock(store: &dyn Store, clock: &dyn Clock) -> Result<Option<Time>, StoreError> {
    let asked = clock.steady();
    let shown = store.store_clock()?;
    let took = clock.steady().since(asked);
    Ok(shown.map(|shown| shown.plus(took / 2)))
}

fn warn_of_skew(ahead_ms: i64) {
    let seconds = ahead_ms as f64 / 1000.0;
    let code = codes::CLOCK_SKEW;
    tracing::warn!(
        code,
        seconds,
        "the clock of this machine is ahead of (positive) or behind the clock of the database; runs keep to the \
         database's, and times that this machine writes elsewhere differ; synchronise the clocks"
    );
}

fn later(now: Time, millis: u64) -> Time {
    let millis = i64::try_from(millis.max(1)).unwrap_or(i64::MAX);
    Time(now.0.saturating_add(millis))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::VirtualClock;
    use crate::coordinator::{Config, Coordinator};
    use crate::port::NoCatalog;
    use crate::store::{MemoryStore, Sessions as _};

    /// A server with a session of 15 s, opened at zero.
    struct Site {
        store: Arc<MemoryStore>,
        clock: Arc<VirtualClock>,
        coordinator: Coordinator,
        renewer: SessionRenewer,
        lost: Arc<AtomicUsize>,
    }

    fn site() -> Site {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(VirtualClock::at(Time(0)));
        let config = Config::default();
        let length = config.session_ms;
        let coordinator =
            Coordinator::open(store.clone(), Box::new(NoCatalog), config, Time(0)).unwrap();
        let term = coordinator.keep_session(clock.clone(), Time(0));
        let lost = Arc::<AtomicUsize>::default();
        let count = lost.clone();
        let on_lost = Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let renewer = SessionRenewer::new(store.clone(), clock.clone(), term, length, on_lost);
        Site {
            store,
            clock,
            coordinator,
            renewer,
            lost,
        }
    }

    #[test]
    fn a_session_is_renewed_in_time_and_the_loop_need_not_tick() {
        let mut site = site();
        for second in 1..100 {
            site.clock.advance_to(Time(second * 1_000));
            site.renewer.poll();
            assert!(site.coordinator.term().may_begin(), "second {second}");
        }
        assert_eq!(site.store.dead_sessions(Time(99_000)).unwrap(), []);
        let session = site.coordinator.session();
        let lives = site
            .store
            .renew_session(session, Time(99_000), Time(99_001));
        assert!(lives.unwrap());
        assert!(
            site.coordinator.next_tick() <= Time(0),
            "only the poll is due"
        );
    }

    #[test]
    fn a_server_that_slept_too_long_begins_nothing_and_ends_its_work_once() {
        let mut site = site();
        site.clock.advance_to(Time(5_000));
        site.renewer.poll();
        // Renewed at 5 s: its work must end at 5 s + 12 s, three seconds before others may begin it.
        site.clock.advance_to(Time(16_999));
        assert!(site.coordinator.term().may_begin());
        site.clock.advance_to(Time(17_000));
        site.renewer.poll();
        site.renewer.poll();
        assert_eq!(site.lost.load(Ordering::SeqCst), 1);
        assert!(!site.coordinator.term().may_begin());
        assert_eq!(site.store.dead_sessions(Time(19_999)).unwrap(), []);
        // The next session is kept like the first.
        let first = site.coordinator.session();
        site.coordinator.tick(Time(17_000)).unwrap();
        assert_ne!(site.coordinator.session(), first);
        assert!(site.coordinator.term().may_begin());
        site.clock.advance_to(Time(23_000));
        site.renewer.poll();
        site.clock.advance_to(Time(34_000));
        assert!(site.coordinator.term().may_begin(), "renewed at 23 s");
    }

    #[test]
    fn a_renewal_that_would_end_too_late_is_not_begun() {
        let mut site = site();
        site.clock.advance_to(Time(10_000));
        let next = site.renewer.poll();
        assert_eq!(
            next,
            Time(12_000),
            "the end of the work must not wait for it"
        );
        assert_eq!(site.lost.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_session_that_the_store_has_declared_dead_is_lost_at_once() {
        let mut site = site();
        let session = site.coordinator.session();
        site.store.close_session(session).unwrap();
        site.clock.advance_to(Time(5_000));
        site.renewer.poll();
        assert_eq!(site.lost.load(Ordering::SeqCst), 1);
        assert!(!site.coordinator.term().may_begin());
    }
}
