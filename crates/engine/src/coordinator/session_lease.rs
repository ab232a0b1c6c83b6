//! The session of this server: while the session lives, the runs that name it are this server's, and so
//! is the work that this process does for them. Renewing and opening another session happen here; what
//! follows for the runs is in `takeover`.

use stepwell_kernel::time::Time;

use crate::store::{Head, SessionNo, Store, StoreError};

/// How much longer than usual a session lives that replaces a lost one: much may have to be decided
/// again before anything can be sent.
const REOPENED: u64 = 10;

/// The session of this server.
#[derive(Debug)]
pub(super) struct SessionLease {
    session: SessionNo,
    /// The name that claims of this session are made under.
    worker: String,
    renew_at: Time,
    lost: bool,
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
            lost: false,
        })
    }

    pub(super) fn session(&self) -> SessionNo {
        self.session
    }

    pub(super) fn worker(&self) -> &str {
        &self.worker
    }

    /// Whether the head names this session.
    pub(super) fn owns(&self, head: &Head) -> bool {
        head.session == Some(self.session)
    }

    pub(super) fn renew_at(&self) -> Time {
        self.renew_at
    }

    /// Whether the session is known to be dead. Nothing can be committed until another one is open.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// The store has said that the session is dead.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// Renews the session when that is due.
    pub(super) fn renew(
        &mut self,
        store: &dyn Store,
        length_ms: u64,
        now: Time,
    ) -> Result<(), StoreError> {
        if now < self.renew_at || self.lost {
            return Ok(());
        }
        match store.renew_session(self.session, now, now.plus(length_ms))? {
            true => self.renew_at = now.plus(length_ms / 3),
            false => self.lost = true,
        }
        Ok(())
    }

    /// Opens another session in place of the one that was lost.
    pub(super) fn reopen(
        &mut self,
        store: &dyn Store,
        name: &str,
        length_ms: u64,
        now: Time,
    ) -> Result<(), StoreError> {
        let opened = SessionLease::open(store, name, length_ms.saturating_mul(REOPENED), now)?;
        tracing::warn!(
            lost = self.session.0,
            opened = opened.session.0,
            "the session was lost; another one is opened"
        );
        *self = opened;
        Ok(())
    }

    /// Ends the session, so that others may take its runs over at once.
    pub(super) fn close(&self, store: &dyn Store) -> Result<(), StoreError> {
        store.close_session(self.session)
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
        assert_ne!(lease.worker(), worker);
        let head = Head {
            session: Some(first),
            ..Head::default()
        };
        assert!(!lease.owns(&head));
    }
}
