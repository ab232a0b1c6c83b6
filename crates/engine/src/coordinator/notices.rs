//! Notices: everything that the coordinator tells its driver, oldest first. A notice is about something
//! that is committed, or refuses something that never will be. The driver performs notices; nothing in
//! the coordinator reads them back.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Claimed, Reply};
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;

use crate::error::Error;
use crate::store::{MessageNo, NewAlert, RunNo};

/// Names the answer that a sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Work in this process whose claim is committed.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub run: RunNo,
    pub run_id: Arc<str>,
    pub plan: Arc<Plan>,
    pub claimed: Claimed,
}

/// One thing that the driver is told.
#[derive(Debug)]
pub enum Notice {
    /// The answer to a command or to a start.
    Answer(Ticket, Result<Reply, Error>),
    /// Do this work.
    Start(Box<Assignment>),
    /// This work is no longer wanted.
    Stop {
        run: RunNo,
        /// Which work.
        target: Target,
        execution: u32,
    },
    /// There is work that nobody here serves.
    Offer {
        run: RunNo,
        /// Which work.
        target: Target,
        /// Not before.
        visible_at: Time,
    },
    /// A person must answer.
    Person {
        run: RunNo,
        /// Which step waits.
        step: StepRef,
    },
    /// A child's definition was not found.
    MissingChild {
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
        run: RunNo,
        /// Its last sequence number.
        seq: u64,
    },
    /// The run has ended.
    Ended(RunNo, Arc<str>, RunOutcome),
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

    /// Answers a sender.
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
                seq: 9
            }
        ));
        assert_eq!(notices.drain().count(), 0);
    }
}
