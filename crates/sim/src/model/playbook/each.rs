//! The model of a loop: which items may start, and when the loop has ended.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::Verdict;

/// A loop that has started.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopModel {
    pub(super) items: Vec<Json>,
    pub(super) window: usize,
    pub(super) goes_on: bool,
    pub(super) started: BTreeSet<u32>,
    pub(super) open: BTreeSet<u32>,
    pub(super) failed: u64,
    pub(super) ended: usize,
}

impl LoopModel {
    pub(super) fn starts(&mut self, item: u32) -> Verdict {
        if !self.started.insert(item) || item as usize >= self.items.len() {
            return Err("started twice, or does not exist".into());
        }
        if self.failed > 0 && !self.goes_on {
            return Err("started after another item has failed".into());
        }
        if self.open.len() >= self.window {
            return Err(format!("started beside {} others", self.open.len()));
        }
        if self.window == 1 && item as usize != self.ended {
            return Err(format!("started after {} others", self.ended));
        }
        self.open.insert(item);
        Ok(())
    }

    pub(super) fn ends(&mut self, item: u32, fails: bool) -> Verdict {
        if !self.open.remove(&item) {
            return Err("ended, and was not there".into());
        }
        self.ended += 1;
        self.failed += u64::from(fails);
        Ok(())
    }

    /// The loop has ended: all items are done, unless one has failed and the loop does not go on.
    pub(super) fn is_over(&self, fails: bool) -> Verdict {
        let breaks = self.failed > 0 && !self.goes_on;
        if fails && self.items.is_empty() && self.started.is_empty() {
            return Err("failed without an item".into());
        }
        if !self.open.is_empty() || breaks != fails || (!breaks && self.ended < self.items.len()) {
            return Err(format!(
                "ended, failed: {fails}; {} of {} items are done, {} failed, {} are open",
                self.ended,
                self.items.len(),
                self.failed,
                self.open.len()
            ));
        }
        Ok(())
    }
}
