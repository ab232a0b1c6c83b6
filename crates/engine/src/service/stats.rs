//! What an engine counts and measures while it works: for those who watch it. Counting costs a few atomic additions for
//! each commit and each claim.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use stepwell_kernel::time::Time;

use crate::store::Batch;

/// What an engine has committed so far, and what it is doing.
#[derive(Debug, Default)]
pub struct Stats {
    /// Commits that were answered.
    pub commits: AtomicU64,
    /// Appends in these commits.
    pub appends: AtomicU64,
    /// Bytes of log in these commits: bodies and digests.
    pub bytes: AtomicU64,
    /// Work of this process that is in flight now.
    pub in_flight: AtomicUsize,
    /// How many appends these commits have each.
    pub batch_sizes: Buckets<BatchSize>,
    /// Milliseconds from the end of the decisions of a commit to its answer.
    pub commit_ms: Buckets<Latency>,
    /// Milliseconds from the decision that this process does some work to the moment when the claim is committed and the
    /// work begins.
    pub claim_ms: Buckets<Latency>,
}

impl Stats {
    pub(super) fn count(&self, batch: &Batch, now: Time) {
        let chunks = batch.appends.iter().filter_map(|it| it.chunk.as_ref());
        let bytes: usize = chunks.map(|it| it.body.len() + it.digests.len()).sum();
        let appends = batch.appends.len() as u64;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.appends.fetch_add(appends, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.batch_sizes.observe(appends);
        self.commit_ms.observe(now.since(batch.now));
    }
}

/// The limits of the buckets of a kind of number.
pub trait Limits {
    /// The greatest value of each bucket but the last, which has no limit.
    const LIMITS: [u64; LIMITS];
}

/// How many limits there are.
pub const LIMITS: usize = 12;

/// Appends of a commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchSize;

impl Limits for BatchSize {
    const LIMITS: [u64; LIMITS] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
}

/// How long something took, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency;

impl Limits for Latency {
    const LIMITS: [u64; LIMITS] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];
}

/// How often values of which size were seen.
#[derive(Debug, Default)]
pub struct Buckets<L> {
    counts: [AtomicU64; LIMITS],
    beyond: AtomicU64,
    sum: AtomicU64,
    limits: std::marker::PhantomData<L>,
}

impl<L: Limits> Buckets<L> {
    pub fn observe(&self, value: u64) {
        let bucket = L::LIMITS.iter().position(|limit| value <= *limit);
        let count = bucket.map_or(&self.beyond, |at| &self.counts[at]);
        count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Each limit with how many values it is the first for; the last bucket has no limit.
    pub fn counts(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let limited = L::LIMITS.iter().zip(&self.counts);
        let limited = limited.map(|(limit, count)| (Some(*limit), count));
        let all = limited.chain([(None, &self.beyond)]);
        all.map(|(limit, count)| (limit, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_has_room_for_it() {
        let buckets = Buckets::<BatchSize>::default();
        for value in [1, 2, 3, 5_000] {
            buckets.observe(value);
        }
        let filled: Vec<_> = buckets.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            filled,
            [(Some(1), 1), (Some(2), 1), (Some(4), 1), (None, 1)]
        );
        assert_eq!(buckets.sum(), 5_006);
    }
}
