//! The inbox: events from outside that are not addressed to a run, and the steps that wait for them.
//! A step begins and ends to wait by appends (`WaitChange`).

use std::borrow::Cow;

use stepwell_kernel::time::Time;

use super::{MessageNo, Result, RunNo, StoreError, StoreErrorKind};

/// Takes events from outside.
pub trait Inbox {
    /// Delivers events in their order, in one transaction, and answers in the same order. An event goes
    /// to the run of its tenant that has waited longest for its type and key (by the time of the batch, then run
    /// and step), as a message; or it is kept until a step waits, which gets the oldest event (by time, then
    /// id). Delivery and wait meet under one lock, so neither misses the other.
    ///
    /// Durable on return: the events, and the messages to the runs that get them.
    ///
    /// Crash before the return: all events are there or none is; the sender delivers them again.
    ///
    /// Twice: the same id of one tenant counts once, also inside one call; the second event is answered with `Again`.
    fn deliver_all(&self, events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>>;

    /// Events of a tenant, type and key that are kept, oldest first (by time, then id): those after `after`. They stay kept:
    /// a process that acts on them must find out by other means what was done before.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the events as they are then.
    fn kept(
        &self,
        tenant: &str,
        event_type: &str,
        key: &str,
        after: (Time, &str),
        limit: usize,
    ) -> Result<Vec<InboxEvent>>;

    /// Takes the message of an event out of the mailbox of a run that could not take the event any more, and delivers
    /// the event to another run that waits for it, or keeps it: all in one transaction. `Again` if the message was taken
    /// before.
    ///
    /// Durable on return: that the message is gone, and where the event is.
    ///
    /// Crash before the return: both or nothing; the message is then read once more. Twice: counts once.
    fn give_back(&self, message: MessageNo, event: &OutsideEvent, now: Time) -> Result<Delivered>;

    /// Delivers one event.
    ///
    /// Durable on return: the event. Crash before the return: as with `deliver_all`. Twice: counts once.
    fn deliver(&self, event: &OutsideEvent, now: Time) -> Result<Delivered> {
        let answers = self.deliver_all(std::slice::from_ref(event), now)?;
        let missing = || StoreError::new(StoreErrorKind::Internal, "a delivery has no answer");
        answers.first().copied().ok_or_else(missing)
    }
}

/// An event from outside that is not addressed to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideEvent {
    /// The tenant of the sender: only runs of this tenant may get the event.
    pub tenant: String,
    /// Unique for the tenant: an id that is delivered twice counts once.
    pub id: String,
    /// What steps wait for.
    pub event_type: String,
    /// The `event_key` of the runs that may get it.
    pub key: String,
    /// The content, as JSON text.
    pub payload: String,
    /// The message to the run that gets it, as JSON text.
    pub mail: String,
}

/// The key of events for everyone: no run has it. They are kept, and what they trigger is started
/// (`stepwell run --idle`).
pub const TRIGGER_KEY: &str = "";

/// The tenant of events and runs that nobody gave one. Events in stores of versions that kept no tenant are of it.
pub const LOCAL_TENANT: &str = "local";

/// What the stored form of a name begins with that says its tenant. A statement of the PostgreSQL store writes the same
/// form.
const TENANT_MARK: char = '\u{1f}';

/// The id or the key of an event as the inbox of a database has it: as it is for the tenant `local`, with its tenant for
/// the others. Two tenants never have the same form, whatever names they choose: the form has the length of the tenant.
#[must_use]
pub fn name_of_tenant<'a>(tenant: &str, name: &'a str) -> Cow<'a, str> {
    match tenant == LOCAL_TENANT && !name.starts_with(TENANT_MARK) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(format!("{TENANT_MARK}{}:{tenant}{name}", tenant.len())),
    }
}

/// The tenant and the name that `name_of_tenant` made a form of.
#[must_use]
pub fn tenant_and_name(form: &str) -> (&str, &str) {
    let marked = form.strip_prefix(TENANT_MARK);
    let parts = marked.and_then(|it| it.split_once(':'));
    let split = parts.and_then(|(length, rest)| rest.split_at_checked(length.parse().ok()?));
    split.unwrap_or((LOCAL_TENANT, form))
}

/// An event that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEvent {
    pub id: String,
    /// When it was delivered.
    pub since: Time,
    /// The content, as JSON text.
    pub payload: String,
}

/// The result of delivering an external event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The event is in the mailbox of this run, which waited for it.
    ToRun(RunNo),
    /// The event is kept until a step waits for it.
    Kept,
    /// An event with this id had been delivered before.
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tenants_have_the_same_form_of_a_name() {
        let forged = name_of_tenant("acme", "K").into_owned();
        let names = [
            ("local", "K"),
            ("local", ""),
            ("local", forged.as_str()),
            ("acme", "K"),
            ("acme", ""),
            ("acm", "eK"),
            ("", "K"),
            ("1:a", "K"),
        ];
        let mut forms = std::collections::HashSet::new();
        for (tenant, name) in names {
            let form = name_of_tenant(tenant, name).into_owned();
            assert_eq!(tenant_and_name(&form), (tenant, name));
            assert!(forms.insert(form), "{tenant} {name}");
        }
        assert_eq!(
            name_of_tenant("local", "K"),
            "K",
            "as older versions wrote it"
        );
    }
}
