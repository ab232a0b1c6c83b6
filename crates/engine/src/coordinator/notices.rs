//! Notices: everything that the coordinator tells its driver, oldest first. A notice is about something
//! that is committed, or refuses something that never will be. The driver performs notices; nothing in
//! the coordinator reads them back.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Claim, Claimed, Reply};
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;
use stepwell_kernel::trace::{TraceContext, execution_span};

use super::HotRun;
use crate::error::Error;
use crate::rows::target_name;
use crate::store::{MessageNo, NewAlert, RunNo, TaskRow};

/// Names the answer that a sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Work in this process whose claim is committed.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub run: RunNo,
    pub run_id: Arc<str>,
    /// The run that started this one and waits for it; absent if nothing did.
    pub parent: Option<Arc<str>>,
    pub tenancy: Tenancy,
    pub plan: Arc<Plan>,
    pub claimed: Claimed,
    /// What the work is a part of in a distributed trace.
    pub trace: Option<TraceContext>,
}

impl Assignment {
    /// The place in a trace of the work that a run has claimed; `of_run` is that of the run.
    pub(super) fn trace(
        of_run: Option<&TraceContext>,
        run_id: &str,
        plan: &Plan,
        claim: &Claim,
    ) -> Option<TraceContext> {
        let target = || target_name(plan, claim.target);
        let span = || execution_span(run_id, &target(), claim.execution);
        of_run.map(|trace| trace.below(&span()))
    }

    /// Work of a run.
    pub(super) fn of(hot: &HotRun, claimed: Claimed) -> Assignment {
        let parent = hot.state().parent();
        Assignment {
            run: hot.run(),
            run_id: Arc::clone(hot.run_id()),
            parent: parent.map(|it| it.run_id.as_str().into()),
            tenancy: Tenancy::of(hot.state().context()),
            plan: Arc::clone(hot.plan()),
            trace: Assignment::trace(
                hot.state().context().trace.as_ref(),
                hot.run_id(),
                hot.plan(),
                &claimed.claim,
            ),
            claimed,
        }
    }
}

/// Whose run it is: its tenant and its project. One allocation, because every piece of work has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    both: Arc<str>,
    /// Where the project begins.
    split: usize,
}

impl Tenancy {
    #[must_use]
    pub fn new(tenant: &str, project: &str) -> Tenancy {
        Tenancy {
            both: [tenant, project].concat().into(),
            split: tenant.len(),
        }
    }

    #[must_use]
    pub fn of(context: &RunContext) -> Tenancy {
        Tenancy::new(&context.tenant_id, &context.project_id)
    }

    #[must_use]
    pub fn tenant(&self) -> &str {
        self.both.get(..self.split).unwrap_or_default()
    }

    #[must_use]
    pub fn project(&self) -> &str {
        self.both.get(self.split..).unwrap_or_default()
    }
}

/// One thing that the driver is told.
#[derive(Debug)]
pub enum Notice {
    /// The answer to a command or to a start.
    Answer(Ticket, Result<Reply, Error>),
    /// The claim of this work is committed: the worker must start the work.
    Start(Box<Assignment>),
    /// This work is no longer wanted.
    Stop {
        run: RunNo,
        target: Target,
        execution: u32,
    },
    /// The session is lost, and with it the leases of all work of this process for the runs of this shard: the work
    /// must end at once, since others may begin it.
    SessionLost,
    /// There is work for a queue or operation that this process does not serve.
    Offer {
        run: RunNo,
        target: Target,
        /// Workers see the task from this time on.
        visible_at: Time,
    },
    /// A step waits until a person completes or approves the step.
    Person { run: RunNo, step: StepRef },
    /// The definition of a child run was not found.
    MissingChild {
        run: RunNo,
        /// The step that waits.
        step: StepRef,
        /// The request key that the child run would have.
        request_key: String,
        /// The path of the missing definition.
        path: String,
        /// The message that asks for the child run.
        mail: MessageNo,
    },
    /// A step sent an event to the outside.
    Published(RunNo, Json),
    /// An alert was raised.
    Alert(RunNo, NewAlert),
    /// Events of the run were committed.
    Changed {
        run: RunNo,
        /// The first of these events; behind `seq` if the driver is only told of a run that it did not know.
        first: u64,
        /// The last sequence number of the run.
        seq: u64,
    },
    /// A run that an engine outside moves has changed, or that engine is late with it.
    Driven(RunNo),
    /// Something of a run is due, and another engine moves the run, which this process does not serve. Told at every look.
    Unserved {
        run: RunNo,
        run_id: Arc<str>,
        engine: String,
        /// The last sequence number of the run: while it stays the same, nobody moves the run.
        seq: u64,
    },
    /// An execution of a step or of an undo failed, and another follows.
    Retried {
        run: RunNo,
        /// The execution was lost with its worker, and did not fail by itself.
        lost: bool,
    },
    /// The run has ended.
    Ended {
        run: RunNo,
        run_id: Arc<str>,
        plan: Arc<Plan>,
        outcome: RunOutcome,
    },
    /// Another shard of this engine must handle this.
    Elsewhere(Handoff),
}

/// What one shard of an engine found for another.
#[derive(Clone, Debug)]
pub enum Handoff {
    /// The time of a run has come; the store offers it to nobody else for a while.
    Due(RunNo),
    /// A task that is reserved for this server.
    Reserved(Box<TaskRow>),
    /// The first run in the queue, and there is a slot for it.
    Queued(RunNo),
    /// Messages were sent to runs that may be another shard's.
    Mailed,
    /// There is room to work again.
    Room,
}

/// The queue of what the driver is told.
#[derive(Debug, Default)]
pub(super) struct Notices {
    queue: VecDeque<Notice>,
}

impl Notices {
    pub(super) fn push(&mut self, notice: Notice) {
        self.queue.push_back(notice);
    }

    pub(super) fn extend(&mut self, notices: impl IntoIterator<Item = Notice>) {
        self.queue.extend(notices);
    }

    /// Queues the answer for the sender that holds the ticket.
    pub(super) fn answer(&mut self, ticket: Ticket, answer: Result<Reply, Error>) {
        self.push(Notice::Answer(ticket, answer));
    }

    /// Work of this process is no longer wanted.
    pub(super) fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        self.push(Notice::Stop {
            run,
            target,
            execution,
        });
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.queue.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_come_out_once_and_oldest_first() {
        let mut notices = Notices::default();
        notices.answer(Ticket(1), Ok(Reply::Done));
        notices.extend([Notice::Changed {
            run: RunNo(4),
            first: 8,
            seq: 9,
        }]);
        let told: Vec<Notice> = notices.drain().collect();
        assert!(matches!(
            told[0],
            Notice::Answer(Ticket(1), Ok(Reply::Done))
        ));
        assert!(matches!(
            told[1],
            Notice::Changed {
                run: RunNo(4),
                first: 8,
                seq: 9
            }
        ));
        assert_eq!(notices.drain().count(), 0);
    }
}
