//! Sessions and tasks: who has which run, what is due, and work for whoever serves its queue.

use stepwell_kernel::time::Time;

use super::{MemoryStore, Session, Tables};
use crate::store::{Result, RunNo, SessionNo, Sessions, TaskRow, Tasks};

impl Tables {
    fn has_runs(&self, session: SessionNo) -> bool {
        self.runs
            .values()
            .any(|run| run.head.session == Some(session))
    }

    /// Runs nobody has that are to be looked at by the time, with that time.
    fn waking(&self) -> impl Iterator<Item = (Time, RunNo)> {
        let runs = self.runs.iter();
        let free = runs.filter(|(_, run)| run.head.session.is_none() && !run.head.queued);
        free.filter_map(|(no, run)| Some((run.due_at?, *no)))
    }

    fn tasks(&self) -> impl Iterator<Item = &TaskRow> {
        self.runs.values().flat_map(|run| run.tasks.values())
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
}

impl Sessions for MemoryStore {
    fn open_session(&self, name: &str, _now: Time, until: Time) -> Result<SessionNo> {
        let mut tables = self.tables();
        tables.last_session += 1;
        let no = SessionNo(tables.last_session);
        let session = Session {
            name: name.into(),
            until,
            dead: false,
        };
        tables.sessions.insert(no, session);
        Ok(no)
    }

    fn renew_session(&self, session: SessionNo, now: Time, until: Time) -> Result<bool> {
        let mut tables = self.tables();
        let session = tables.sessions.get_mut(&session);
        let alive = session.filter(|it| !it.dead && it.until >= now);
        Ok(alive.map(|it| it.until = until).is_some())
    }

    fn close_session(&self, session: SessionNo) -> Result<()> {
        if let Some(session) = self.tables().sessions.get_mut(&session) {
            session.dead = true;
        }
        Ok(())
    }

    fn dead_sessions(&self, now: Time) -> Result<Vec<SessionNo>> {
        let mut tables = self.tables();
        for session in tables.sessions.values_mut() {
            session.dead |= session.until < now;
        }
        let dead = tables.sessions.iter().filter(|(_, it)| it.dead);
        let dead: Vec<SessionNo> = dead.map(|(no, _)| *no).collect();
        let (with, without) = dead.into_iter().partition(|no| tables.has_runs(*no));
        let forgotten: Vec<SessionNo> = without;
        for no in forgotten {
            tables.sessions.remove(&no);
        }
        Ok(with)
    }

    fn runs_of(&self, session: SessionNo, limit: usize) -> Result<Vec<RunNo>> {
        let tables = self.tables();
        let runs = tables.runs.iter();
        let its = runs.filter(|(_, run)| run.head.session == Some(session));
        Ok(its.map(|(no, _)| *no).take(limit).collect())
    }

    fn due(&self, now: Time, until: Time, limit: usize) -> Result<Vec<RunNo>> {
        let mut tables = self.tables();
        let mut due: Vec<_> = tables.waking().filter(|(at, _)| *at <= now).collect();
        due.sort_unstable();
        due.truncate(limit);
        for (_, no) in &due {
            if let Some(run) = tables.runs.get_mut(no) {
                run.due_at = Some(until);
            }
        }
        Ok(due.into_iter().map(|(_, no)| no).collect())
    }

    fn next_due(&self) -> Result<Option<Time>> {
        Ok(self.tables().waking().map(|(at, _)| at).min())
    }

    fn queued(&self, now: Time, limit: usize) -> Result<Vec<RunNo>> {
        let tables = self.tables();
        let runs = tables.runs.iter();
        let may_start = runs.filter(|(_, run)| {
            let head = &run.head;
            head.queued && head.session.is_none() && head.wake_at.is_none_or(|at| at <= now)
        });
        Ok(may_start.map(|(no, _)| *no).take(limit).collect())
    }

    fn slots_taken(&self, key: &str) -> Result<u32> {
        Ok(self.tables().slots.get(key).copied().unwrap_or(0))
    }
}

impl Tasks for MemoryStore {
    fn reserve(
        &self,
        serves: &[(String, String)],
        worker: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<TaskRow>> {
        let mut tables = self.tables();
        let open = tables.open_tasks(serves).filter(|(from, _)| *from <= now);
        let mut open: Vec<TaskRow> = open.map(|(_, task)| task.clone()).collect();
        open.sort_by(|a, b| {
            let rank = |it: &TaskRow| (it.priority, it.visible_at, it.run);
            rank(a).cmp(&rank(b)).then_with(|| a.target.cmp(&b.target))
        });
        open.truncate(limit);
        for task in &mut open {
            task.worker = Some(worker.into());
            task.until = Some(until);
            if let Some(run) = tables.runs.get_mut(&task.run) {
                run.tasks.insert(task.target.clone(), task.clone());
            }
        }
        Ok(open)
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

    fn next_visible(&self, serves: &[(String, String)]) -> Result<Option<Time>> {
        Ok(self.tables().open_tasks(serves).map(|(from, _)| from).min())
    }
}
