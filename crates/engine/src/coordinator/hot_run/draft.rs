//! What is decided for a run and goes into one commit: the append under construction, its events, and
//! who is told once it is committed (`Draft`); what of it stays here while the append is on its way
//! (`Flight`); what is left when it was not committed (`Uncommitted`).

use stepwell_kernel::command::Claimed;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::Event;
use stepwell_kernel::time::Time;

use crate::coordinator::Notice;
use crate::coordinator::request::{Decided, Request};
use crate::seats::Place;
use crate::store::{Append, Guard, MessageNo, NewAlert, NewMessage, NewRun, RunNo, SlotChange};

/// Work that the commit offers to workers in other processes.
#[derive(Clone, Copy, Debug)]
pub(in crate::coordinator) struct Offer {
    pub(in crate::coordinator) target: Target,
    /// Workers see the task from this time on.
    pub(in crate::coordinator) visible_at: Time,
}

/// What is decided for a run and goes into one commit.
#[derive(Debug)]
pub(in crate::coordinator) struct Draft {
    /// The rows so far; `seal` adds the chunk, the head and what follows from both.
    pub(super) append: Append,
    pub(super) events: Vec<Event>,
    pub(super) decided: Vec<Decided>,
    /// Work of this process that the commit claims.
    pub(super) starts: Vec<Claimed>,
    /// Work that is offered and that nobody waits for, as far as is known.
    pub(super) offers: Vec<Offer>,
    /// Work that the commit claims for workers in other processes.
    pub(super) handed: Vec<(Place, Claimed)>,
    /// Said once it is committed.
    pub(super) notices: Vec<Notice>,
    /// What the head's slots become, where that changes.
    pub(super) holds: Option<Vec<String>>,
    /// The hash of the last event before the draft, once the chunk is written.
    pub(super) before: String,
    /// The store may have another head by now, of a commit that was given up.
    pub(super) doubts_head: bool,
}

/// What of a draft stays here while its append is on its way.
#[derive(Debug)]
pub(in crate::coordinator) struct Flight {
    decided: Vec<Decided>,
    starts: Vec<Claimed>,
    offers: Vec<Offer>,
    handed: Vec<(Place, Claimed)>,
    notices: Vec<Notice>,
    sent_at: Time,
    /// The time that the events of the append have as the time of their append.
    pub(super) emitted_at: Time,
    /// The hash of the last event before the append; empty for an append without events.
    pub(super) before: String,
    /// An answer was lost: the append may be in the store, and must stay as it is.
    pub(super) is_doubtful: bool,
}

/// What follows from a draft that was committed.
#[derive(Debug)]
pub(in crate::coordinator) struct Committed {
    pub(in crate::coordinator) decided: Vec<Decided>,
    pub(in crate::coordinator) starts: Vec<Claimed>,
    pub(in crate::coordinator) offers: Vec<Offer>,
    pub(in crate::coordinator) handed: Vec<(Place, Claimed)>,
    pub(in crate::coordinator) notices: Vec<Notice>,
}

/// What is left of a draft that was not committed.
#[derive(Debug)]
pub(in crate::coordinator) struct Uncommitted {
    pub(in crate::coordinator) create: Option<Box<NewRun>>,
    /// Messages that the draft took without a command.
    pub(in crate::coordinator) discarded: Vec<MessageNo>,
    pub(in crate::coordinator) decided: Vec<Decided>,
    /// Work whose claim never happened.
    pub(in crate::coordinator) claimed: Vec<Target>,
}

impl Draft {
    pub(super) fn new(run: RunNo, after: u64) -> Draft {
        Draft {
            append: Append::new(run, after),
            events: Vec::new(),
            decided: Vec::new(),
            starts: Vec::new(),
            offers: Vec::new(),
            handed: Vec::new(),
            notices: Vec::new(),
            holds: None,
            before: String::new(),
            doubts_head: false,
        }
    }

    pub(super) fn append(&mut self) -> &mut Append {
        &mut self.append
    }

    pub(super) fn add_events(&mut self, events: Vec<Event>) {
        match self.events.is_empty() {
            true => self.events = events,
            false => self.events.extend(events),
        }
    }

    /// The commit creates the run.
    pub(super) fn create(&mut self, new: Box<NewRun>) {
        self.append.create = Some(new);
    }

    pub(super) fn set_event_key(&mut self, key: String) {
        if let Some(create) = &mut self.append.create {
            create.event_key = key;
        }
    }

    pub(super) fn decided(&mut self, decided: Decided) {
        self.decided.push(decided);
    }

    pub(in crate::coordinator) fn has_guard(&self, guard: &Guard) -> bool {
        self.append.guards.contains(guard)
    }

    /// The commit counts only if this holds.
    pub(in crate::coordinator) fn guard(&mut self, guard: &Guard) {
        if !self.has_guard(guard) {
            self.append.guards.push(guard.clone());
        }
    }

    /// An earlier commit was given up and may be in the store before this one: what this one does not write is not
    /// known to be as it was read.
    pub(in crate::coordinator) fn doubt_head(&mut self) {
        self.doubts_head = true;
    }

    /// The commit claims work for this process.
    pub(in crate::coordinator) fn claim(&mut self, claimed: Claimed) {
        self.starts.push(claimed);
    }

    /// The commit claims work for a worker in another process.
    pub(in crate::coordinator) fn hand(&mut self, place: Place, claimed: Claimed) {
        self.handed.push((place, claimed));
    }

    /// The commit takes a message that needs nothing done.
    pub(in crate::coordinator) fn discard(&mut self, message: MessageNo) {
        self.append.taken.push(message);
    }

