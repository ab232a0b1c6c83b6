//! How many requests a caller may make: a bucket for each token and for each source address that fills with time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How many buckets there may be. More are not needed for callers that are known; callers that are not known must not
/// fill the memory.
const MAX_BUCKETS: usize = 100_000;

/// How many requests are allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many in each second, in the long run.
    pub per_second: f64,
    /// How many may come at once.
    pub burst: f64,
}

/// The rates of a server; none: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateSettings {
    /// Of each token, session or person.
    pub per_token: Option<Rate>,
    /// Of each source address: requests without a token, and with a wrong one.
    pub per_source: Option<Rate>,
}

impl RateSettings {
    /// The limits of a server with access control, if nobody says.
    pub const CONTROLLED: RateSettings = RateSettings {
        per_token: Some(Rate {
            per_second: 1_000.0,
            burst: 2_000.0,
        }),
        per_source: Some(Rate {
            per_second: 50.0,
            burst: 200.0,
        }),
    };
}

/// Buckets of one kind.
#[derive(Debug)]
pub(crate) struct Buckets {
    rate: Option<Rate>,
    levels: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Buckets {
    pub(crate) fn new(rate: Option<Rate>) -> Buckets {
        Buckets {
            rate,
            levels: Mutex::default(),
        }
    }

    /// Takes one request from a bucket; else the seconds until there is one.
    pub(crate) fn take(&self, key: &str) -> Result<(), u64> {
        self.ask(key, Instant::now())
    }

    fn ask(&self, key: &str, now: Instant) -> Result<(), u64> {
        let Some(rate) = self.rate else {
            return Ok(());
        };
        let filled = |&(level, since): &(f64, Instant)| {
            let passed = now.saturating_duration_since(since).as_secs_f64();
            (level + passed * rate.per_second).min(rate.burst)
        };
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.len() >= MAX_BUCKETS && !levels.contains_key(key) {
            // A bucket that is full again is like one that was never used.
            levels.retain(|_, bucket| filled(bucket) < rate.burst);
            if levels.len() >= MAX_BUCKETS {
                levels.clear();
            }
        }
        let level = levels.get(key).map_or(rate.burst, filled);
        if level < 1.0 {
            let seconds = ((1.0 - level) / rate.per_second).ceil();
            return Err((seconds as u64).max(1));
        }
        levels.insert(key.to_owned(), (level - 1.0, now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_again_apart_from_others() {
        let buckets = Buckets::new(Some(Rate {
            per_second: 0.5,
            burst: 2.0,
        }));
        let start = Instant::now();
        let take = |key: &str, at: u64| buckets.ask(key, start + Duration::from_secs(at));
        assert_eq!((take("a", 0), take("a", 0)), (Ok(()), Ok(())));
        assert_eq!(take("a", 0), Err(2));
        assert_eq!(take("b", 0), Ok(()));
        assert_eq!(take("a", 2), Ok(()));
        assert_eq!(take("a", 2), Err(2));
        assert_eq!(Buckets::new(None).take("a"), Ok(()));
    }
}
