//! How long to wait after a failure: exponential, with full jitter, from a seeded generator.

use std::time::Duration;

/// Computes waits that grow with the number of failures.
#[derive(Clone, Debug)]
pub(super) struct RetryDelay {
    base_ms: u64,
    max_ms: u64,
    chance: u64,
}

impl RetryDelay {
    /// `who` is part of the seed, so that servers with the same configuration do not retry at the same time.
    pub(super) fn new(base: Duration, max: Duration, seed: u64, who: &[&str]) -> RetryDelay {
        // FNV-1a: any spread will do.
        let mut chance = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
        for byte in who.iter().flat_map(|name| name.bytes().chain([0])) {
            chance = (chance ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let millis = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        RetryDelay {
            base_ms: millis(base).max(1),
            max_ms: millis(max).max(1),
            chance,
        }
    }

    /// The wait after this many failures in a row: anything from one millisecond to the base doubled
    /// with each.
    pub(super) fn after(&mut self, failures: u32) -> u64 {
        let doubled = 1_u64.checked_shl(failures.saturating_sub(1));
        let most = doubled.unwrap_or(u64::MAX).saturating_mul(self.base_ms);
        1 + self.next() % most.min(self.max_ms)
    }

    /// The next pseudo-random number (SplitMix64).
    fn next(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(seed: u64, who: &str) -> RetryDelay {
        let (base, max) = (Duration::from_secs(1), Duration::from_secs(60));
        RetryDelay::new(base, max, seed, &[who])
    }

    #[test]
    fn waits_grow_to_a_limit_and_are_spread_out() {
        let mut it = backoff(1, "a");
        for (failures, most) in [
            (1, 1_000),
            (2, 2_000),
            (5, 16_000),
            (7, 60_000),
            (900, 60_000),
        ] {
            let waits: Vec<u64> = (0..1_000).map(|_| it.after(failures)).collect();
            assert!(waits.iter().all(|wait| (1..=most).contains(wait)));
            let mean = waits.iter().sum::<u64>() / 1_000;
            assert!((most * 4 / 10..most * 6 / 10).contains(&mean), "{mean}");
        }
    }

    #[test]
    fn the_same_seed_and_name_wait_the_same() {
        let waits = |mut it: RetryDelay| -> Vec<u64> { (1..9).map(|n| it.after(n)).collect() };
        assert_eq!(waits(backoff(1, "a")), waits(backoff(1, "a")));
        assert_ne!(waits(backoff(1, "a")), waits(backoff(2, "a")));
        assert_ne!(waits(backoff(1, "a")), waits(backoff(1, "b")));
    }
}
