//! Clocks: the machine's, and one that moves only when it is told to.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

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
}

/// A clock that stands still until it is moved. Many may read it while one moves it.
#[derive(Debug)]
pub struct VirtualClock {
    now: AtomicI64,
}

impl VirtualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Time) -> VirtualClock {
        VirtualClock {
            now: AtomicI64::new(now.0),
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn advance_to(&self, time: Time) {
        self.now.fetch_max(time.0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_is_never_moved_back() {
        let clock = VirtualClock::at(Time(10));
        clock.advance_to(Time(30));
        clock.advance_to(Time(20));
        assert_eq!(clock.now(), Time(30));
    }
}
