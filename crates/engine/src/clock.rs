//! Clocks: the machine's, and one that jumps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stepwell_kernel::time::Time;

use crate::port::Clock;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn wait_until(&mut self, until: Time) {
        let wait = until.since(self.now());
        if wait > 0 {
            std::thread::sleep(Duration::from_millis(wait));
        }
    }
}

/// A clock that stands still and jumps when someone waits.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    now: Time,
}

impl VirtualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Time) -> VirtualClock {
        VirtualClock { now }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        self.now
    }

    fn wait_until(&mut self, until: Time) {
        self.now = self.now.max(until);
    }
}
