//! The wait between the retries of a step, a task or an undo. A new kind is a row of the table and an arm of each
//! `match` below it; files, schemas and messages take it from the table. Not here: whether to retry at all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::named::named;

/// The wait before a retry. The kernel draws no random numbers: the jitter of a kind that has one follows
/// from a seed, which is a hash of the run, the step-run and the logical attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backoff {
    /// How the wait grows from retry to retry.
    pub kind: BackoffKind,
    /// The wait before the first retry, in milliseconds.
    pub initial_ms: u64,
    /// The factor of `exponential`.
    pub multiplier: f64,
    /// No wait is longer, in milliseconds.
    pub max_ms: u64,
}

named! {
    /// How the wait grows from retry to retry.
    BackoffKind {
        /// There is no wait.
        None = "none",
        /// The wait is the same each time: d, d, d.
        Constant = "constant",
        /// The wait grows by the same amount: d, 2d, 3d.
        Linear = "linear",
        /// The wait is multiplied: d, d·m, d·m².
        Exponential = "exponential",
        /// The wait is drawn between d and three times the wait before it (decorrelated jitter).
        Decorrelated = "decorrelated",
    }
}

impl BackoffKind {
    /// Whether the wait has jitter: two step-runs that fail together are not retried together. Only
    /// languages whose specification allows jitter offer such a kind.
    #[must_use]
    pub fn has_jitter(self) -> bool {
        match self {
            BackoffKind::None
            | BackoffKind::Constant
            | BackoffKind::Linear
            | BackoffKind::Exponential => false,
            BackoffKind::Decorrelated => true,
        }
    }
}

impl Backoff {
    /// Retries follow at once.
    #[must_use]
    pub fn none() -> Backoff {
        Backoff {
            kind: BackoffKind::None,
            initial_ms: 0,
            multiplier: 1.0,
            max_ms: 0,
        }
    }

    /// The wait before retry `n` (the first is 1), in milliseconds. Never overflows: the cap wins. `seed` is
    /// asked for only by a kind with jitter.
    #[must_use]
    pub fn delay_ms(&self, n: u32, seed: impl FnOnce() -> u64) -> u64 {
        let n = n.max(1);
        let wanted = match self.kind {
            BackoffKind::None => return 0,
            BackoffKind::Constant => self.initial_ms,
            BackoffKind::Linear => self.initial_ms.saturating_mul(u64::from(n)),
            BackoffKind::Exponential => {
                let factor = self.multiplier.max(1.0).powf(f64::from(n - 1));
                // `as` saturates, which is what the cap below wants.
                (self.initial_ms as f64 * factor) as u64
            }
            BackoffKind::Decorrelated => self.decorrelated(n, seed()),
        };
        wanted.min(self.max_ms)
    }

    /// min(cap, a number between the first wait and three times the wait before), drawn `n` times.
    fn decorrelated(&self, n: u32, seed: u64) -> u64 {
        let mut wait = self.initial_ms;
        for draw in 1..=u64::from(n) {
            let most = wait.saturating_mul(3).min(self.max_ms);
            let span = most.saturating_sub(self.initial_ms).saturating_add(1);
            wait = self.initial_ms + mixed(seed.wrapping_add(draw)) % span;
        }
        wait
    }

    /// The seed of the jitter of everything that is retried under this key.
    #[must_use]
    pub fn seed(key: &str) -> u64 {
        let digest = Sha256::digest(key);
        let first = digest.first_chunk::<8>().copied();
        first.map_or(0, u64::from_be_bytes)
    }

    /// The backoff in a few words, for people: `1 s ×2`.
    #[must_use]
    pub fn words(&self, duration: impl Fn(u64) -> String) -> Option<String> {
        let initial = duration(self.initial_ms);
        match self.kind {
            BackoffKind::None => None,
            BackoffKind::Constant => Some(format!("every {initial}")),
            BackoffKind::Linear => Some(format!("+{initial}")),
            BackoffKind::Exponential => Some(format!("{initial} ×{}", self.multiplier)),
            BackoffKind::Decorrelated => Some(format!("{initial} with jitter")),
        }
    }
}

/// A number that differs in all its bits from those of the numbers beside it (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decorrelated(initial_ms: u64, max_ms: u64) -> Backoff {
        Backoff {
            kind: BackoffKind::Decorrelated,
            initial_ms,
            multiplier: 2.0,
            max_ms,
        }
    }

    #[test]
    fn decorrelated_waits_stay_between_the_first_wait_and_three_times_the_wait_before() {
        let backoff = decorrelated(1_000, 60_000);
        for key in 0..500 {
            let seed = Backoff::seed(&format!("run_{key}|a|1"));
            let mut before = 1_000;
            for n in 1..=12 {
                let wait = backoff.delay_ms(n, || seed);
                assert!((1_000..=60_000.min(before * 3)).contains(&wait), "{wait}");
                assert_eq!(wait, backoff.delay_ms(n, || seed), "the same each time");
                before = wait;
            }
        }
    }

    #[test]
    fn step_runs_that_fail_together_are_not_retried_together() {
        let backoff = decorrelated(1_000, 60_000);
        let wait = |key: u32| backoff.delay_ms(3, || Backoff::seed(&format!("run_{key}|a|1")));
        let waits: std::collections::BTreeSet<u64> = (0..100).map(wait).collect();
        assert!(waits.len() > 90, "{waits:?}");
    }

    #[test]
    fn no_value_makes_a_decorrelated_wait_overflow() {
        for (initial, max) in [(0, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (5, 1)] {
            let wait = decorrelated(initial, max).delay_ms(40, || u64::MAX);
            assert!(wait <= max, "{initial} {max}: {wait}");
        }
    }
}
