//! The clock of a run: the machine's, or a virtual one that always starts at the same instant.

use std::sync::Arc;

use stepwell_engine::clock::{SystemClock, VirtualClock};
use stepwell_engine::port::Clock;
use stepwell_kernel::time::Time;

/// 2026-01-01T00:00:00Z: virtual time starts here, so that the same run prints the same.
const START: Time = Time(1_767_225_600_000);

pub(super) fn clock(is_virtual: bool) -> Arc<dyn Clock> {
    match is_virtual {
        true => Arc::new(VirtualClock::at(START)),
        false => Arc::new(SystemClock),
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
