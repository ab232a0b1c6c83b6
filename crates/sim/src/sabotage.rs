//! Bugs that are put in on purpose: a simulator that has never found one proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_engine::store::{
    Append, AppendResult, Batch, CommitId, Store, TaskChange, WaitChange,
};

use stepwell_kernel::plan::{
    Dialect, EntryPoint, ErrorClass, FinalFailure, Join, LoopMode, MaxInFlight, Net, OnDenied,
    OnFailure, OnLoopFailure, Route, StepNo, UndoMode, Unhandled,
};

use crate::rng::Rng;

macro_rules! sabotages {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What is broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Sabotage {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Sabotage {
            /// All kinds of sabotage.
            pub const ALL: &[Sabotage] = &[$(Sabotage::$name,)+];
        }
    };
}

sabotages! {
    // The store, when it commits.
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
    /// The store keeps work for others that is done.
    KeepTasks,
    /// The store loses who waits for which event.
    DropWaits,
    /// The store keeps waits that are over.
    KeepWaits,
    /// The store never frees a slot.
    LeakSlots,
    /// The store never takes a slot.
    UncountedSlots,
    /// The store loses markers of the outbox.
    DropMarkers,
    /// The store does not write that a run has ended.
    ForgetEnd,
    /// The store does not write which session a run belongs to.
    LoseOwner,
    /// The store does not write that a run waits for a slot.
    LoseQueued,
    /// The store changes a bit of the log.
    FlipBit,
    /// The store changes a bit of a hash.
    FlipDigest,
    /// The store commits only the first append of a batch.
    PartialBatch,
    /// The store answers that an append is committed which it refused.
    LieAboutRefusals,
    /// The store does not remove messages that were taken.
    TakeNothing,
    /// The store does not keep the key of a start request.
    LoseRequestKey,
    /// The disk says that it has synced and has not.
    LyingDisk,
    /// Bringing a store of an earlier release up to date loses rows.
    LoseInUpgrade,
    // The store, when it is asked.
    /// The store does not say which servers are dead.
    HideTheDead,
    /// The store does not say which runs are due.
    HideDue,
    /// The store does not say which runs wait for a slot.
    HideQueued,
    /// The store does not show messages.
    HideMail,
    /// The store does not say which leases are over.
    HideExpired,
    /// The store gives no work to workers of other processes.
    HideTasks,
    /// The store says that an event from outside is kept and forgets it.
    ForgetDelivery,
    /// The store reads a run without the end of its log.
    StaleReads,
    /// The store gives markers of the outbox for other chunks than those that were marked.
    WrongMarkers,
    /// The store takes a failed delivery for a delivery.
    ForgetFailures,
    /// The store gives the first plan in place of any other.
    MixUpPlans,
    // Who does the work.
    /// The driver starts work before its claim is committed.
    StartEarly,
    /// The worker starts the same work twice.
    WorkTwice,
    /// The worker reports with the number of another execution.
    WrongExecution,
    /// The worker gets other parameters than the run has.
    WrongParams,
    /// Every execution has the same fence.
    SameFence,
    /// The worker forgets how far a pipeline came before it waited.
    ForgetMemo,
    /// The worker reports a secret.
    LeakSecret,
    // The engine.
    /// An answer of the store is lost inside of the process.
    LoseAnswers,
    /// The clock of a server stands still.
    StopClock,
    // The rules: a plan that is not what the definition says.
    /// Every step has one attempt less.
    FewerAttempts,
    /// Every step has one attempt more.
    MoreAttempts,
    /// Steps have no undo.
    DropUndo,
    /// Every undo has one attempt less.
    FewerUndoAttempts,
    /// Completed steps are undone after every failure.
    AlwaysUndo,
    /// Completed steps are never undone.
    NeverUndo,
    /// A failed undo ends the undoing where it must go on, and the reverse.
    FlipUndoMode,
    /// A failed step is skipped where the run must stop.
    SkipFailures,
    /// The run stops where a failed step must be skipped.
    StopOnSkip,
    /// A dependency between two steps is lost.
    DropEdge,
    /// Wrong input is tried again.
    RetryInvalid,
    /// Nothing is tried again.
    NeverRetry,
    /// A retry does not wait.
    NoBackoff,
    /// A run times out that has no timeout.
    AddTimeout,
    // The rules of playbooks.
    /// All arcs that match are taken where only the first must be, and the reverse.
    FlipRouteMode,
    /// Every guard of an arc holds.
    DropGuards,
    /// Tokens carry no arguments.
    DropArgs,
    /// Nothing sets a variable of the run.
    DropSets,
    /// Every token may enter.
    DropAdmission,
    /// Denied tokens are removed where they must wait, and the reverse.
    FlipDenied,
    /// A step runs for each token where it must wait for all.
    NeverJoin,
    /// Loops have one item more at a time.
    WidenLoops,
    /// A failed item ends the loop where it must go on, and the reverse.
    FlipLoopFailure,
    /// The final step does not run.
    DropFinalStep,
    /// A failure that nothing handles is accepted where the run must fail, and the reverse.
    FlipCompletion,
    /// A failure of the final step is accepted where the run must fail, and the reverse.
    FlipFinalFailure,
    /// A token that has nowhere to go is an error where it is not, and the reverse.
    FlipNoNext,
    /// A failure stops the run where the other branches must finish, and the reverse.
    FlipFailFast,
    /// The run begins with its last step.
    WrongEntry,
    /// Failed work is tried again although no rule says so.
    RetryFailures,
}

