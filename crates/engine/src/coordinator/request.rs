//! A command on its way through the coordinator: the origin of the command, the guard that its commit
//! needs, and the answer that the kernel gave. Values only; the rules are in `decisions`.

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::time::Time;

use super::Ticket;
use crate::store::{Guard, MessageNo, RunNo};

/// A command on its way to a run.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) command: Command,
    pub(super) origin: Origin,
    /// Must hold when the command is committed.
    pub(super) guard: Option<Guard>,
    /// How many commits of this command were lost to others.
    pub(super) retries: u8,
    /// When the command came, if it had to wait since: it is late only if it came late.
    pub(super) came: Option<Time>,
}

/// Where a command comes from, which says how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A sender that waits for the answer under this ticket.
    Sender(Ticket),
    /// A message; `reply` if its sender looks for an answer.
    Message { no: MessageNo, reply: bool },
    /// A run that waits for the child that is created; the message `mail` is done once the child exists.
    Parent { run: RunNo, mail: MessageNo },
    /// The coordinator itself. Nobody waits for an answer.
    Coordinator,
}

/// A request with the kernel's answer to it.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(super) request: Request,
    pub(super) answer: Result<Reply, Rejection>,
}

impl Decided {
    /// Whether this is an event that the store gave to a run that waited for it, and that came when the run had ended: by
    /// its deadline, for example. The event goes back, for another run. A sender that named the run looks for an answer.
    pub(super) fn goes_back(&self) -> bool {
        let request = &self.request;
        matches!(request.origin, Origin::Message { reply: false, .. })
            && matches!(request.command, Command::DeliverEvent { .. })
            && matches!(&self.answer, Err(why) if why.code == Code::RunTerminal)
    }
}

impl Request {
    pub(super) fn new(command: Command, origin: Origin) -> Request {
        Request {
            command,
            origin,
            guard: None,
            retries: 0,
            came: None,
        }
    }

    /// A command of the coordinator itself.
    pub(super) fn own(command: Command) -> Request {
        Request::new(command, Origin::Coordinator)
    }

    /// A command that counts only if `guard` holds when it is committed.
    pub(super) fn guarded(self, guard: Guard) -> Request {
        Request {
            guard: Some(guard),
            ..self
        }
    }

    /// Whether this is the end of a lease, found by asking the store: it is found again if it is still
    /// so. Decided later, by a clock that may have been set back, it would take a run over with its
    /// leases alive.
    pub(super) fn is_found(&self) -> bool {
        self.origin == Origin::Coordinator && self.guard.is_some()
    }

    /// The message that the command came with.
    pub(super) fn message(&self) -> Option<MessageNo> {
        match self.origin {
            Origin::Message { no, .. } => Some(no),
            Origin::Sender(_) | Origin::Parent { .. } | Origin::Coordinator => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_guarded_commands_of_the_coordinator_are_found_again() {
        let own = Request::own(Command::Proceed);
        assert!(!own.is_found());
        assert!(own.guarded(Guard::Session).is_found());
        let sent = Request::new(Command::Proceed, Origin::Sender(Ticket(1)));
        assert!(!sent.guarded(Guard::Session).is_found());
    }

    #[test]
    fn a_request_knows_its_message() {
        let origin = Origin::Message {
            no: MessageNo(7),
            reply: true,
        };
        assert_eq!(
            Request::new(Command::Proceed, origin).message(),
            Some(MessageNo(7))
        );
        assert_eq!(Request::own(Command::Proceed).message(), None);
    }
}
