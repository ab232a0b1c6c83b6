//! The store was away: workers in other processes could not renew their leases meanwhile, and work goes on. When the store
//! answers again, they get the time to do so before any lease is ended: work that is being done, or whose result waits for the
//! store, must not be done again.

use stepwell_kernel::time::Time;

/// A store that did not answer for longer than this was away, in milliseconds. Workers renew their leases at least three times
/// before they end, so a shorter time ends none.
const AWAY_MS: u64 = 3_000;
/// How long workers have then to renew their leases, in milliseconds.
const GRACE_MS: u64 = 10_000;

/// What is known of the last time that the store was away.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Since when the store has not answered when it was asked.
    unanswered_since: Option<Time>,
    /// No lease is ended before this time.
    grace_until: Option<Time>,
}

impl Outage {
    /// What a service knows when it begins. `driven`: an engine outside may keep results for the store, and brings them first.
    pub(super) fn at_start(driven: bool, now: Time) -> Outage {
        Outage {
            grace_until: driven.then(|| now.plus(GRACE_MS)),
            ..Outage::default()
        }
    }

    /// The store was asked, and did not answer.
    pub(super) fn unanswered(&mut self, now: Time) {
        let since = *self.unanswered_since.get_or_insert(now);
        self.took(now.since(since), now);
    }

    /// The store was asked, and has answered.
    pub(super) fn answered(&mut self, now: Time) {
        if let Some(since) = self.unanswered_since.take() {
            self.took(now.since(since), now);
        }
    }

    /// A commit took so long until now, whether it was written or not.
    pub(super) fn took(&mut self, took_ms: u64, now: Time) {
        if took_ms > AWAY_MS {
            self.grace_until = Some(now.plus(GRACE_MS));
        }
    }

    /// Whether leases may be ended; `oldest` is when the oldest commit was sent that is not answered.
    pub(super) fn may_end_leases(&self, oldest: Option<Time>, now: Time) -> bool {
        let is_waiting = oldest.is_some_and(|sent| now.since(sent) > AWAY_MS);
        !is_waiting && self.grace_until.is_none_or(|until| now > until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_outage_leases_are_not_ended_for_a_while() {
        let mut outage = Outage::default();
        assert!(outage.may_end_leases(None, Time(0)));
        outage.unanswered(Time(1_000));
        outage.unanswered(Time(20_000));
        assert!(!outage.may_end_leases(None, Time(20_001)));
        outage.answered(Time(21_000));
        assert!(!outage.may_end_leases(None, Time(31_000)));
        assert!(outage.may_end_leases(None, Time(31_001)));
    }

    #[test]
    fn a_store_that_fails_now_and_then_does_not_keep_leases_alive() {
        let mut outage = Outage::default();
        for second in 0..60 {
            outage.unanswered(Time(second * 1_000));
            outage.answered(Time(second * 1_000 + 500));
            assert!(outage.may_end_leases(None, Time(second * 1_000 + 600)));
        }
    }

    #[test]
    fn a_commit_that_hangs_keeps_leases_alive_and_so_does_a_slow_one() {
        let mut outage = Outage::default();
        assert!(outage.may_end_leases(Some(Time(0)), Time(3_000)));
        assert!(!outage.may_end_leases(Some(Time(0)), Time(3_001)));
        outage.took(3_001, Time(3_001));
        assert!(!outage.may_end_leases(None, Time(13_001)));
        assert!(outage.may_end_leases(None, Time(13_002)));
    }
}
