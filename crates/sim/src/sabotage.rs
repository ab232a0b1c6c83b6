//! Bugs that are put in on purpose: a simulator that has never found one proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_engine::store::{Append, Batch, CommitId, MemoryStore, TaskChange, WaitChange};
use stepwell_engine::store::{AppendResult, Commits as _, RunReader as _};

use crate::rng::Rng;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The store looks at no guard.
    IgnoreGuards,
    /// The store takes an append although the run has moved.
    AcceptMoved,
    /// The store loses messages.
    DropMail,
    /// The store loses the time a run is to be woken at.
    LoseWakeAt,
    /// The store says that a commit is done and forgets it.
    ForgetCommit,
    /// The store does not recognise a batch that is sent again.
    ApplyTwice,
    /// The store loses work for others.
    DropTasks,
    /// The store loses who waits for which event.
    DropWaits,
    /// The store never frees a slot.
    LeakSlots,
    /// The store loses markers of the outbox.
    DropMarkers,
    /// The store does not say which servers are dead.
    HideTheDead,
    /// The driver starts work before its claim is committed.
    StartEarly,
}

impl Sabotage {
    /// All kinds of sabotage.
    pub const ALL: [Sabotage; 12] = [
        Sabotage::IgnoreGuards,
        Sabotage::AcceptMoved,
        Sabotage::DropMail,
        Sabotage::LoseWakeAt,
        Sabotage::ForgetCommit,
        Sabotage::ApplyTwice,
        Sabotage::DropTasks,
        Sabotage::DropWaits,
        Sabotage::LeakSlots,
        Sabotage::DropMarkers,
        Sabotage::HideTheDead,
        Sabotage::StartEarly,
    ];
}

/// State that some kinds of sabotage need between commits.
#[derive(Debug, Default)]
pub(crate) struct Saboteur {
    seen: BTreeSet<CommitId>,
    fresh: i64,
}

impl Saboteur {
    /// Commits a batch with something broken.
    pub(crate) fn commit(
        &mut self,
        how: Sabotage,
        store: &MemoryStore,
        batch: &Batch,
        rng: &mut Rng,
    ) -> stepwell_engine::store::Result<Vec<AppendResult>> {
        let mut batch = batch.clone();
        if how == Sabotage::ForgetCommit && rng.one_in(12) {
            return Ok(vec![AppendResult::Committed; batch.appends.len()]);
        }
        if how == Sabotage::ApplyTwice && !self.seen.insert(batch.id) {
            self.fresh -= 1;
            batch.id.number = self.fresh;
            for append in &mut batch.appends {
                move_on(store, append)?;
                append.chunk.iter_mut().for_each(|it| it.keys.clear());
            }
        }
        for append in &mut batch.appends {
            spoil(how, store, append, rng)?;
        }
        store.commit(&batch)
    }
}

fn spoil(
    how: Sabotage,
    store: &MemoryStore,
    append: &mut Append,
    rng: &mut Rng,
) -> stepwell_engine::store::Result<()> {
    match how {
        Sabotage::IgnoreGuards => append.guards.clear(),
        Sabotage::AcceptMoved => move_on(store, append)?,
        Sabotage::DropMail if rng.one_in(3) => append.mail.clear(),
        Sabotage::LoseWakeAt if rng.one_in(3) => {
            append.head.iter_mut().for_each(|head| head.wake_at = None);
        }
        Sabotage::DropTasks => append
            .tasks
            .retain(|change| !matches!(change, TaskChange::Put { .. })),
        Sabotage::DropWaits => append
            .waits
            .retain(|change| !matches!(change, WaitChange::Put { .. })),
        Sabotage::LeakSlots => append.slots.retain(|slot| slot.change > 0),
        Sabotage::DropMarkers if rng.one_in(10) => append.sinks.clear(),
        _ => {}
    }
    Ok(())
}

/// Makes an append fit the run as it is now, whatever it was decided on.
fn move_on(store: &MemoryStore, append: &mut Append) -> stepwell_engine::store::Result<()> {
    let Some(stored) = store.load(append.run)? else {
        return Ok(());
    };
    let last = stored.chunks.last().map_or(0, |chunk| chunk.last);
    append.after = last;
    append.create = None;
    if let Some(chunk) = &mut append.chunk {
        let length = chunk.last - chunk.first;
        chunk.first = last + 1;
        chunk.last = chunk.first + length;
    } else {
        append.head_version = Some(stored.head_version);
    }
    let lies: BTreeMap<_, _> = stored.mail.iter().map(|mail| (mail.no, ())).collect();
    append.taken.retain(|no| lies.contains_key(no));
    Ok(())
}
