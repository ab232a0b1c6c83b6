//! The run's clock: the machine's, or one that jumps and always starts at the same instant.

use stepwell_engine::clock::{SystemClock, VirtualClock};
use stepwell_engine::port::Clock;
use stepwell_kernel::time::Time;

/// 2026-01-01T00:00:00Z: virtual time starts here, so that the same run prints the same.
const START: Time = Time(1_767_225_600_000);

/// The machine's clock, or one that jumps.
#[derive(Debug)]
pub(super) enum RunClock {
    Real(SystemClock),
    Virtual(VirtualClock),
}

impl RunClock {
    pub(super) fn new(is_virtual: bool) -> RunClock {
        if is_virtual {
            RunClock::Virtual(VirtualClock::at(START))
        } else {
            RunClock::Real(SystemClock)
        }
    }
}

impl Clock for RunClock {
    fn now(&self) -> Time {
        match self {
            RunClock::Real(clock) => clock.now(),
            RunClock::Virtual(clock) => clock.now(),
        }
    }

    fn wait_until(&mut self, until: Time) {
        match self {
            RunClock::Real(clock) => clock.wait_until(until),
            RunClock::Virtual(clock) => clock.wait_until(until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_starts_where_it_says() {
        assert_eq!(START.to_rfc3339(), "2026-01-01T00:00:00.000Z");
    }
}
