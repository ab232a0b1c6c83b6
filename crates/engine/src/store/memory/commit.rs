//! Commits: each append is decided as a whole before any of its rows changes.

use std::collections::{BTreeMap, HashSet};

use stepwell_kernel::time::Time;

use super::{MarkerState, Run, StoredChunk, Tables, TaskRow, Wait};
use crate::store::{
    Append, AppendResult, Batch, Guard, Head, KeyChange, NewRun, PlanNo, RunNo, TaskChange,
    WaitChange,
};

impl Tables {
    pub(super) fn commit(&mut self, batch: &Batch) -> Vec<AppendResult> {
        let mut outcomes = Vec::with_capacity(batch.appends.len());
        for append in &batch.appends {
            outcomes.push(match self.decide(batch, append) {
                Ok(slots) => {
                    self.slots.extend(slots);
                    self.apply(batch, append);
                    AppendResult::Committed
                }
                Err(lost) => lost,
            });
        }
        // Mail comes last: it may be for a run that a later append of the batch creates.
        for (append, outcome) in batch.appends.iter().zip(&outcomes) {
            if *outcome != AppendResult::Committed {
                continue;
            }
            for mail in &append.mail {
                if let Some(run) = self.ids.get(&mail.to).copied() {
                    self.post(run, &mail.body);
                }
            }
        }
        outcomes
    }

    /// What the slots are afterwards, or why the append is refused.
    fn decide(
        &self,
        batch: &Batch,
        append: &Append,
    ) -> Result<BTreeMap<String, u32>, AppendResult> {
        match &append.create {
            Some(new) => self.may_create(batch, append, new)?,
            None => self.is_where_thought(batch, append)?,
        }
        self.keys_are_new(append)?;
        self.unique_key_is_free(append)?;
        for (index, guard) in append.guards.iter().enumerate() {
            if !self.holds(batch, append.run, guard) {
                return Err(AppendResult::GuardFailed(index));
            }
        }
        let lies_there = |no| {
            let row = self.mail.get(no);
            row.is_some_and(|row| row.run == append.run && row.answer.is_none())
        };
        if !append.taken.iter().all(lies_there) {
            return Err(AppendResult::Moved);
        }
        self.slots_after(append)
    }

    fn may_create(&self, batch: &Batch, append: &Append, new: &NewRun) -> Result<(), AppendResult> {
        let by_id = self.ids.get(&new.run_id).copied();
        let there = by_id.or_else(|| self.runs.contains_key(&append.run).then_some(append.run));
        if let Some(run) = there.and_then(|no| self.runs.get(&no)) {
            let first = run.chunks.get(&1);
            // Another append of the same batch may have created a run with this id.
            let ours = there == Some(append.run)
                && run.row.run_id == new.run_id
                && first.is_some_and(|it| it.commit == batch.id);
            return Err(if ours {
                AppendResult::Again
            } else {
                AppendResult::RunExists
            });
        }
        if let Some(run) = new
            .request_key
            .as_ref()
            .and_then(|key| self.requests.get(key))
        {
            return Err(AppendResult::RequestTaken(self.run_id(*run)));
        }
        if new.plan.and_then(|no| self.plan(no)).is_none() {
            return Err(AppendResult::Refused("the run's plan is not kept".into()));
        }
        match &append.chunk {
            None => Err(AppendResult::Refused("a run begins with a chunk".into())),
            Some(chunk) if append.after != 0 || chunk.first != 1 => Err(AppendResult::Moved),
            Some(_) => Ok(()),
        }
    }

    fn is_where_thought(&self, batch: &Batch, append: &Append) -> Result<(), AppendResult> {
        let Some(run) = self.runs.get(&append.run) else {
            return Err(AppendResult::Moved);
        };
        let (thought, ours) = match &append.chunk {
            Some(chunk) => {
                let same_place = run.chunks.get(&chunk.first);
                (
                    chunk.first == append.after + 1,
                    same_place.is_some_and(|it| it.commit == batch.id),
                )
            }
            None => (
                append.head_version == Some(run.version),
                run.head_commit == batch.id,
            ),
        };
        if ours {
            Err(AppendResult::Again)
        } else if !thought || run.last_seq() != append.after {
            Err(AppendResult::Moved)
        } else {
            Ok(())
        }
    }

