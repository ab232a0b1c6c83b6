//! Messages between this server and others, as bookkeeping: which messages are being handled here, which
//! answers of other servers are awaited, and whether the mailbox must be looked into. What a message
//! means is in `messages` and `children`.

use stepwell_kernel::command::Reply;
use stepwell_kernel::rejection::{Code, Rejection};

use super::{MessageAnswer, Notices, Ticket};
use crate::error::Error;
use crate::number_map::NumberSet;
use crate::shard::Shard;
use crate::store::{MessageNo, MessageState, SessionNo, Store, StoreError, StoredMessage};

/// How many new messages are asked for at a time.
const PAGE: usize = 256;

/// What was read from the mailbox.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// Messages, oldest first; some may be in the middle of being handled.
    pub(super) messages: Vec<StoredMessage>,
    /// There may be more messages behind these.
    pub(super) has_more: bool,
}

/// Messages that are being handled, and answers that are awaited.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Messages that a command or a draft of this server deals with; they are not read once more.
    handling: NumberSet<MessageNo>,
    /// Messages to other servers whose senders wait for the answer here.
    awaited: Vec<(MessageNo, Ticket)>,
    /// The store's change counter when the mailbox was read last.
    changes: i64,
    /// There may be messages, whatever the counter says.
    look: bool,
}

impl Inbox {
    /// The mailbox is to be read with the next tick.
    pub(super) fn look(&mut self) {
        self.look = true;
    }

    pub(super) fn must_look(&self) -> bool {
        self.look
    }

    /// Begins with a message. Says whether nobody has begun with it before.
    pub(super) fn begin(&mut self, message: MessageNo) -> bool {
        self.handling.insert(message)
    }

    /// A message is done, or is left in the mailbox to be read again.
    pub(super) fn end(&mut self, message: MessageNo) {
        self.handling.remove(&message);
    }

    pub(super) fn is_handling(&self, message: MessageNo) -> bool {
        self.handling.contains(&message)
    }

    /// Reads the mailbox, if `poll` asks for it, `look` did, or the store says that something changed.
    pub(super) fn read(
        &mut self,
        store: &dyn Store,
        session: SessionNo,
        shard: Shard,
        poll: bool,
    ) -> Result<Page, StoreError> {
        let asked = std::mem::take(&mut self.look);
        let changes = store.news()?;
        if !asked && !poll && changes == self.changes {
            return Ok(Page::default());
        }
        self.changes = changes;
        // Messages that are being handled are still there: without this they would hide those behind them.
        // The same goes for messages that are other shards'.
        let limit = PAGE.saturating_add(self.handling.len());
        let limit = limit.saturating_mul(shard.count());
        let messages = store.mail(session, limit)?;
        let has_more = messages.len() == limit;
        Ok(Page { messages, has_more })
    }

    /// A sender here waits for what another server answers to a message.
    pub(super) fn await_answer(&mut self, message: MessageNo, ticket: Ticket) {
        self.awaited.push((message, ticket));
    }

    /// Passes on what other servers have answered.
    pub(super) fn read_answers(
        &mut self,
        store: &dyn Store,
        notices: &mut Notices,
    ) -> Result<(), StoreError> {
        let mut awaited = std::mem::take(&mut self.awaited).into_iter();
        while let Some((message, ticket)) = awaited.next() {
            match store.take_answer(message) {
                Ok(MessageState::Waiting) => self.awaited.push((message, ticket)),
                Ok(MessageState::Taken) => notices.answer(ticket, Ok(Reply::Done)),
                Ok(MessageState::Answered(text)) => {
                    let answer = match MessageAnswer::read(&text) {
                        MessageAnswer::Known(first) => Ok(Reply::Duplicate(Box::new(first))),
                        MessageAnswer::Refused(why) => Err(refusal(&why)),
                    };
                    notices.answer(ticket, answer);
                }
                Err(error) => {
                    self.awaited.push((message, ticket));
                    self.awaited.extend(awaited);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// A refusal that another server has written down. A code that this version does not know is of a newer
/// server; the message still says why.
fn refusal(text: &str) -> Error {
    let (code, message) = text.split_once(": ").unwrap_or(("", text));
    let known = Code::ALL.iter().find(|it| it.name() == code);
    Rejection::new(*known.unwrap_or(&Code::InvalidTransition), message).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Notice;
    use crate::coordinator::fixture::store_with;
    use crate::store::MemoryStore;
    use stepwell_kernel::time::Time;

    #[test]
    fn a_message_is_begun_once_until_it_is_ended() {
        let mut inbox = Inbox::default();
        assert!(inbox.begin(MessageNo(1)));
        assert!(!inbox.begin(MessageNo(1)));
        assert!(inbox.is_handling(MessageNo(1)));
        inbox.end(MessageNo(1));
        assert!(inbox.begin(MessageNo(1)));
    }

    #[test]
    fn the_mailbox_is_read_when_asked_polled_or_changed() {
        let store = MemoryStore::default();
        let mut inbox = Inbox::default();
        inbox.look();
        assert!(inbox.must_look());
        inbox.read(&store, SessionNo(1), Shard::ALL, false).unwrap();
        assert!(!inbox.must_look(), "asked for once");
    }

    #[test]
    fn messages_that_are_being_handled_hide_none_behind_them() {
        let (store, runs) = store_with(1);
        let numbers: Vec<MessageNo> = (0..PAGE + 10)
            .map(|_| store.post(runs[0], "{}", Time(1)).unwrap())
            .collect();
        let mut inbox = Inbox::default();
        let first = inbox.read(&*store, SessionNo(1), Shard::ALL, true).unwrap();
        assert!(first.has_more);
        assert_eq!(first.messages.len(), PAGE);
        for message in first.messages {
            assert!(inbox.begin(message.no));
        }
        let next = inbox.read(&*store, SessionNo(1), Shard::ALL, true).unwrap();
        assert!(!next.has_more);
        let last = next.messages.last().map(|message| message.no);
        assert_eq!(last, numbers.last().copied());
    }

    #[test]
    fn a_written_refusal_has_its_code_again() {
        let lost = Rejection::new(Code::LeaseLost, "the lease has ended");
        assert_eq!(refusal(&lost.to_string()), Error::Rejected(lost));
        let other = refusal("SOMETHING_NEW: no");
        assert!(matches!(other, Error::Rejected(it) if it.code == Code::InvalidTransition));
    }

    #[test]
    fn an_awaited_answer_is_passed_on_once() {
        let (store, runs) = store_with(1);
        let store = &*store;
        let message = store.post(runs[0], "{}", Time(1)).unwrap();
        let (mut inbox, mut notices) = (Inbox::default(), Notices::default());
        inbox.await_answer(message, Ticket(5));
        inbox.read_answers(store, &mut notices).unwrap();
        assert_eq!(notices.drain().count(), 0, "it lies there");
        store.answer(message, "LEASE_LOST: too late").unwrap();
        inbox.read_answers(store, &mut notices).unwrap();
        let told: Vec<Notice> = notices.drain().collect();
        assert!(matches!(told[..], [Notice::Answer(Ticket(5), Err(_))]));
        inbox.read_answers(store, &mut notices).unwrap();
        assert_eq!(notices.drain().count(), 0);
    }
}
