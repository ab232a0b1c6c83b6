//! Work for workers outside, and its leases.

use std::collections::BTreeSet;

use stepwell_kernel::time::Time;

use super::{MemoryStore, Tables};
use crate::store::{Result, RunNo, TaskRow, Tasks};

impl Tables {
    fn tasks(&self) -> impl Iterator<Item = &TaskRow> {
        self.runs.values().flat_map(|run| run.tasks.values())
    }

    /// Whether a run is of a tenant; of no tenant in particular are all.
    fn is_of(&self, run: RunNo, tenant: Option<&str>) -> bool {
        let run = self.runs.get(&run);
        tenant.is_none_or(|tenant| run.is_some_and(|run| run.row.tenant == tenant))
    }

    /// Tasks that someone may reserve, with the first instant at which that is possible.
    fn open_tasks(&self, serves: &[(String, String)]) -> impl Iterator<Item = (Time, &TaskRow)> {
        let open = self.tasks().filter(|task| {
            let serves = serves.iter();
            !task.leased && !task.stopping && { serves }
                .any(|(queue, op)| *queue == task.queue && *op == task.op)
        });
        // A reservation holds at its last instant, so the next one begins after it.
        open.map(|task| {
            let ended = task.until.map_or(task.visible_at, |it| it.plus(1));
            (ended.max(task.visible_at), task)
        })
    }

    /// Tasks that may be reserved now, best first.
    fn free_tasks(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        now: Time,
        limit: usize,
    ) -> Vec<TaskRow> {
        let open = self
            .open_tasks(serves)
            .filter(|(from, task)| *from <= now && self.is_of(task.run, tenant));
        let mut open: Vec<TaskRow> = open.map(|(_, task)| task.clone()).collect();
        open.sort_by(|a, b| {
            let rank = |it: &TaskRow| (it.priority, it.visible_at, it.run);
            rank(a).cmp(&rank(b)).then_with(|| a.target.cmp(&b.target))
        });
        open.truncate(limit);
        open
    }
}

impl Tasks for MemoryStore {
    fn reserve_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        let mut tables = self.tables();
        let mut open = tables.free_tasks(tenant, serves, now, limit);
        for task in &mut open {
            task.worker = Some(worker.into());
            task.until = Some(until);
            if let Some(run) = tables.runs.get_mut(&task.run) {
                run.tasks.insert(task.target.clone(), task.clone());
            }
        }
        Ok(open)
    }

    fn open_for(
        &self,
        tenant: Option<&str>,
        serves: &[(String, String)],
        now: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        Ok(self.tables().free_tasks(tenant, serves, now, limit))
    }

    fn heartbeat(
        &self,
        run: RunNo,
        target: &str,
        worker: &str,
        now: Time,
        until: Time,
    ) -> Result<bool> {
        let mut tables = self.tables();
        let run = tables.runs.get_mut(&run);
        let task = run.and_then(|run| run.tasks.get_mut(target));
        let held = task.filter(|task| {
            task.leased
                && !task.stopping
                && task.worker.as_deref() == Some(worker)
                && task.until >= Some(now)
        });
        Ok(held.map(|task| task.until = Some(until)).is_some())
    }

    fn expired(&self, now: Time, limit: usize) -> Result<Vec<TaskRow>> {
        let tables = self.tables();
        let ended = tables
            .tasks()
            .filter(|task| task.leased && task.until.is_some_and(|until| until < now));
        let mut ended: Vec<TaskRow> = ended.cloned().collect();
        ended.sort_by(|a, b| {
            let rank = |it: &TaskRow| (it.until, it.run);
            rank(a).cmp(&rank(b)).then_with(|| a.target.cmp(&b.target))
        });
        ended.truncate(limit);
        Ok(ended)
    }

    fn leases(
        &self,
        worker: Option<&str>,
        tenant: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        let tables = self.tables();
        let leased = tables.tasks().filter(|task| {
            task.leased
                && worker.is_none_or(|it| task.worker.as_deref() == Some(it))
                && tables.is_of(task.run, tenant)
        });
        let mut leased: Vec<TaskRow> = leased.cloned().collect();
        leased.sort_by(|a, b| (a.run, &a.target).cmp(&(b.run, &b.target)));
        leased.truncate(limit);
        Ok(leased)
    }

    fn open_kinds(&self, limit: usize) -> Result<Vec<(String, String)>> {
        let tables = self.tables();
        let open = tables.tasks().filter(|it| !it.leased && !it.stopping);
        let kinds: BTreeSet<_> = open.map(|it| (it.queue.clone(), it.op.clone())).collect();
        Ok(kinds.into_iter().take(limit).collect())
    }

    fn next_visible(&self, serves: &[(String, String)]) -> Result<Option<Time>> {
        Ok(self.tables().open_tasks(serves).map(|(from, _)| from).min())
    }
}