impl Sabotage {
    /// The sabotage of this name, as `{:?}` writes it.
    #[must_use]
    pub fn find(name: &str) -> Option<Sabotage> {
        let mut all = Sabotage::ALL.iter();
        all.find(|it| format!("{it:?}") == name).copied()
    }

    /// Whether the plans of drawn definitions are made wrong, so that only their runs show it.
    #[must_use]
    pub fn is_of_rules(self) -> bool {
        let place = |it: Sabotage| Sabotage::ALL.iter().position(|other| *other == it);
        place(self) >= place(Sabotage::FewerAttempts)
    }

    /// The drawn workloads that can show a wrong rule.
    #[must_use]
    pub fn drawn_workloads(self) -> &'static [&'static str] {
        let place = |it: Sabotage| Sabotage::ALL.iter().position(|other| *other == it);
        match place(self) >= place(Sabotage::FlipRouteMode) {
            true => &["drawn-playbook"],
            false => &["drawn-actions", "drawn-dag", "drawn-linear"],
        }
    }

    /// Changes a compiled definition, so that the engine follows other rules.
    pub(crate) fn spoil_net(self, net: &mut Net) {
        if net.dialect == Dialect::Playbook {
            return self.spoil_playbook(net);
        }
        for step in &mut net.steps {
            match self {
                Sabotage::FewerAttempts => {
                    step.retry.max_executions = (step.retry.max_executions - 1).max(1);
                }
                Sabotage::MoreAttempts => step.retry.max_executions += 1,
                Sabotage::DropUndo => step.undo = None,
                Sabotage::FewerUndoAttempts => {
                    step.undo
                        .iter_mut()
                        .for_each(|it| it.retry.max_executions = 1);
                }
                Sabotage::AlwaysUndo | Sabotage::NeverUndo => {
                    if let OnFailure::Stop { compensate } = &mut step.on_failure {
                        *compensate = self == Sabotage::AlwaysUndo;
                    }
                }
                Sabotage::SkipFailures => step.on_failure = OnFailure::Skip,
                Sabotage::StopOnSkip if step.on_failure == OnFailure::Skip => {
                    step.on_failure = OnFailure::Stop { compensate: false };
                }
                Sabotage::RetryInvalid => step.retry.classes.push(ErrorClass::Validation),
                Sabotage::NeverRetry => step.retry.classes.clear(),
                Sabotage::NoBackoff => step.retry.backoff.initial_ms = 1,
                _ => {}
            }
        }
        match self {
            Sabotage::DropEdge => drop(net.edges.pop()),
            Sabotage::AddTimeout => net.policy.timeout_ms = Some(600_000),
            Sabotage::FlipUndoMode => {
                net.policy.undo_mode = match net.policy.undo_mode {
                    UndoMode::Continue => UndoMode::Stop,
                    UndoMode::Stop => UndoMode::Continue,
                };
            }
            _ => {}
        }
    }
}

