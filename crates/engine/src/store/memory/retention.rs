//! Deletes runs that have ended.

use stepwell_kernel::time::Time;

use super::{MemoryStore, Run, Tables};
use crate::store::{DeleteFilter, DeletedRun, Result, Retention, RunNo};

impl Tables {
    /// Whether nothing needs the run any more.
    fn is_over(&self, no: RunNo, run: &Run) -> bool {
        let parent = run.row.parent.as_ref().and_then(|id| self.ids.get(id));
        let parent = parent.and_then(|no| self.runs.get(no));
        run.head.session.is_none()
            && run.head.slots.is_empty()
            && !self.quarantine.contains_key(&no)
            && !self.outbox.keys().any(|(_, of, _)| *of == no)
            && self.mail_where(|row| row.run == no).next().is_none()
            && parent.is_none_or(|it| it.head.ended_at.is_some())
    }

    fn delete(&mut self, no: RunNo) {
        let Some(run) = self.runs.remove(&no) else {
            return;
        };
        let id = &run.row.run_id;
        self.ids.remove(id);
        if let Some(key) = &run.row.request_key {
            self.requests.remove(key);
        }
        self.unique_keys.retain(|_, holder| *holder != no);
        self.mail.retain(|_, row| row.run != no);
        self.letters.retain(|_, letter| letter.marker.run != no);
        self.alerts
            .retain(|alert| alert.run_id.as_ref() != Some(id));
    }
}

impl Retention for MemoryStore {
    fn delete_ended(
        &self,
        filter: &DeleteFilter,
        limit: usize,
        now: Time,
    ) -> Result<Vec<DeletedRun>> {
        let mut tables = self.tables();
        let before = filter.ended_before.min(now);
        let ended = tables.runs.iter().filter_map(|(no, run)| {
            let ended_at = run.head.ended_at.filter(|it| *it < before)?;
            let (status, tenant) = (&run.head.status, &run.row.tenant);
            let is_asked_for = (filter.statuses.is_empty() || filter.statuses.contains(status))
                && filter.tenant.as_ref().is_none_or(|it| it == tenant);
            (is_asked_for && tables.is_over(*no, run)).then(|| DeletedRun {
                run: *no,
                run_id: run.row.run_id.clone(),
                tenant: tenant.clone(),
                status: status.clone(),
                ended_at,
            })
        });
        let mut ended: Vec<DeletedRun> = ended.collect();
        ended.sort_by_key(|it| (it.ended_at, it.run));
        ended.truncate(limit);
        for run in &ended {
            tables.delete(run.run);
        }
        Ok(ended)
    }
}