    /// The commit sends a message.
    pub(in crate::coordinator) fn send(&mut self, message: NewMessage) {
        self.append.mail.push(message);
    }

    pub(super) fn send_all(&mut self, messages: impl IntoIterator<Item = NewMessage>) {
        self.append.mail.extend(messages);
    }

    pub(super) fn alert(&mut self, alert: NewAlert) {
        self.append.alerts.push(alert);
    }

    /// Something to be told once it is committed.
    pub(in crate::coordinator) fn tell(&mut self, notice: Notice) {
        self.notices.push(notice);
    }

    /// The commit takes these slots, each with how many there are.
    pub(in crate::coordinator) fn take_slots(&mut self, slots: Vec<(String, u32)>) {
        self.holds = Some(slots.iter().map(|(key, _)| key.clone()).collect());
        let changes = slots.into_iter().map(|(key, limit)| SlotChange {
            key,
            change: 1,
            limit: Some(limit),
        });
        self.append.slots.extend(changes);
    }

    /// The commit frees the slots that the run holds: those of the head, unless this very draft has taken
    /// others.
    pub(super) fn free_slots(&mut self, of_head: Vec<String>) {
        let held = self.holds.replace(Vec::new()).unwrap_or(of_head);
        let changes = held.into_iter().map(|key| SlotChange {
            key,
            change: -1,
            limit: None,
        });
        self.append.slots.extend(changes);
    }

    /// The append on its way, and what stays here meanwhile.
    pub(super) fn send_off(self: Box<Self>, now: Time) -> (Append, Flight) {
        let flight = Flight {
            decided: self.decided,
            starts: self.starts,
            offers: self.offers,
            handed: self.handed,
            notices: self.notices,
            sent_at: now,
            emitted_at: now,
            before: self.before,
            is_doubtful: false,
        };
        (self.append, flight)
    }

    pub(super) fn into_uncommitted(self: Box<Self>) -> Uncommitted {
        let (append, flight) = self.send_off(Time(0));
        flight.into_uncommitted(&append)
    }
}

impl Flight {
    /// The requests that the commit answers.
    pub(super) fn decided(&self) -> &[Decided] {
        &self.decided
    }

    pub(in crate::coordinator) fn sent_at(&self) -> Time {
        self.sent_at
    }

    /// It is not known whether the append is in the store.
    pub(in crate::coordinator) fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Whether an answer was lost: the append may be in the store, or come there yet.
    pub(in crate::coordinator) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    pub(in crate::coordinator) fn first(&self) -> Option<&Request> {
        self.decided.first().map(|it| &it.request)
    }

    /// Changes the requests, for a commit that is to be decided otherwise the next time.
    pub(in crate::coordinator) fn requests_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        self.decided.iter_mut().map(|it| &mut it.request)
    }

    /// The commit is in the log: who is answered, which work starts, what else is said.
    pub(in crate::coordinator) fn into_committed(self) -> Committed {
        Committed {
            decided: self.decided,
            starts: self.starts,
            offers: self.offers,
            handed: self.handed,
            notices: self.notices,
        }
    }

    /// The commit is not in the log.
    pub(in crate::coordinator) fn into_uncommitted(self, append: &Append) -> Uncommitted {
        let decided = |no: &MessageNo| {
            self.decided
                .iter()
                .any(|it| it.request.message() == Some(*no))
        };
        let discarded = append.taken.iter().filter(|no| !decided(no));
        Uncommitted {
            create: append.create.clone(),
            discarded: discarded.copied().collect(),
            claimed: self.starts.iter().map(|it| it.claim.target).collect(),
            decided: self.decided,
        }
    }
}

impl Uncommitted {
    /// The requests, to be decided again.
    pub(in crate::coordinator) fn requests(self) -> impl Iterator<Item = Request> {
        self.decided.into_iter().map(|it| it.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::request::Origin;
    use stepwell_kernel::command::{Command, Reply};

    fn draft() -> Draft {
        Draft::new(RunNo(1), 5)
    }

    #[test]
    fn a_run_frees_what_its_head_holds_or_what_its_draft_took() {
        let mut ended = draft();
        ended.free_slots(vec!["a".to_owned()]);
        assert_eq!(ended.append.slots[0].key, "a");
        let mut both = draft();
        both.take_slots(vec![("b".to_owned(), 3)]);
        both.free_slots(vec!["a".to_owned()]);
        let changes: Vec<_> = both
            .append
            .slots
            .iter()
            .map(|it| (&*it.key, it.change))
            .collect();
        assert_eq!(changes, [("b", 1), ("b", -1)]);
        assert_eq!(both.holds, Some(Vec::new()));
    }

    #[test]
    fn a_message_with_a_command_is_not_discarded_when_the_commit_is_lost() {
        let mut draft = draft();
        draft.discard(MessageNo(1));
        draft.discard(MessageNo(2));
        let origin = Origin::Message {
            no: MessageNo(2),
            reply: false,
        };
        draft.decided(Decided {
            request: Request::new(Command::Proceed, origin),
            answer: Ok(Reply::Done),
        });
        let lost = Box::new(draft).into_uncommitted();
        assert_eq!(lost.discarded, [MessageNo(1)]);
        assert_eq!(lost.requests().count(), 1);
    }

    #[test]
    fn a_guard_is_asked_for_once() {
        let mut draft = draft();
        draft.guard(&Guard::Session);
        draft.guard(&Guard::Session);
        assert_eq!(draft.append.guards.len(), 1);
    }
}
