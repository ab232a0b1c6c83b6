//! Which session owns which run, which run is due, and which waits for a slot.

use stepwell_kernel::time::Time;

use super::{MemoryStore, Run, Session, Tables};
use crate::store::{Result, RunNo, SessionNo, Sessions, Slots, WakeQueue};

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
}

impl Sessions for MemoryStore {
    fn open_session(&self, _name: &str, _now: Time, until: Time) -> Result<SessionNo> {
        let mut tables = self.tables();
        tables.last_session += 1;
        let no = SessionNo(tables.last_session);
        let session = Session {
            #[cfg(feature = "suite")]
            name: _name.into(),
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
}

impl WakeQueue for MemoryStore {
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
}

impl Slots for MemoryStore {
    fn queued(&self, now: Time, limit: usize) -> Result<Vec<RunNo>> {
        let tables = self.tables();
        let runs = tables.runs.iter();
        let may_start = runs.filter(|(_, run)| {
            let head = &run.head;
            head.queued && head.session.is_none() && head.wake_at.is_none_or(|at| at <= now)
        });
        let place = |(no, run): (&RunNo, &Run)| {
            let first = std::cmp::Reverse(run.row.priority);
            (first, run.row.created_at, *no)
        };
        let mut queued: Vec<_> = may_start.map(place).collect();
        queued.sort_unstable();
        Ok(queued.into_iter().map(|(.., no)| no).take(limit).collect())
    }

    fn slots_taken(&self, key: &str) -> Result<u32> {
        Ok(self.tables().slots.get(key).copied().unwrap_or(0))
    }
}
