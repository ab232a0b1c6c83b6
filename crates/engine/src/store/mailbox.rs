//! The mailbox: messages to runs, and the answers to them. A message is how a command reaches a run
//! that another server owns.

use stepwell_kernel::time::Time;

use super::{MessageNo, Result, RunNo, SessionNo};

/// Sends messages to runs, and keeps the answers for the senders.
pub trait Mailbox {
    /// Puts a message into a run's mailbox. A message to a run that does not exist is dropped.
    ///
    /// Durable on return: the message.
    ///
    /// Crash after the return: the run's owner, or whichever server takes the run over, reads it.
    ///
    /// Twice: two messages. The commands in them carry keys, so the kernel does the same thing once.
    fn post(&self, to: RunNo, body: &str, now: Time) -> Result<MessageNo>;

    /// Unanswered messages to runs that no session owns or that `session` owns, oldest first.
    ///
    /// Durable on return: reads only. Crash: nothing to recover; a message stays until an append takes
    /// it (`Append::taken`) or it is answered. Twice: the messages that are there then.
    fn mail(&self, session: SessionNo, limit: usize) -> Result<Vec<StoredMessage>>;

    /// Answers a message, which then stays until its sender has read the answer.
    ///
    /// Durable on return: the answer. An answer to a message that is gone is dropped.
    ///
    /// Crash before the return: the message is answered or will be read and answered again.
    ///
    /// Twice: the first answer counts, because its sender may be reading it.
    fn answer(&self, mail: MessageNo, answer: &str) -> Result<()>;

    /// Asks for the answer to a message. Reading an answer removes the message.
    ///
    /// Durable on return: the removal of an answered message.
    ///
    /// Crash after the return: the answer is lost with its reader; what the message asked for is done.
    ///
    /// Twice: `Taken` after an answer was read.
    fn take_answer(&self, mail: MessageNo) -> Result<MessageState>;

    /// A number that changes when another process may have posted something, delivered an event or changed a document; cheap to ask for. It says
    /// when to look, never what is there: a server also looks from time to time without a change.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the same until a message is posted.
    fn news(&self) -> Result<i64>;
}

/// A message in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Later messages have larger numbers.
    pub no: MessageNo,
    /// The run that it is for.
    pub run: RunNo,
    /// The content, as JSON text.
    pub body: String,
}

/// The state of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// The message is neither taken nor answered.
    Waiting,
    /// The message was taken without an answer, or its answer was read already.
    Taken,
    Answered(String),
}
