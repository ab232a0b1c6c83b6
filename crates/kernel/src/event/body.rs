//! The table of events: one row for each type, with its number, its origin, its key and its data. Names, keys, the
//! list of types, the schemas and the tables in the documents derive from it, and every `match` over the events is
//! exhaustive: after a new row the compiler shows what else the type needs.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::parts::{
    AdmissionVerdict, ArtifactRef, Lease, LoopStart, Loss, OpaqueEvent, Parent, Patch, Rollback,
    Routing, RunContext, SkipReason, StepError, StopCause, SuccessKind, TaskKind, UndoResult,
    WaitKind, is_false, present,
};
use super::table::{Emitter, EventOrigin, at, attempt_of, events, id_of, ordinal_of, step_of};
use crate::command::ManualOutcome;
use crate::plan::{StepNo, StepRef};
use crate::time::Time;

events! {
    /// The lifecycle of the run: each changes its phase, its approval or its pause.
    run_events {
        /// The run was created. The first event of every run.
        #[event(0, Additive, Engine, key(run, 1, 0))]
        RunCreated {
            /// Hash of the plan that the run is pinned to.
            plan_hash: String,
            /// The run's parameters: the workload with the request merged over it.
            params: Arc<Json>,
            /// The tenant, project and environment of the run, and who started the run.
            context: RunContext,
            /// The run and step that wait for this run; absent if no run has started it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            parent: Option<Parent>,
            /// The id of the run that this run repeats; absent if it repeats none.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            original_run_id: Option<String>,
            /// When the run may start at the earliest; absent: at once.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            start_after: Option<Time>,
        },
        /// The run waits for a slot.
        #[event(1, Contract, Engine, key(run, 1, 0))]
        RunQueued {},
        /// The run may start.
        #[event(2, Contract, Planner, key(run, 1, 0))]
        RunApproved {
            /// The person who approved the run; absent when no approval is needed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
            /// The reason that the person gave; absent if none was given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
        },
        /// The run has started.
        #[event(3, Contract, Engine, key(run, 1, 0))]
        RunStarted {
            /// `native`, `temporal`, `conductor` or `mock`.
            engine: String,
            /// The id that the engine itself has given to the run.
            engine_run_ref: String,
            /// Whether the first token may enter its step.
            #[serde(default, skip_serializing_if = "AdmissionVerdict::is_allowed")]
            entry: AdmissionVerdict,
            /// When the run times out; absent: never.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            deadline: Option<Time>,
        },
        /// The run was paused: no new work starts, and work in flight ends.
        #[event(10, Contract, Engine, key(run, ordinal, 0))]
        RunPaused {
            /// The number of the pause in the run, from 1.
            ordinal: u32,
            /// When an alert is raised if work in flight has not ended; absent: never.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            drain_deadline: Option<Time>,
        },
        /// The pause ended: new work starts again.
        #[event(11, Contract, Engine, key(run, ordinal, 0))]
        RunResumed {
            /// The number of the pause that ended, from 1.
            ordinal: u32,
        },
        /// All steps but the final step have ended.
        #[event(31, Additive, Engine, key(run, 1, 0))]
        RunFinalizing {
            /// The summary that the final step gets.
            summary: Arc<Json>,
            /// Whether the token of the final step may enter.
            #[serde(default, skip_serializing_if = "AdmissionVerdict::is_allowed")]
            entry: AdmissionVerdict,
        },
        /// The run is stopping: no step starts and no failure is retried.
        #[event(32, Additive, Engine, key(run, 1, seq))]
        RunStopping {
            /// Why the run stops.
            #[serde(flatten)]
            cause: StopCause,
            /// Whether the completed steps are undone.
            compensate: bool,
        },
        /// The run has succeeded. A last event.
        #[event(12, Contract, Engine, key(run, 1, 0))]
        RunCompleted {
            /// Whether a failure was left that the policy of the plan accepts.
            success: SuccessKind,
        },
        /// The run has failed. A last event.
        #[event(13, Contract, Engine, key(run, 1, 0))]
        RunFailed {
            /// Why the run failed.
            error: StepError,
            /// Whether the completed steps were undone.
            #[serde(default)]
            rollback: Rollback,
            /// The result of each undo.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            undos: Vec<UndoResult>,
        },
        /// The run was cancelled. A last event.
        #[event(14, Contract, Engine, key(run, 1, 0))]
        RunCancelled {
            /// The person or system that cancelled the run; absent if unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
            /// The reason that the sender of the cancel gave; absent if none was given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
            /// Whether the completed steps were undone.
            #[serde(default)]
            rollback: Rollback,
            /// The result of each undo.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            undos: Vec<UndoResult>,
        },
    }

    /// Notices about the run: what came from outside, and what the engine noticed. No notice changes the phase of the
    /// run, and no notice starts or ends work.
    notice_events {
        /// A signal passed all checks and takes effect.
        #[event(8, Contract, System, key(signal_id, 1, 0))]
        SignalAccepted {
            /// The id that the sender chose; a second signal with this id is ignored.
            signal_id: String,
            /// The type of the signal, such as `PAUSE`.
            signal: String,
            /// The id of the person or system that sent the signal.
            by: String,
            /// The reason that the sender gave; absent if none was given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
            /// The payload of the signal; absent if it has none.
            #[serde(default, skip_serializing_if = "Json::is_null")]
            payload: Json,
        },
        /// A signal was refused and changed nothing.
        #[event(9, Contract, System, key(signal_id, 1, 0))]
        SignalRejected {
            /// The id that the sender chose; a second signal with this id is ignored.
            signal_id: String,
            /// The type of the signal, such as `PAUSE`.
            signal: String,
            /// The id of the person or system that sent the signal.
            by: String,
            /// The code of the refusal, for programs.
            code: String,
            /// The reason of the refusal, for people.
            message: String,
        },
        /// An external event came before any step waited for it. The run keeps the event.
        #[event(28, Additive, Engine, key(event_id, 1, 0))]
        EventReceived {
            /// The id that the sender chose; a second event with this id is ignored.
            event_id: String,
            /// The type of the external event, which a step that waits for events names.
            event_type: String,
            /// The content of the external event.
            payload: Arc<Json>,
        },
        /// A person or system outside the run changed ctx.
        #[event(24, Additive, Engine, key(run, 1, seq))]
        CtxPatched {
            /// The id of the person or system that changed ctx.
            by: String,
            /// The changed variables of ctx with their new values.
            ctx: Patch,
        },
        /// The parameters of steps that start later changed.
        #[event(25, Additive, Engine, key(run, 1, seq))]
        ParamsUpdated {
            /// All parameters after the change.
            params: Arc<Json>,
        },
        /// The input of later attempts of one step changed.
        #[event(26, Additive, Engine, key(run, 1, seq))]
        OverrideInjected {
            /// The number of the step in the plan.
            step: StepNo,
            /// The object that is merged over the input of the step.
            value: Arc<Json>,
        },
        /// Later executions of one step go to another target.
        #[event(27, Additive, Engine, key(run, 1, seq))]
        TargetUpdated {
            /// The number of the step in the plan.
            step: StepNo,
            /// The new target, as the signal gave it.
            target: Arc<Json>,
        },
        /// Work in flight did not end in time after a pause.
        #[event(29, Additive, Engine, key(run, ordinal, 0))]
        PauseDrainTimedOut {
            /// The number of the pause in the run, from 1.
            ordinal: u32,
            /// The number of executions that have not ended.
            in_flight: u32,
        },
        /// Nothing can move: only tokens that may not enter and incomplete joins are left.
        #[event(30, Additive, Engine, key(run, 1, seq))]
        RunStalled {
            /// The tokens and joins that cannot move, in words.
            stuck: Vec<String>,
            /// When the run fails if nothing changes.
            deadline: Time,
        },
    }

    /// What happens to a step-run before its end.
    step_events {
        /// The first execution of a logical attempt was claimed.
        #[event(4, Contract, Holder, key(step, logical, 0))]
        StepStarted {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// The number of the execution. A result must carry this number, so a late result of an earlier
            /// execution is refused.
            execution: u32,
            /// The worker that claimed the execution; absent if no worker is needed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            lease: Option<Lease>,
            /// The items of the loop; absent if the step has no loop.
            #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
            each: Option<LoopStart>,
        },

        /// A later execution of the same logical attempt was claimed.
        #[event(15, Additive, Worker, key(step, logical, execution))]
        StepExecutionStarted {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// The number of the execution. A result of an earlier execution is refused.
            execution: u32,
            /// The worker that claimed the execution, and until when.
            lease: Lease,
            /// Ordinary work, or a wait that ran out.
            #[serde(default, skip_serializing_if = "TaskKind::is_ready_step")]
            task: TaskKind,
        },
        /// An execution failed and another follows.
        #[event(16, Additive, Holder, key(step, logical, execution))]
        StepExecutionFailed {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// The number of the execution. A result of an earlier execution is refused.
            execution: u32,
            /// The error of this execution.
            error: StepError,
            /// When the next execution can be claimed at the earliest.
            retry_at: Time,
            /// How the execution counts if it was lost; absent: as an attempt.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            loss: Option<Loss>,
        },
        /// The step waits without a worker.
        #[event(17, Additive, Engine, key(step, logical, seq))]
        StepWaiting {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// The number of the execution that let the step wait; the number of the last execution if no worker
            /// did.
            execution: u32,
            /// What the step waits for.
            wait: WaitKind,
            /// When the wait ends at the latest; absent: no limit.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            deadline: Option<Time>,
            /// The hash of the completion token; absent if no person is needed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            token_hash: Option<String>,
            /// The events that the engine publishes when the wait begins.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            outbound: Vec<Json>,
            /// The data that the worker gets back when the step runs again.
            #[serde(
                default,
                deserialize_with = "present",
                skip_serializing_if = "Option::is_none"
            )]
            memo: Option<Arc<Json>>,
        },
        /// A person answered for a step that waits. The next event is what follows from the answer.
        #[event(39, Additive, System, key(step, 1, seq))]
        StepAnswered {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// The number of the execution that waits for the person.
            execution: u32,
            /// What the person answered.
            outcome: ManualOutcome,
            /// The person who answered.
            by: String,
            /// When the person completed the work, as the person says.
            completed_at: Time,
            /// Why, in the words of the person; absent if the person said nothing.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            notes: Option<String>,
            /// Ids of evidence, or references to it.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            evidence_refs: Vec<String>,
            /// SHA-256 of the output that the person gave, lower-case hex; absent if the person gave none. A repeated
            /// answer is compared with it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            output_sha256: Option<String>,
        },
        /// A person has approved, and more approvals are needed.
        #[event(18, Additive, Engine, key(step, 1, seq))]
        StepApproved {
            /// The step-run that the event is about.
            step: StepRef,
            /// The number of the execution that waits for approval.
            execution: u32,
            /// The person who approved.
            by: String,
            /// The number of approvals so far, this approval included.
            approvals: u32,
        },
        /// The wait is over and the step can be claimed.
        #[event(19, Additive, Engine, key(step, 1, seq))]
        StepWoken {
            /// The step-run that the event is about.
            step: StepRef,
            /// The number of the execution that waited.
            execution: u32,
            /// The id of the external event that ended the wait; absent if no event did.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            event_id: Option<String>,
            /// The content of the event, or the result of the child; absent for an approval and for a timer.
            #[serde(
                default,
                deserialize_with = "present",
                skip_serializing_if = "Option::is_none"
            )]
            payload: Option<Arc<Json>>,
            /// The person who approved; absent if no person ended the wait.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
        },
        /// A failed step waits for an operator.
        #[event(21, Additive, Engine, key(step, 1, seq))]
        StepHeld {
            /// The step-run that the event is about.
            step: StepRef,
            /// When the run stops if no operator has acted.
            until: Time,
        },
        /// An operator asked for a new logical attempt.
        #[event(22, Additive, Engine, key(step, logical, 0))]
        StepRetried {
            /// The step-run that the event is about.
            step: StepRef,
            /// The number of the new logical attempt.
            logical: u32,
        },
    }

    /// The end of a step-run, and where its tokens go.
    outcome_events {
        /// The step has succeeded.
        #[event(5, Contract, Holder, key(step, logical, 0))]
        StepCompleted {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// The number of the execution. A result of an earlier execution is refused.
            execution: u32,
            /// The output of the work; absent if the work returned none.
            #[serde(
                default,
                deserialize_with = "present",
                skip_serializing_if = "Option::is_none"
            )]
            output: Option<Arc<Json>>,
            /// References to the artifacts of the step.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            artifacts: Vec<ArtifactRef>,
            /// The changed variables of ctx with their new values.
            #[serde(default, skip_serializing_if = "Patch::is_empty")]
            ctx: Patch,
            /// The edges that got a token. Absent if the tokens move later, and if every edge gets a token.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            routing: Option<Routing>,
            /// The person who completed the step; absent if a worker did.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
        },
        /// The step has failed for good in this logical attempt.
        #[event(6, Contract, Holder, key(step, logical, 0))]
        StepFailed {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// The number of the execution. A result of an earlier execution is refused.
            execution: u32,
            /// The error of the last execution, or why the step was stopped.
            error: StepError,
            /// Whether the step was stopped and did not fail by itself.
            #[serde(default, skip_serializing_if = "is_false")]
            cancelled: bool,
            /// Whether nobody knows how far the work came: it was cut off in the middle. It is undone like work that
            /// is done.
            #[serde(default, skip_serializing_if = "is_false")]
            unknown: bool,
            /// The person who reported the failure; absent if a worker or the engine did.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
        },
        /// The step will not run.
        #[event(7, Contract, Engine, key(step, logical, 0))]
        StepSkipped {
            /// The step-run that the event is about.
            step: StepRef,
            /// The logical attempt, from 1; RETRY_STEP raises it.
            logical: u32,
            /// Why the step will not run.
            reason: SkipReason,
        },
        /// The tokens of a finished step moved some time after its end (after a pause or a failure).
        #[event(20, Additive, Engine, key(step, 1, seq))]
        StepRouted {
            /// The step-run that the event is about.
            step: StepRef,
            /// The edges that got a token.
            routing: Routing,
        },
        /// Tokens that had been denied may enter now.
        #[event(23, Additive, Engine, key(run, 1, seq))]
        TokensAdmitted {
            /// The visits that the tokens are for, oldest first.
            tokens: Vec<StepRef>,
        },
    }

    /// The undoing of a run.
    undo_events {
        /// The undoing of the completed steps began.
        #[event(33, Additive, Engine, key(run, 1, 0))]
        CompensationStarted {
            /// The step-runs to undo, in this order.
            undo: Vec<StepRef>,
            /// The step-runs that have no undo.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            not_compensable: Vec<StepRef>,
        },
        /// A person or system cancelled the run while it was being undone.
        #[event(38, Additive, Engine, key(run, 1, 0))]
        CompensationInterrupted {
            /// The person or system that cancelled; absent if unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            by: Option<String>,
            /// The reason of the cancel; absent if none was given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
        },
        /// An execution of an undo was claimed.
        #[event(34, Additive, Worker, key(step, 1, seq))]
        UndoStarted {
            /// The step-run that is being undone.
            step: StepRef,
            /// The number of the execution of the undo, from 1.
            execution: u32,
            /// The worker that claimed the execution, and until when.
            lease: Lease,
        },
        /// An execution of an undo failed and another follows.
        #[event(35, Additive, Worker, key(step, 1, seq))]
        UndoExecutionFailed {
            /// The step-run whose undo failed once.
            step: StepRef,
            /// The number of the execution of the undo, from 1.
            execution: u32,
            /// The error of this execution.
            error: StepError,
            /// When the next execution can be claimed at the earliest.
            retry_at: Time,
            /// How the execution counts if it was lost; absent: as an attempt.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            loss: Option<Loss>,
        },
        /// The step is undone.
        #[event(36, Additive, Worker, key(step, 1, 0))]
        UndoCompleted {
            /// The step-run that is undone now.
            step: StepRef,
            /// The number of the execution of the undo, from 1.
            execution: u32,
        },
        /// The step could not be undone.
        #[event(37, Additive, Worker, key(step, 1, 0))]
        UndoFailed {
            /// The step-run that could not be undone.
            step: StepRef,
            /// The number of the execution of the undo, from 1.
            execution: u32,
            /// The error of the last execution.
            error: StepError,
        },
    }
}