impl Sabotage {
    fn spoil_playbook(self, net: &mut Net) {
        let last = u32::try_from(net.steps.len()).unwrap_or(1) - 1;
        for step in &mut net.steps {
            match self {
                Sabotage::FlipRouteMode => {
                    step.route = match step.route {
                        Route::Inclusive => Route::Exclusive,
                        _ => Route::Inclusive,
                    };
                }
                Sabotage::DropSets => step.set_ctx.clear(),
                Sabotage::DropAdmission => step.admit = None,
                Sabotage::FlipDenied => {
                    if let Some(admit) = &mut step.admit {
                        admit.denied = match admit.denied {
                            OnDenied::Pending => OnDenied::Discard,
                            OnDenied::Discard => OnDenied::Pending,
                        };
                    }
                }
                Sabotage::NeverJoin => step.join = Join::Each,
                Sabotage::WidenLoops => {
                    if let Some(each) = &mut step.each {
                        each.max_in_flight = match (each.mode, &each.max_in_flight) {
                            (LoopMode::Parallel, MaxInFlight::Fixed(most)) => {
                                MaxInFlight::Fixed(most + 1)
                            }
                            _ => MaxInFlight::Fixed(2),
                        };
                        each.mode = LoopMode::Parallel;
                    }
                }
                Sabotage::FlipLoopFailure => {
                    if let Some(each) = &mut step.each {
                        each.on_failure = match each.on_failure {
                            OnLoopFailure::Fail => OnLoopFailure::Continue,
                            OnLoopFailure::Continue => OnLoopFailure::Fail,
                        };
                    }
                }
                Sabotage::RetryFailures => {
                    step.retry.max_executions = 5;
                    step.retry.classes = vec![ErrorClass::Transient, ErrorClass::Timeout];
                }
                _ => {}
            }
        }
        for edge in &mut net.edges {
            match self {
                Sabotage::DropGuards => edge.when = None,
                Sabotage::DropArgs => edge.args = None,
                Sabotage::DropSets => edge.set_ctx.clear(),
                _ => {}
            }
        }
        let policy = &mut net.policy;
        match self {
            Sabotage::DropFinalStep => policy.final_step = None,
            Sabotage::FlipCompletion => {
                policy.unhandled = match policy.unhandled {
                    Unhandled::Fail => Unhandled::Partial,
                    Unhandled::Partial => Unhandled::Fail,
                    Unhandled::Stop => Unhandled::Stop,
                };
            }
            Sabotage::FlipFinalFailure => {
                policy.final_failure = match policy.final_failure {
                    FinalFailure::Fail => FinalFailure::Partial,
                    FinalFailure::Partial => FinalFailure::Fail,
                };
            }
            Sabotage::FlipNoNext => policy.no_next_is_error = !policy.no_next_is_error,
            Sabotage::FlipFailFast => {
                policy.unhandled = match policy.unhandled {
                    Unhandled::Stop => Unhandled::Fail,
                    Unhandled::Fail | Unhandled::Partial => Unhandled::Stop,
                };
            }
            Sabotage::WrongEntry => policy.entry = EntryPoint::Step(StepNo(last)),
            _ => {}
        }
    }
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
        store: &dyn Store,
        batch: &Batch,
        rng: &mut Rng,
    ) -> stepwell_engine::store::Result<Vec<AppendResult>> {
        let mut batch = batch.clone();
        let count = batch.appends.len();
        if how == Sabotage::ForgetCommit && rng.one_in(12) {
            return Ok(vec![AppendResult::Committed; count]);
        }
        if how == Sabotage::PartialBatch {
            batch.appends.truncate(1);
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
        let mut outcomes = store.commit(&batch)?;
        if how == Sabotage::LieAboutRefusals {
            outcomes.fill(AppendResult::Committed);
        }
        outcomes.resize(count, AppendResult::Committed);
        Ok(outcomes)
    }
}

fn spoil(
    how: Sabotage,
    store: &dyn Store,
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
        Sabotage::KeepTasks => append
            .tasks
            .retain(|change| matches!(change, TaskChange::Put { .. })),
        Sabotage::KeepWaits => append
            .waits
            .retain(|change| matches!(change, WaitChange::Put { .. })),
        Sabotage::LeakSlots => append.slots.retain(|slot| slot.change > 0),
        Sabotage::UncountedSlots => append.slots.retain(|slot| slot.change < 0),
        Sabotage::TakeNothing => append.taken.clear(),
        Sabotage::ForgetEnd => {
            append.head.iter_mut().for_each(|head| head.ended_at = None);
        }
        Sabotage::LoseOwner => append.head.iter_mut().for_each(|head| head.session = None),
        Sabotage::LoseQueued => append.head.iter_mut().for_each(|head| head.queued = false),
        Sabotage::LoseRequestKey => {
            append
                .create
                .iter_mut()
                .for_each(|it| it.request_key = None);
        }
        Sabotage::FlipBit if rng.one_in(20) => {
            if let Some(chunk) = &mut append.chunk
                && let Some(at) = chunk.body.rfind(|it: char| it.is_ascii_digit())
            {
                let other = if chunk.body[at..].starts_with('0') {
                    "1"
                } else {
                    "0"
                };
                chunk.body.replace_range(at..=at, other);
            }
        }
        Sabotage::FlipDigest if rng.one_in(20) => {
            if let Some(chunk) = &mut append.chunk
                && let Some(byte) = chunk.digests.last_mut()
            {
                *byte ^= 1;
            }
        }
        Sabotage::DropMarkers if rng.one_in(10) => append.sinks.clear(),
        _ => {}
    }
    Ok(())
}

/// Makes an append fit the run as it is now, whatever it was decided on.
fn move_on(store: &dyn Store, append: &mut Append) -> stepwell_engine::store::Result<()> {
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
