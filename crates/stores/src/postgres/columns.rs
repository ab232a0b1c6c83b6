//! Appends as arrays, one for each column of a table: what a statement with UNNEST takes.

use std::collections::BTreeMap;

use stepwell_engine::store::{Append, Head, TaskChange};

/// The chunks and keys of appends.
#[derive(Default)]
pub(super) struct Chunks<'a> {
    pub(super) run: Vec<i64>,
    pub(super) after: Vec<i32>,
    pub(super) last: Vec<i32>,
    pub(super) codec: Vec<i16>,
    pub(super) body: Vec<&'a str>,
    pub(super) digests: Vec<&'a [u8]>,
    pub(super) guarded: Vec<bool>,
    pub(super) key_run: Vec<i64>,
    pub(super) key: Vec<&'a [u8]>,
}

impl<'a> Chunks<'a> {
    pub(super) fn with_room(appends: usize) -> Chunks<'a> {
        Chunks {
            run: Vec::with_capacity(appends),
            after: Vec::with_capacity(appends),
            last: Vec::with_capacity(appends),
            codec: Vec::with_capacity(appends),
            body: Vec::with_capacity(appends),
            digests: Vec::with_capacity(appends),
            guarded: Vec::with_capacity(appends),
            key_run: Vec::with_capacity(appends * 2),
            key: Vec::with_capacity(appends * 2),
        }
    }

    pub(super) fn push(&mut self, append: &'a Append, guarded: bool) {
        let Some(chunk) = &append.chunk else {
            return;
        };
        self.run.push(append.run.0);
        self.after.push(super::seq(append.after));
        self.last.push(super::seq(chunk.last));
        self.codec.push(chunk.codec);
        self.body.push(&chunk.body);
        self.digests.push(&chunk.digests);
        self.guarded.push(guarded);
        for key in &chunk.keys {
            self.key_run.push(append.run.0);
            self.key.push(key);
        }
    }
}

#[derive(Default)]
pub(super) struct Heads<'a> {
    pub(super) run: Vec<i64>,
    pub(super) session: Vec<Option<i64>>,
    pub(super) wake_at: Vec<Option<i64>>,
    pub(super) ended_at: Vec<Option<i64>>,
    pub(super) queued: Vec<bool>,
    pub(super) status: Vec<Option<&'a str>>,
    pub(super) substatus: Vec<Option<&'a str>>,
    pub(super) slots: Vec<Option<String>>,
}

impl<'a> Heads<'a> {
    /// Without a head its status is null.
    pub(super) fn push(&mut self, run: i64, head: Option<&'a Head>) {
        self.run.push(run);
        self.session.push(head.and_then(|it| Some(it.session?.0)));
        self.wake_at.push(head.and_then(|it| Some(it.wake_at?.0)));
        self.ended_at.push(head.and_then(|it| Some(it.ended_at?.0)));
        self.queued.push(head.is_some_and(|it| it.queued));
        self.status.push(head.map(|it| it.status.as_str()));
        self.substatus
            .push(head.and_then(|it| it.substatus.as_deref()));
        self.slots
            .push(head.and_then(|it| crate::slots_text(&it.slots)));
    }
}

/// The final change of one row of `tasks` in a commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskUpdate<'a> {
    pub(super) deleted: bool,
    pub(super) put: Option<(&'a str, &'a str, i32, i64)>,
    pub(super) lease: Option<(&'a str, i64)>,
    pub(super) stopped: bool,
}

/// The changes of an append, by target.
pub(super) fn task_updates(changes: &[TaskChange]) -> BTreeMap<&str, TaskUpdate<'_>> {
    let mut updates: BTreeMap<&str, TaskUpdate<'_>> = BTreeMap::new();
    for change in changes {
        match change {
            TaskChange::Put {
                target,
                queue,
                op,
                priority,
                visible_at,
            } => {
                let put = Some((queue.as_str(), op.as_str(), *priority, visible_at.0));
                let update = TaskUpdate {
                    put,
                    ..TaskUpdate::default()
                };
                updates.insert(target, update);
            }
            TaskChange::Delete { target } => {
                let update = TaskUpdate {
                    deleted: true,
                    ..TaskUpdate::default()
                };
                updates.insert(target, update);
            }
            TaskChange::Lease {
                target,
                worker,
                until,
            } => {
                let update = updates.entry(target).or_default();
                if !update.deleted {
                    update.lease = Some((worker, until.0));
                }
            }
            TaskChange::Stop { target } => {
                let update = updates.entry(target).or_default();
                update.stopped = !update.deleted;
            }
        }
    }
    updates
}

/// What no column can hold.
pub(super) fn out_of_range(append: &Append) -> Option<String> {
    let most = u64::from(i32::MAX.unsigned_abs());
    let last = append.chunk.as_ref().map_or(append.after, |it| it.last);
    let frozen = append.snapshot.as_ref().map_or(0, |it| it.seq);
    if last > most || append.after > most || frozen > most {
        return Some(format!("event numbers end at {most}"));
    }
    None
}
