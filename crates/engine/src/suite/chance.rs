//! Chance with a seed: what a comparison of stores does next.

/// SplitMix64: a few lines, and the same on every machine.
#[derive(Debug)]
pub(super) struct Chance(pub(super) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Once in so many times.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn of<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        let index = self.below(list.len());
        list.get(index).cloned()
    }

    pub(super) fn name(&mut self, letter: &str, limit: usize) -> String {
        format!("{letter}{}", self.below(limit))
    }
}
