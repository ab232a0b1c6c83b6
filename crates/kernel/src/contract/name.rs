//! The names of the fields that events have in the contract's view, in the order of canonical JSON. What
//! the fields hold is said in `fields`.

/// Defines the names. They stand in the order that canonical JSON wants them in.
macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        /// The name of a field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each is the name that it stands for")]
        pub enum FieldName {
            $($name,)*
        }

        impl FieldName {
            pub const ALL: &[FieldName] = &[$(FieldName::$name,)*];

            /// The name as JSON has it, without quotes.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(FieldName::$name => $text,)*
                }
            }

            /// The name as it begins a member: in quotes, with a colon.
            #[must_use]
            pub const fn member(self) -> &'static str {
                match self {
                    $(FieldName::$name => concat!("\"", $text, "\":"),)*
                }
            }
        }
    };
}

names! {
    AcceptedAt = "acceptedAt",
    AnsweredBy = "answeredBy",
    Approvals = "approvals",
    ApprovedAt = "approvedAt",
    ApprovedBy = "approvedBy",
    ArtifactRefs = "artifactRefs",
    AwaitedEventType = "awaitedEventType",
    CancelledAt = "cancelledAt",
    CancelledBy = "cancelledBy",
    Cause = "cause",
    ChangedBy = "changedBy",
    Code = "code",
    Compensate = "compensate",
    CompletedAt = "completedAt",
    Context = "context",
    CreatedAt = "createdAt",
    Deadline = "deadline",
    DrainDeadline = "drainDeadline",
    DurationMs = "durationMs",
    EmittedAt = "emittedAt",
    EmittedBy = "emittedBy",
    EngineAttemptId = "engineAttemptId",
    EngineRunRef = "engineRunRef",
    EngineType = "engineType",
    Error = "error",
    EventId = "eventId",
    EventType = "eventType",
    EvidenceRefs = "evidenceRefs",
    ExternalEventId = "externalEventId",
    ExternalEventType = "externalEventType",
    FailedAt = "failedAt",
    Handled = "handled",
    IdempotencyKey = "idempotencyKey",
    InFlight = "inFlight",
    Keys = "keys",
    LogicalAttemptId = "logicalAttemptId",
    Message = "message",
    NotCompensable = "notCompensable",
    Notes = "notes",
    OriginalRunId = "originalRunId",
    Outcome = "outcome",
    ParentRunId = "parentRunId",
    ParentStepId = "parentStepId",
    PausedAt = "pausedAt",
    PlanRef = "planRef",
    PlanVersion = "planVersion",
    QueuedAt = "queuedAt",
    Reason = "reason",
    RejectedAt = "rejectedAt",
    RequestedBy = "requestedBy",
    ResumedAt = "resumedAt",
    RetryAt = "retryAt",
    RunId = "runId",
    RunSeq = "runSeq",
    SignalId = "signalId",
    SignalType = "signalType",
    SkippedAt = "skippedAt",
    StartAfter = "startAfter",
    StartedAt = "startedAt",
    Status = "status",
    StepId = "stepId",
    StepIds = "stepIds",
    Stuck = "stuck",
    Substatus = "substatus",
    Until = "until",
    WaitingFor = "waitingFor",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::fields::ENVELOPE;
    use super::super::view::fields_of;
    use super::FieldName;
    use crate::event::EventType;

    #[test]
    fn names_stand_in_the_order_of_canonical_json() {
        let names = FieldName::ALL.iter().map(|name| name.as_str());
        assert!(names.is_sorted_by(|a, b| a < b));
        assert!(FieldName::ALL.is_sorted());
    }

    /// `occurredAt` is for events that are measured elsewhere; none of ours is.
    #[test]
    fn every_field_of_the_contract_has_its_name() {
        let named: BTreeSet<&str> = FieldName::ALL.iter().map(|name| name.as_str()).collect();
        let types = EventType::ALL.iter().copied();
        let fields = types.flat_map(|it| ENVELOPE.iter().chain(fields_of(it)));
        let mut known: BTreeSet<&str> = fields.map(|field| field.name).collect();
        assert!(known.remove("occurredAt"));
        known.insert("eventType");
        assert_eq!(named, known);
    }
}
