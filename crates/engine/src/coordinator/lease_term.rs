//! The term of a session: what the server that has the session and the renewer that renews it both know. The renewer
//! renews on a thread of its own, so that no work, however long, makes a healthy server lose its session.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepwell_kernel::time::Time;

use crate::port::Clock;
use crate::store::SessionNo;

/// The latest time there is.
pub(super) const NEVER: Time = Time(i64::MAX);

/// The term of a session.
#[derive(Debug)]
pub(crate) struct LeaseTerm {
    session: AtomicI64,
    /// The session is dead, given up or closed. Never alive again: another session takes its place.
    lost: AtomicBool,
    kept: Mutex<Option<KeptTerm>>,
}

/// What a renewer knows of a term, by a clock that never jumps ([`Clock::steady`]).
#[derive(Debug)]
struct KeptTerm {
    clock: Arc<dyn Clock>,
    length_ms: u64,
    renew_at: Time,
    /// From then on nothing is begun and all work has been told to end.
    until: Time,
}

impl KeptTerm {
    /// A renewal was sent at `sent`, and the store took it: it counts from a later instant.
    fn renewed(&mut self, sent: Time) {
        self.renew_at = Time(sent.0.saturating_add(millis(self.length_ms / 3)));
        self.until = Time(sent.0.saturating_add(millis(usable(self.length_ms))));
    }
}

/// How much of a session's length its server uses. The rest is for ending work before another server may begin it.
fn usable(length_ms: u64) -> u64 {
    length_ms - length_ms / 5
}

fn millis(length: u64) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

impl LeaseTerm {
    pub(super) fn new(session: SessionNo) -> LeaseTerm {
        LeaseTerm {
            session: AtomicI64::new(session.0),
            lost: AtomicBool::new(false),
            kept: Mutex::new(None),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<KeptTerm>> {
        // Plain values: a panic elsewhere leaves them whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self) -> SessionNo {
        SessionNo(self.session.load(Ordering::SeqCst))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Gives the session up, for good.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Gives the session up unless another one has taken its place. Says whether it was alive until now.
    pub(crate) fn lose_session(&self, session: SessionNo) -> bool {
        let _kept = self.kept();
        self.session() == session && !self.lost.swap(true, Ordering::SeqCst)
    }

    /// From now on a renewer renews the session, which was opened after `sent`.
    pub(super) fn keep(&self, clock: Arc<dyn Clock>, length_ms: u64, sent: Time) {
        let mut term = KeptTerm {
            clock,
            length_ms,
            renew_at: NEVER,
            until: NEVER,
        };
        term.renewed(sent);
        *self.kept() = Some(term);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.kept().is_some()
    }

    /// The present time, by the clock of the renewer.
    pub(super) fn steady(&self) -> Option<Time> {
        self.kept().as_ref().map(|it| it.clock.steady())
    }

    /// Whether work may begin: the session is not lost, and the time of its last renewal is not over.
    pub(crate) fn may_begin(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        let kept = self.kept();
        let over = kept
            .as_ref()
            .is_some_and(|it| it.clock.steady() >= it.until);
        if over {
            self.lose();
        }
        !over
    }

    /// When the session is to be renewed, and until when work may go on without that.
    pub(crate) fn due(&self) -> (Time, Time) {
        let kept = self.kept();
        let times = kept.as_ref().map(|it| (it.renew_at, it.until));
        times.unwrap_or((NEVER, NEVER))
    }

    /// A renewal of `session` that was sent at `sent` has come through.
    pub(crate) fn renewed(&self, session: SessionNo, sent: Time) {
        let mut kept = self.kept();
        if self.session() == session
            && let Some(term) = &mut *kept
        {
            term.renewed(sent);
        }
    }

    /// A renewal could not be sent: the next one is tried at `at`.
    pub(crate) fn try_again(&self, at: Time) {
        if let Some(term) = &mut *self.kept() {
            term.renew_at = at;
        }
    }

    /// Another session takes the place of the one that was lost; it was opened after `sent`.
    pub(super) fn replace(&self, session: SessionNo, sent: Option<Time>) {
        let mut kept = self.kept();
        if let Some((term, sent)) = kept.as_mut().zip(sent) {
            term.renewed(sent);
        }
        self.session.store(session.0, Ordering::SeqCst);
        self.lost.store(false, Ordering::SeqCst);
    }
}