impl Body {
    /// The name of the type.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.event_type().name()
    }

    /// The name of the type as the log has it, also for a type that this version does not know.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Body::Opaque(opaque) => &opaque.name,
            run_events!()
            | notice_events!()
            | step_events!()
            | outcome_events!()
            | undo_events!() => self.kind(),
        }
    }

    /// Whether the event changes ctx.
    #[must_use]
    pub fn patches_ctx(&self) -> bool {
        match self {
            Body::StepCompleted { ctx, routing, .. } => {
                let sets = |routing: &Routing| !routing.set.is_empty();
                !ctx.is_empty() || routing.as_ref().is_some_and(sets)
            }
            Body::StepRouted { routing, .. } => !routing.set.is_empty(),
            Body::CtxPatched { .. } => true,
            Body::SignalAccepted { .. }
            | Body::SignalRejected { .. }
            | Body::EventReceived { .. }
            | Body::ParamsUpdated { .. }
            | Body::OverrideInjected { .. }
            | Body::TargetUpdated { .. }
            | Body::PauseDrainTimedOut { .. }
            | Body::RunStalled { .. }
            | Body::StepFailed { .. }
            | Body::StepSkipped { .. }
            | Body::TokensAdmitted { .. }
            | Body::Opaque(_)
            | run_events!()
            | step_events!()
            | undo_events!() => false,
        }
    }

    /// Whether this is a last event: nothing can follow.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Body::RunCompleted { .. } | Body::RunFailed { .. } | Body::RunCancelled { .. }
        )
    }
}
