//! What starts runs: due times of a schedule, and events that are kept in the store.

use std::collections::HashMap;

use serde_json::Value as Json;
use stepwell_dialects::trigger::{EventTrigger, Schedule, Trigger};
use stepwell_engine::store::{InboxEvent, Store, StoreError, TRIGGER_KEY};
use stepwell_kernel::time::Time;

/// An event may be stored this much later than its time says: its sender's clock is slow, or the store did not answer.
const LATE_MS: u64 = 120_000;
/// How many events are read at a time.
const PAGE: usize = 500;
/// How many missed due times are made good at most.
const MISSED: usize = 2_000;

/// What starts one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Unique for the definition: the run's id follows from it.
    pub id: String,
    /// The parameters that the run gets from it.
    pub params: Json,
    /// The cause in words, for people.
    pub what: String,
}

/// The causes of a trigger, each told once.
#[derive(Debug)]
pub enum Causes {
    Schedule {
        schedule: Box<Schedule>,
        /// The next due time; none if there is none any more.
        next: Option<Time>,
        look_back: u64,
    },
    Events {
        trigger: EventTrigger,
        /// Whose events start runs.
        tenant: String,
        /// Events up to this time are read again only as long as others may come late.
        read_to: Time,
        /// Events that were told, with their times, as far back as events are read again.
        told: HashMap<String, Time>,
    },
}

/// How the execution contract names what triggers a run.
#[must_use]
pub fn source_word(trigger: &Trigger) -> &'static str {
    match trigger {
        Trigger::Schedule(_) => "schedule",
        Trigger::Event(_) => "api",
    }
}

/// The id of the cause that a run was started by, from its parameters.
#[must_use]
pub fn id_of(params: &Json) -> Option<String> {
    let trigger = params.get("trigger")?;
    let text = |key: &str| trigger.get(key).and_then(Json::as_str);
    match (text("dueAt"), text("event"), text("id")) {
        (Some(due), None, None) => Some(due_id(due)),
        (None, Some(event_type), Some(id)) => Some(event_id(event_type, id)),
        _ => None,
    }
}

fn due_id(due: &str) -> String {
    format!("due|{due}")
}

fn event_id(event_type: &str, id: &str) -> String {
    format!("event|{event_type}|{id}")
}

impl Causes {
    #[must_use]
    pub fn new(trigger: Trigger, tenant: &str, look_back: u64, now: Time) -> Causes {
        match trigger {
            Trigger::Schedule(schedule) => Causes::Schedule {
                next: schedule.next_after(now),
                schedule,
                look_back,
            },
            Trigger::Event(trigger) => Causes::Events {
                trigger,
                tenant: tenant.to_owned(),
                read_to: Time(now.0.saturating_sub_unsigned(look_back).max(0)).plus(LATE_MS),
                told: HashMap::new(),
            },
        }
    }

    /// What is waited for, for people.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Causes::Schedule { schedule, next, .. } => match next {
                Some(next) => format!("{schedule}, next at {}", next.to_rfc3339()),
                None => format!("{schedule}, which is never due again"),
            },
            Causes::Events { trigger, .. } => {
                format!("events of type {}", trigger.event_type)
            }
        }
    }

    /// When the next cause comes, if time decides that.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        match self {
            Causes::Schedule { next, .. } => *next,
            Causes::Events { .. } => None,
        }
    }

    /// Goes back to the first due time that was missed while nobody waited: the one after the last that started a run.
    /// A schedule that has started no run lately begins now. Says how many were missed.
    pub fn catch_up<E>(
        &mut self,
        now: Time,
        is_started: &dyn Fn(&str) -> Result<bool, E>,
    ) -> Result<usize, E> {
        let Causes::Schedule {
            schedule,
            next,
            look_back,
        } = self
        else {
            return Ok(0);
        };
        let mut passed = Vec::new();
        let mut at = Time(now.0.saturating_sub_unsigned(*look_back).max(0));
        while let Some(due) = schedule.next_after(at).filter(|due| *due <= now) {
            passed.push(due);
            at = due;
        }
        let recent = passed.len().saturating_sub(MISSED);
        for (at, due) in passed.iter().enumerate().skip(recent).rev() {
            if is_started(&due_id(&due.to_rfc3339()))? {
                let missed = passed.len() - at - 1;
                if missed > 0 {
                    *next = passed.get(at + 1).copied();
                }
                return Ok(missed);
            }
        }
        Ok(0)
    }

    /// The causes that have come and were not told yet. What is wrong with one of them is noted.
    pub fn due(
        &mut self,
        store: &dyn Store,
        now: Time,
        note: &mut dyn FnMut(&str),
    ) -> Result<Vec<Cause>, StoreError> {
        match self {
            Causes::Schedule { schedule, next, .. } => {
                let mut causes = Vec::new();
                while let Some(due) = next.filter(|due| *due <= now) {
                    causes.push(Cause {
                        id: due_id(&due.to_rfc3339()),
                        params: schedule.params(due),
                        what: format!("due at {}", due.to_rfc3339()),
                    });
                    *next = schedule.next_after(due);
                }
                Ok(causes)
            }
            Causes::Events {
                trigger,
                tenant,
                read_to,
                told,
            } => {
                let from = Time(read_to.0.saturating_sub_unsigned(LATE_MS).max(0));
                told.retain(|_, since| *since >= from);
                let mut causes = Vec::new();
                let mut after = (from, String::new());
                loop {
                    let at = (after.0, after.1.as_str());
                    let page = store.kept(tenant, &trigger.event_type, TRIGGER_KEY, at, PAGE)?;
                    let Some(last) = page.last() else { break };
                    after = (last.since, last.id.clone());
                    *read_to = last.since.max(*read_to);
                    for event in page {
                        if told.insert(event.id.clone(), event.since).is_none() {
                            causes.extend(cause(trigger, &event, note));
                        }
                    }
                }
                Ok(causes)
            }
        }
    }
}

