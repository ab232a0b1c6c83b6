//! Slots: the right of a run to run where there are limits, and the flag that says that queued runs must
//! be looked at. The rows of slots are changed by the commit that starts or ends a run; here only the
//! changes are put into its draft.

use std::collections::BTreeSet;

use stepwell_kernel::command::Command;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

use super::HotRun;
use crate::error::Error;
use crate::limits::{Limits, WhenFull};
use crate::store::{RunNo, Store};

/// Whether queued runs are to be looked at.
#[derive(Debug, Default)]
pub(super) struct Slots {
    look: bool,
    /// Queued runs of other shards, whose shard was told that there is a slot.
    told: BTreeSet<RunNo>,
    /// Since when a slot is free that runs of other servers, which stand before, may take.
    free_since: Option<Time>,
}

impl Slots {
    /// A slot may be free, or a run may have joined the queue.
    pub(super) fn look(&mut self) {
        self.look = true;
    }

    pub(super) fn must_look(&self) -> bool {
        self.look
    }

    /// Whether the shard of a queued run is to be told that there is a slot; true once until a slot is freed, or
    /// two shards would tell each other until the slot is taken.
    pub(super) fn tell(&mut self, run: RunNo) -> bool {
        self.told.insert(run)
    }

    /// A slot was freed, or may have been.
    pub(super) fn freed(&mut self) {
        self.told.clear();
        self.look();
    }

    /// Whether those who stand before in the queue have left a free slot for so long that nobody seems to work on them.
    pub(super) fn is_left(&mut self, now: Time, patience_ms: u64) -> bool {
        let since = *self.free_since.get_or_insert(now);
        now.since(since) >= patience_ms
    }

    /// No slot is free.
    pub(super) fn none_free(&mut self) {
        self.free_since = None;
    }

    /// Whether queued runs are to be looked at now; asked for once.
    pub(super) fn take_look(&mut self) -> bool {
        std::mem::take(&mut self.look)
    }

    /// A slot that a run needs and that seems to be taken; the commit has the last word.
    pub(super) fn full(
        limits: &Limits,
        store: &dyn Store,
        plan: &Plan,
        state: &State,
    ) -> Result<Option<String>, Error> {
        for (key, limit) in limits.slots(plan, state) {
            if store.slots_taken(&key)? >= limit {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Takes the slots that a run needs, in the commit that starts it.
    pub(super) fn acquire(limits: &Limits, hot: &mut HotRun) {
        let state = hot.state();
        let started = !matches!(state.phase(), Phase::Created | Phase::Queued);
        if limits.are_none() || !started || state.phase().is_ended() {
            return;
        }
        let slots = limits.slots(hot.plan(), state);
        if !slots.is_empty() {
            hot.draft().take_slots(slots);
        }
    }

    /// The command that creates a run for which no slot is free: refused, or changed so that the run
    /// waits, as the limits say.
    pub(super) fn when_full(
        limits: &Limits,
        key: String,
        create: &mut Command,
        now: Time,
    ) -> Result<(), Error> {
        match (limits.when_full, create) {
            (WhenFull::Reject { retry_after_ms }, _) => Err(Error::Busy {
                key,
                retry_after_ms,
            }),
            (WhenFull::Delay { by_ms }, Command::CreateRun { start_after, .. }) => {
                let later = now.plus(by_ms);
                *start_after = Some(start_after.unwrap_or(later).max(later));
                Ok(())
            }
            // The run waits in the queue.
            (WhenFull::Delay { .. } | WhenFull::Queue, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::StartRequest;

    fn when_full(when_full: WhenFull, start_after: Option<Time>) -> Result<Option<Time>, Error> {
        let limits = Limits {
            when_full,
            ..Limits::default()
        };
        let mut create = StartRequest {
            start_after,
            ..StartRequest::default()
        }
        .into_command();
        Slots::when_full(&limits, "all".into(), &mut create, Time(100))?;
        match create {
            Command::CreateRun { start_after, .. } => Ok(start_after),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_too_many_is_refused_delayed_or_queued() {
        let reject = when_full(WhenFull::Reject { retry_after_ms: 7 }, None);
        assert!(matches!(
            reject,
            Err(Error::Busy {
                retry_after_ms: 7,
                ..
            })
        ));
        let delay = WhenFull::Delay { by_ms: 50 };
        assert_eq!(when_full(delay, None), Ok(Some(Time(150))));
        assert_eq!(when_full(delay, Some(Time(400))), Ok(Some(Time(400))));
        assert_eq!(when_full(WhenFull::Queue, None), Ok(None));
    }

    #[test]
    fn a_slot_that_nobody_before_takes_is_left() {
        let mut slots = Slots::default();
        assert!(!slots.is_left(Time(100), 50));
        assert!(!slots.is_left(Time(149), 50));
        slots.none_free();
        assert!(!slots.is_left(Time(150), 50), "it was taken meanwhile");
        assert!(slots.is_left(Time(200), 50));
    }

    #[test]
    fn the_queue_is_looked_at_once_for_each_time_asked() {
        let mut slots = Slots::default();
        slots.look();
        assert!(slots.must_look());
        assert!(slots.take_look());
        assert!(!slots.take_look());
    }
}
