//! The session of this server: while the session lives, the runs that name it are this server's, and so
//! is the work that this process does for them. Opening another session happens here, and renewing where no renewer
//! does it (`lease_term`, `session_renewer`); what follows for the runs is in `takeover`.

use std::sync::Arc;

use stepwell_kernel::time::Time;

use super::lease_term::{LeaseTerm, NEVER};
use crate::port::Clock;
use crate::store::{Head, SessionNo, Store, StoreError};

/// How often the end of a session is sent to a store that does not answer.
const CLOSING_TRIES: u32 = 3;

/// How much longer than usual a session lives that replaces a lost one: much may have to be decided
/// again before anything can be sent.
const REOPENED: u64 = 10;

/// The session of this server.
#[derive(Debug)]
pub(super) struct SessionLease {
    session: SessionNo,
    /// The name that claims of this session are made under.
    worker: String,
    /// When the session is renewed here, unless a renewer does it.
    renew_at: Time,
    term: Arc<LeaseTerm>,
    /// The sessions that this process has lost: their work was stopped here, and is not to blame.
    former: Vec<SessionNo>,
}

/// The name that a session's own work is leased to. No worker outside may have such a name.
#[must_use]
pub fn worker_of(session: SessionNo) -> String {
    format!("@{}", session.0)
}

impl SessionLease {
    /// Opens a session that lives for `length_ms` unless it is renewed.
    pub(super) fn open(
        store: &dyn Store,
        name: &str,
        length_ms: u64,
        now: Time,
    ) -> Result<SessionLease, StoreError> {
        let session = store.open_session(name, now, now.plus(length_ms))?;
        Ok(SessionLease {
            session,
            worker: worker_of(session),
            renew_at: now,
            term: Arc::new(LeaseTerm::new(session)),
            former: Vec::new(),
        })
    }

    pub(super) fn session(&self) -> SessionNo {
        self.session
    }

    /// Whether this process has lost this session.
    pub(super) fn had(&self, session: SessionNo) -> bool {
        self.former.contains(&session)
    }

    pub(super) fn worker(&self) -> &str {
        &self.worker
    }

    /// Whether the head names this session.
    pub(super) fn owns(&self, head: &Head) -> bool {
        head.session == Some(self.session)
    }

    /// When the session must be renewed here.
    pub(super) fn renew_at(&self) -> Time {
        match self.term.is_kept() {
            true => NEVER,
            false => self.renew_at,
        }
    }

    /// From now on a renewer renews the session, which was opened after `sent`.
    pub(super) fn keep(&self, clock: Arc<dyn Clock>, length_ms: u64, sent: Time) -> Arc<LeaseTerm> {
        self.term.keep(clock, length_ms, sent);
        self.term.clone()
    }

    /// What the renewer of the session knows too.
    pub(super) fn term(&self) -> &Arc<LeaseTerm> {
        &self.term
    }

    /// Whether the session is known to be dead. Nothing can be committed until another one is open.
    pub(super) fn is_lost(&self) -> bool {
        self.term.is_lost()
    }

    /// The store has said that the session is dead.
    pub(super) fn lose(&mut self) {
        self.term.lose();
    }

    /// Renews the session when that is due.
    pub(super) fn renew(
        &mut self,
        store: &dyn Store,
        length_ms: u64,
        now: Time,
    ) -> Result<(), StoreError> {
        if now < self.renew_at() || self.is_lost() {
            return Ok(());
        }
        match store.renew_session(self.session, now, now.plus(length_ms))? {
            true => self.renew_at = now.plus(length_ms / 3),
            false => self.lose(),
        }
        Ok(())
    }

    /// Opens another session in place of the one that was lost. The store may not know yet that the old one was given
    /// up; it is told, so that nobody waits for the end of its time.
    pub(super) fn reopen(
        &mut self,
        store: &dyn Store,
        name: &str,
        length_ms: u64,
        now: Time,
    ) -> Result<(), StoreError> {
        // With a renewer the session is renewed whatever there is to do.
        let length_ms = match self.term.is_kept() {
            true => length_ms,
            false => length_ms.saturating_mul(REOPENED),
        };
        if let Err(error) = store.close_session(self.session) {
            // A store that cannot be used is told when the next session cannot be opened.
            tracing::debug!(%error, lost = self.session.0, "a session that was given up ends by its time");
        }
        let sent = self.term.steady();
        let session = store.open_session(name, now, now.plus(length_ms))?;
        self.former.push(self.session);
        tracing::warn!(
            lost = self.session.0,
            opened = session.0,
            "the session was lost; another one is opened"
        );
        self.term.replace(session, sent);
        self.session = session;
        self.worker = worker_of(session);
        self.renew_at = now;
        Ok(())
    }

    /// Ends the session, so that others may take its runs over at once. A connection that broke since it was last used
    /// is known by its first failure only, so that more than one is tried.
    pub(super) fn close(&self, store: &dyn Store) -> Result<(), StoreError> {
        self.term.lose();
        let mut closed = store.close_session(self.session);
        for _ in 1..CLOSING_TRIES {
            match &closed {
                Err(error) if error.kind.may_pass() => closed = store.close_session(self.session),
                _ => break,
            }
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn a_session_is_renewed_when_a_third_of_it_is_over() {
        let store = MemoryStore::default();
        let mut lease = SessionLease::open(&store, "a", 900, Time(0)).unwrap();
        lease.renew(&store, 900, Time(0)).unwrap();
        assert_eq!(lease.renew_at(), Time(300));
        lease.renew(&store, 900, Time(299)).unwrap();
        assert_eq!(lease.renew_at(), Time(300));
        lease.renew(&store, 900, Time(300)).unwrap();
        assert_eq!(lease.renew_at(), Time(600));
        assert!(!lease.is_lost());
    }

    #[test]
    fn a_session_that_ended_is_lost_and_replaced() {
        let store = MemoryStore::default();
        let mut lease = SessionLease::open(&store, "a", 900, Time(0)).unwrap();
        let (first, worker) = (lease.session(), lease.worker().to_owned());
        lease.close(&store).unwrap();
        lease.renew(&store, 900, Time(10)).unwrap();
        assert!(lease.is_lost());
        lease.reopen(&store, "a", 900, Time(20)).unwrap();
        assert!(!lease.is_lost());
        assert_ne!(lease.session(), first);
        assert!(lease.had(first) && !lease.had(lease.session()));
        assert_ne!(lease.worker(), worker);
        let head = Head {
            session: Some(first),
            ..Head::default()
        };
        assert!(!lease.owns(&head));
    }
}