    fn keys_are_new(&self, append: &Append) -> Result<(), AppendResult> {
        let keys = append.chunk.iter().flat_map(|it| &it.keys);
        let known = self.runs.get(&append.run).map(|it| &it.keys);
        let mut seen = HashSet::new();
        for key in keys {
            if known.is_some_and(|known| known.contains(key)) || !seen.insert(key) {
                return Err(AppendResult::KeyExists);
            }
        }
        Ok(())
    }

    fn unique_key_is_free(&self, append: &Append) -> Result<(), AppendResult> {
        let wanted = append.unique_key.as_ref().and_then(|it| it.taken());
        match wanted.and_then(|key| self.unique_keys.get(key)) {
            Some(holder) if *holder != append.run => {
                Err(AppendResult::UniqueKeyTaken(self.run_id(*holder)))
            }
            _ => Ok(()),
        }
    }

    fn holds(&self, batch: &Batch, run: RunNo, guard: &Guard) -> bool {
        let task = |target: &String| self.runs.get(&run).and_then(|run| run.tasks.get(target));
        match guard {
            Guard::Session => {
                let session = batch.session.and_then(|no| self.sessions.get(&no));
                session.is_some_and(|it| !it.dead && it.until >= batch.now)
            }
            Guard::Dead(no) => self.sessions.get(no).is_none_or(|it| it.dead),
            Guard::Lease { target, worker } => task(target).is_some_and(|task| {
                task.worker.as_ref() == Some(worker) && task.until >= Some(batch.now)
            }),
            Guard::Expired { target } => task(target)
                .is_some_and(|task| task.leased && task.until.is_some_and(|it| it < batch.now)),
        }
    }

    fn slots_after(&self, append: &Append) -> Result<BTreeMap<String, u32>, AppendResult> {
        let mut after: BTreeMap<String, u32> = BTreeMap::new();
        for slot in &append.slots {
            let known = after.get(&slot.key).or_else(|| self.slots.get(&slot.key));
            let taken = known
                .copied()
                .unwrap_or(0)
                .saturating_add_signed(slot.change);
            if slot.change > 0 && slot.limit.is_some_and(|limit| taken > limit) {
                return Err(AppendResult::SlotsFull(slot.key.clone()));
            }
            after.insert(slot.key.clone(), taken);
        }
        Ok(after)
    }

    fn apply(&mut self, batch: &Batch, append: &Append) {
        if let Some(new) = &append.create {
            self.ids.insert(new.run_id.clone(), append.run);
            if let Some(key) = &new.request_key {
                self.requests.insert(key.clone(), append.run);
            }
            // `may_create` has seen that there is a plan.
            let plan = new.plan.unwrap_or(PlanNo(0));
            self.runs.insert(append.run, Run::new(new, plan, batch));
        }
        for no in &append.taken {
            self.mail.remove(no);
        }
        let Some(run) = self.runs.get_mut(&append.run) else {
            return;
        };
        run.take_chunk(batch, append);
        if append.chunk.is_some() {
            self.changes.note(append.run);
        }
        run.take_head(batch, append);
        for change in &append.tasks {
            run.change_task(append.run, change);
        }
        for row in &append.view_rows {
            run.view_rows
                .insert((row.view, row.row_no), row.body.clone());
        }
        let kept = run.snapshot.as_ref().map_or(0, |it| it.seq);
        if let Some(frozen) = append.snapshot.as_ref().filter(|it| it.seq >= kept) {
            run.snapshot = Some(frozen.clone());
        }
        match append.unique_key.as_deref() {
            Some(KeyChange::Take(key)) => {
                self.unique_keys.insert(key.clone(), append.run);
            }
            Some(KeyChange::Free(key)) if self.unique_keys.get(key) == Some(&append.run) => {
                self.unique_keys.remove(key);
            }
            Some(KeyChange::Free(_)) | None => {}
        }
        for change in &append.waits {
            self.change_wait(append.run, change, batch.now);
        }
        self.mark(append, batch.now);
        for alert in &append.alerts {
            self.raise(Some(append.run), alert, batch.now);
        }
    }

