//! Which runs have changed: the last changes are kept in their order.

use std::collections::VecDeque;

use stepwell_kernel::time::Time;

use super::MemoryStore;
use crate::store::{ChangeFeed, Changed, Mark, Result, RunNo};

/// How many changes are kept.
const KEPT: usize = 10_000;

/// The last changes, in the order of their commits.
#[derive(Debug, Default)]
pub(super) struct Changes {
    last: VecDeque<RunNo>,
    /// How many changes were forgotten.
    forgotten: u64,
}

impl Changes {
    pub(super) fn note(&mut self, run: RunNo) {
        self.last.push_back(run);
        if self.last.len() > KEPT {
            self.last.pop_front();
            self.forgotten += 1;
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            at: self.forgotten + self.last.len() as u64,
            check: String::new(),
        }
    }
}

impl ChangeFeed for MemoryStore {
    fn mark(&self) -> Result<Mark> {
        Ok(self.tables().changes.mark())
    }

    fn changed_since(&self, mark: &Mark, limit: usize) -> Result<Changed> {
        let tables = self.tables();
        let now = tables.changes.mark();
        let since = mark.at.checked_sub(tables.changes.forgotten);
        let Some(since) = since.filter(|_| mark.at <= now.at) else {
            return Ok(Changed::Lost);
        };
        let since = usize::try_from(since).unwrap_or(usize::MAX);
        let mut runs: Vec<RunNo> = tables.changes.last.iter().skip(since).copied().collect();
        runs.sort_unstable();
        runs.dedup();
        Ok(match runs.len() > limit {
            true => Changed::TooMany,
            false => Changed::Runs(runs, now),
        })
    }

    fn forget_changes(&self, _before: Time) -> Result<()> {
        Ok(())
    }
}