/// The cause that an event is, if it fits the trigger.
fn cause(trigger: &EventTrigger, event: &InboxEvent, note: &mut dyn FnMut(&str)) -> Option<Cause> {
    let payload: Json = serde_json::from_str(&event.payload).unwrap_or(Json::Null);
    match trigger.fits(&payload) {
        Ok(true) => Some(Cause {
            id: event_id(&trigger.event_type, &event.id),
            params: trigger.params(&event.id, payload),
            what: format!("event {} {}", trigger.event_type, event.id),
        }),
        Ok(false) => None,
        Err(error) => {
            note(&format!(
                "event {}: the condition of the trigger cannot be evaluated, so no run is started: {}",
                event.id, error.message
            ));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stepwell_dialects::{Source, document, load};
    use stepwell_engine::store::{Inbox as _, MemoryStore, OutsideEvent};

    use super::*;

    const DAY: u64 = 86_400_000;

    fn trigger(text: &str) -> Trigger {
        let text = format!(
            "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  timeout: 1h\n  \
             trigger: {text}\n  steps: [{{name: s, agent: a, action: b}}]\n"
        );
        let source = Source::from_bytes("w.yaml", text.as_bytes()).unwrap();
        document::trigger(&load(&source).plan.unwrap()).unwrap()
    }

    fn send(store: &MemoryStore, id: &str, total: u64, at: i64) {
        let event = OutsideEvent {
            tenant: "local".into(),
            id: id.into(),
            event_type: "paid".into(),
            key: TRIGGER_KEY.into(),
            payload: json!({ "total": total }).to_string(),
            mail: String::new(),
        };
        store.deliver(&event, Time(at)).unwrap();
    }

    fn ids(causes: &mut Causes, store: &MemoryStore, now: i64) -> Vec<String> {
        let due = causes.due(store, Time(now), &mut |_| {}).unwrap();
        due.into_iter().map(|it| it.id).collect()
    }

    #[test]
    fn each_due_time_is_told_once_and_the_parameters_say_which() {
        let store = MemoryStore::default();
        let mut causes = Causes::new(trigger("{schedule: '@hourly'}"), "local", DAY, Time(0));
        assert_eq!(ids(&mut causes, &store, 3_599_999), Vec::<String>::new());
        let hours = ids(&mut causes, &store, 7_200_000);
        assert_eq!(
            hours,
            [
                "due|1970-01-01T01:00:00.000Z",
                "due|1970-01-01T02:00:00.000Z"
            ]
        );
        assert_eq!(ids(&mut causes, &store, 7_200_001), Vec::<String>::new());
        let third = causes
            .due(&store, Time(3 * 3_600_000), &mut |_| {})
            .unwrap();
        assert_eq!(id_of(&third[0].params), Some(third[0].id.clone()));
    }

    #[test]
    fn due_times_that_were_missed_are_made_good_after_one_that_was_not() {
        let store = MemoryStore::default();
        let hour = |it: i64| Time(it * 3_600_000);
        let after = |started: &'static str, look_back: u64| {
            let mut causes = Causes::new(
                trigger("{schedule: '@hourly'}"),
                "local",
                look_back,
                hour(50),
            );
            let is_started = |cause: &str| Ok::<_, ()>(cause.contains(started));
            causes.catch_up(hour(50), &is_started).unwrap();
            ids(&mut causes, &store, hour(50).0).len()
        };
        assert_eq!(after("1970-01-02T23:00", DAY), 3);
        assert_eq!(after("1970-01-03T02:00", DAY), 0, "nothing was missed");
        assert_eq!(after("nothing", DAY), 0, "a new schedule begins now");
        assert_eq!(after("1970-01-02T23:00", 3_600_000), 0, "too long ago");
    }

    #[test]
    fn an_event_that_fits_is_told_once_also_if_it_is_stored_late() {
        let store = MemoryStore::default();
        let condition = "{event: paid, condition: '{{ event.total > 10 }}'}";
        let now = 1_000_000_000;
        send(&store, "old", 99, now - DAY as i64 - 1);
        send(&store, "before", 11, now - 1_000);
        let mut causes = Causes::new(trigger(condition), "local", DAY, Time(now));
        assert_eq!(ids(&mut causes, &store, now), ["event|paid|before"]);
        send(&store, "small", 10, now + 1);
        send(&store, "big", 12, now + 2);
        assert_eq!(ids(&mut causes, &store, now + 3), ["event|paid|big"]);
        send(&store, "late", 12, now - 60_000);
        assert_eq!(ids(&mut causes, &store, now + 4), ["event|paid|late"]);
        assert_eq!(ids(&mut causes, &store, now + 5), Vec::<String>::new());
    }
}