    fn change_wait(&mut self, no: RunNo, change: &WaitChange, since: Time) {
        let Some(run) = self.runs.get_mut(&no) else {
            return;
        };
        let (step, event_type) = match change {
            WaitChange::Delete { step } => {
                run.waits.remove(step);
                return;
            }
            WaitChange::Put { step, event_type } => (step, event_type),
        };
        let fits = |it: &&mut super::Kept| {
            !it.given
                && it.event.event_type == *event_type
                && it.event.key == run.row.event_key
                && it.event.tenant == run.row.tenant
        };
        let kept = self.inbox.values_mut().filter(fits);
        let oldest = kept
            .min_by(|a, b| (a.since, &a.event.id).cmp(&(b.since, &b.event.id)))
            .map(|it| {
                it.given = true;
                it.event.mail.clone()
            });
        let wait = Wait {
            event_type: event_type.clone(),
            since,
            given: oldest.is_some(),
        };
        run.waits.insert(step.clone(), wait);
        if let Some(mail) = oldest {
            self.post(no, &mail);
        }
    }

    fn mark(&mut self, append: &Append, now: Time) {
        let Some(chunk) = &append.chunk else {
            return;
        };
        let sinks = append.sinks.iter().chain(self.sinks.keys());
        let keys: Vec<_> = sinks
            .map(|sink| (sink.clone(), append.run, chunk.first))
            .collect();
        for key in keys {
            self.outbox.entry(key).or_insert(MarkerState::due(now));
        }
    }
}

impl Run {
    fn new(row: &NewRun, plan: PlanNo, batch: &Batch) -> Run {
        Run {
            row: row.clone(),
            plan,
            head: Head::default(),
            version: 0,
            head_commit: batch.id,
            due_at: None,
            chunks: BTreeMap::new(),
            keys: HashSet::new(),
            tasks: BTreeMap::new(),
            waits: BTreeMap::new(),
            view_rows: BTreeMap::new(),
            snapshot: None,
            projection: None,
        }
    }

    fn take_chunk(&mut self, batch: &Batch, append: &Append) {
        let Some(chunk) = &append.chunk else {
            return;
        };
        let stored = StoredChunk {
            first: chunk.first,
            last: chunk.last,
            commit: batch.id,
            codec: chunk.codec,
            body: chunk.body.clone(),
            digests: chunk.digests.clone(),
        };
        self.chunks.insert(chunk.first, stored);
        self.keys.extend(chunk.keys.iter().cloned());
    }

    /// Without a chunk the head's row is written even if it says the same as before: its version and
    /// its commit are what a second sending is recognised by.
    fn take_head(&mut self, batch: &Batch, append: &Append) {
        if append.head.is_none() && append.chunk.is_some() && append.create.is_none() {
            return;
        }
        if let Some(head) = &append.head {
            self.head = head.clone();
        }
        self.version += 1;
        self.head_commit = batch.id;
        self.due_at = self.head.wake_at;
    }

    fn change_task(&mut self, run: RunNo, change: &TaskChange) {
        match change {
            TaskChange::Put {
                target,
                queue,
                op,
                priority,
                visible_at,
            } => {
                let row = TaskRow {
                    run,
                    target: target.clone(),
                    queue: queue.clone(),
                    op: op.clone(),
                    priority: *priority,
                    visible_at: *visible_at,
                    worker: None,
                    until: None,
                    leased: false,
                    stopping: false,
                };
                self.tasks.insert(target.clone(), row);
            }
            TaskChange::Lease {
                target,
                worker,
                until,
            } => {
                if let Some(task) = self.tasks.get_mut(target) {
                    task.worker = Some(worker.clone());
                    task.until = Some(*until);
                    task.leased = true;
                }
            }
            TaskChange::Delete { target } => {
                self.tasks.remove(target);
            }
            TaskChange::Stop { target } => {
                if let Some(task) = self.tasks.get_mut(target) {
                    task.stopping = true;
                }
            }
        }
    }
}
