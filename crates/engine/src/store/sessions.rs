//! Sessions: which server owns which runs, for how long.
//!
//! A run's head names its owner's session. While the session lives nobody else touches the run; when
//! the session is dead any server may take the run over. `Guard::Session` and `Guard::Dead` of an
//! append are checked against these rows in the append's own transaction.

use stepwell_kernel::time::Time;

use super::{Result, RunNo, SessionNo};

/// Opens, renews and ends sessions.
pub trait Sessions {
    /// Opens a session that lives until `until` unless it is renewed.
    ///
    /// Durable on return: the session.
    ///
    /// Crash after the return: the session owns no run and dies when its time is over.
    ///
    /// Twice: two sessions. Numbers are never used again.
    fn open_session(&self, name: &str, now: Time, until: Time) -> Result<SessionNo>;

    /// Renews a session that has not ended. Returns whether the session lives; a server whose session
    /// is dead must give up its runs. The call waits for no other call of this process, and returns, with an error if
    /// need be, within a fifth of the time from `now` to `until`, or a second if that is longer.
    ///
    /// Durable on return: the new end, if the session lives.
    ///
    /// Crash before the return: the session lives until its old or its new end.
    ///
    /// Twice: the later call counts.
    fn renew_session(&self, session: SessionNo, now: Time, until: Time) -> Result<bool>;

    /// The clock by which the store decides when sessions end, if the store has one of its own; else the times of the
    /// calls count. Returns soon, as a renewal does.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the time as it is then.
    fn store_clock(&self) -> Result<Option<Time>> {
        Ok(None)
    }

    /// Ends a session; it can never be renewed.
    ///
    /// Durable on return: the end. Other servers may take over its runs at once.
    ///
    /// Crash before the return: the session dies when its time is over.
    ///
    /// Twice: the second call changes nothing.
    fn close_session(&self, session: SessionNo) -> Result<()>;

    /// Marks sessions whose time is over as dead, permanently, and returns the dead sessions that still own
    /// runs. Dead sessions without runs are deleted.
    ///
    /// Durable on return: the marks. From then on no append that is guarded by such a session succeeds.
    ///
    /// Crash after the return: the next caller gets the sessions again, until their runs are taken over.
    ///
    /// Twice: the same sessions, as long as they own runs.
    fn dead_sessions(&self, now: Time) -> Result<Vec<SessionNo>>;

    /// Runs of a session, at most `limit`.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs as they are then.
    fn runs_of(&self, session: SessionNo, limit: usize) -> Result<Vec<RunNo>>;
}
