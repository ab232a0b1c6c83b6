//! Commits that the store took longer for than the write budget of the contract: an operator is told once for each
//! such commit, by an alert `WRITE_LATENCY_EXCEEDED`. What happens to results is decided in `commit_results`.

use std::collections::VecDeque;

use stepwell_kernel::codes::WRITE_LATENCY_EXCEEDED;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;

use super::Notices;
use super::notices::Notice;
use crate::store::{Batch, NewAlert, RunNo, Store};

/// The write budget of the contract. A longer budget of a coordinator saves results, and is no reason to be silent.
const CONTRACT_BUDGET_MS: u64 = 3_000;
/// Alerts that wait for the store, at most.
const MAX_WAITING: usize = 16;

/// Alerts about slow commits that are not written yet.
#[derive(Debug, Default)]
pub(super) struct SlowWrites {
    waiting: VecDeque<(Option<RunNo>, NewAlert)>,
}

impl SlowWrites {
    /// A commit was written, `took_ms` after it was sent.
    pub(super) fn written(&mut self, batch: &Batch, took_ms: u64, budget_ms: u64) {
        let budget_ms = budget_ms.min(CONTRACT_BUDGET_MS);
        if took_ms > budget_ms {
            let message = format!(
                "the store took {took_ms} ms to write a commit, the write budget is {budget_ms} ms; nothing is \
                 lost; look for a slow disk, or for a program that locks the database"
            );
            self.tell(batch, message);
        }
    }

    /// A commit was given up after the write budget.
    pub(super) fn given_up(&mut self, batch: &Batch, took_ms: u64, budget_ms: u64) {
        let message = format!(
            "the store did not write a commit for {took_ms} ms, the write budget is {budget_ms} ms; the steps whose \
             results it has fail, and their retry policies apply; look for a slow disk, or for a program that locks \
             the database"
        );
        self.tell(batch, message);
    }

    fn tell(&mut self, batch: &Batch, message: String) {
        let run = match &batch.appends[..] {
            [one] => Some(one.run),
            _ => None,
        };
        tracing::warn!(
            code = WRITE_LATENCY_EXCEEDED,
            runs = batch.appends.len(),
            "{message}"
        );
        if self.waiting.len() < MAX_WAITING {
            let alert = NewAlert {
                code: WRITE_LATENCY_EXCEEDED.to_owned(),
                priority: Priority::P2,
                message,
            };
            self.waiting.push_back((run, alert));
        }
    }

    /// Writes the alerts, now that the store answers. An alert that the store does not take stays for the next time.
    pub(super) fn write(&mut self, store: &dyn Store, notices: &mut Notices, now: Time) {
        while let Some((run, alert)) = self.waiting.front() {
            if store.alert(*run, alert, now).is_err() {
                return;
            }
            if let Some((Some(run), alert)) = self.waiting.pop_front() {
                notices.push(Notice::Alert(run, alert));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Alerts as _, Append, CommitId, MemoryStore};

    #[test]
    fn a_slow_commit_is_told_once_and_a_quick_one_is_not() {
        let batch = Batch {
            id: CommitId {
                session: 1,
                number: 1,
            },
            session: None,
            now: Time(0),
            appends: vec![Append::new(RunNo(1), 0), Append::new(RunNo(2), 0)],
        };
        let store = MemoryStore::default();
        let (mut slow, mut notices) = (SlowWrites::default(), Notices::default());
        slow.written(&batch, CONTRACT_BUDGET_MS, 60_000);
        slow.write(&store, &mut notices, Time(1));
        assert!(store.alerts(9).unwrap().is_empty());
        slow.written(&batch, CONTRACT_BUDGET_MS + 1, 60_000);
        slow.write(&store, &mut notices, Time(2));
        slow.write(&store, &mut notices, Time(3));
        let alerts = store.alerts(9).unwrap();
        let codes: Vec<&str> = alerts.iter().map(|it| &*it.code).collect();
        assert_eq!(codes, [WRITE_LATENCY_EXCEEDED]);
        assert!(
            alerts[0].message.contains("3001 ms"),
            "{}",
            alerts[0].message
        );
    }
}
