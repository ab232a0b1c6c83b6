//! What is said to a coordinator and what it says: requests on their way in, answers and news on their way
//! out.

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Claimed, Command, Reply};
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;

use crate::error::Error;
use crate::store::{Guard, MessageNo, NewAlert, RunNo};

/// What a sender knows its answer by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a sender gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The kernel's reply.
    Reply(Reply),
    /// The run that was started, or had been started by the same request.
    Run(String),
}

/// Work in this process whose claim is committed.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The run.
    pub run: RunNo,
    /// Its id.
    pub run_id: Arc<str>,
    /// Its plan.
    pub plan: Arc<Plan>,
    /// What was claimed.
    pub claimed: Claimed,
}

/// What the coordinator has to say. Everything in it is committed.
#[derive(Debug)]
pub enum Notice {
    /// An answer.
    Answer(Ticket, Result<Answer, Error>),
    /// Do this work.
    Start(Box<Assignment>),
    /// This work is no longer wanted.
    Stop {
        /// The run.
        run: RunNo,
        /// Which work.
        target: Target,
        /// Which execution.
        execution: u32,
    },
    /// There is work that nobody here serves.
    Offer {
        /// The run.
        run: RunNo,
        /// Which work.
        target: Target,
        /// Not before.
        visible_at: Time,
    },
    /// A person must answer.
    Person {
        /// The run.
        run: RunNo,
        /// Which step waits.
        step: StepRef,
    },
    /// A child's definition was not found.
    MissingChild {
        /// The run.
        run: RunNo,
        /// The step that waits.
        step: StepRef,
        /// The child's key.
        request_key: String,
        /// What was looked for.
        path: String,
        /// The message that asks for it.
        mail: MessageNo,
    },
    /// A step sent an event to the outside.
    Published(RunNo, Json),
    /// An alert was raised.
    Alert(RunNo, NewAlert),
    /// Events were committed.
    Changed {
        /// The run.
        run: RunNo,
        /// Its last sequence number.
        seq: u64,
    },
    /// The run has ended.
    Ended(RunNo, Arc<str>, RunOutcome),
}

/// A command on its way.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) from: Origin,
    pub(crate) guard: Option<Guard>,
    pub(crate) retries: u8,
}

/// Who a command comes from, and how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Someone who waits for the answer.
    Sender(Ticket),
    /// A message; `reply` if its sender looks for an answer.
    Message { no: MessageNo, reply: bool },
    /// A run that waits for the child that is created; its message is done once the child is there.
    Parent { run: RunNo, mail: MessageNo },
    /// The coordinator itself.
    Coordinator,
}

impl Request {
    /// The end of a lease, found by asking the store: it is found again if it is still so. Decided
    /// later, by a clock that may have been set back, it would take a run over with its leases alive.
    pub(super) fn is_found(&self) -> bool {
        self.from == Origin::Coordinator && self.guard.is_some()
    }

    pub(super) fn own(command: Command) -> Request {
        Request {
            command,
            from: Origin::Coordinator,
            guard: None,
            retries: 0,
        }
    }
}
