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
        }
    }
}

impl Backoff {
    /// No wait.
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
        // No kind has jitter yet.
        let _seed = seed;
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
        };
        wanted.min(self.max_ms)
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
        }
    }
}
