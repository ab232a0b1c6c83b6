//! Percentiles of times that were measured.

use std::time::Duration;

/// Times that were measured, in milliseconds, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn push(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1_000.0);
    }

    pub(super) fn extend(&mut self, others: Times) {
        self.0.extend(others.0);
    }

    /// The time that so many per cent of the times do not exceed; zero if there is none.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = sorted.len() * percent / 100;
        let last = sorted.len().saturating_sub(1);
        let found = sorted.get(at.min(last)).copied().unwrap_or_default();
        (found * 100.0).round() / 100.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_sorted_times() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50), 0.0);
        for millis in [5, 1, 4, 2, 3] {
            times.push(Duration::from_millis(millis));
        }
        assert_eq!((times.percentile(50), times.percentile(99)), (3.0, 5.0));
        assert_eq!(times.len(), 5);
    }
}
