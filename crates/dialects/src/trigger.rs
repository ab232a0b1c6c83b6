//! What starts runs of a definition by itself: an event of a type with a condition on its content, or a schedule. Read
//! back from a plan by the process that waits for it (`stepwell run --idle`); which languages have triggers is in `document`.

mod schedule;

use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_kernel::expr::{Template, TemplateError};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

pub use schedule::Schedule;

/// The key of plans under which a trigger is kept.
pub(crate) const KEY: &str = "trigger";

/// Whether the IANA database has a time zone of this name.
pub(crate) fn is_zone(name: &str) -> bool {
    schedule::zone(name).is_some()
}

/// What starts runs of a definition.
#[derive(Clone, Debug)]
pub enum Trigger {
    /// Each event of a type for which a condition holds.
    Event(EventTrigger),
    /// Each time at which a schedule is due.
    Schedule(Box<Schedule>),
}

/// Events that start a run.
#[derive(Clone, Debug)]
pub struct EventTrigger {
    /// The type of the events.
    pub event_type: String,
    condition: Option<Template>,
}

impl EventTrigger {
    /// Whether an event with this content starts a run.
    pub fn fits(&self, payload: &Json) -> Result<bool, TemplateError> {
        let Some(condition) = &self.condition else {
            return Ok(true);
        };
        let event = Arc::new(payload.clone());
        condition.truthy(&|name: &str| (name == "event").then(|| event.clone()))
    }

    /// The parameters that a run gets from the event that starts it.
    #[must_use]
    pub fn params(&self, event_id: &str, payload: Json) -> Json {
        json!({"event": payload, "trigger": {"event": self.event_type, "id": event_id}})
    }
}

impl Trigger {
    /// The trigger that was kept with a plan, if it has one that can be read.
    pub(crate) fn of_plan(plan: &Plan) -> Option<Trigger> {
        let kept = plan.net().extra.get(KEY)?;
        let text = |key: &str| kept.get(key).and_then(Json::as_str);
        if let Some(event_type) = text("event") {
            let condition = match text("condition") {
                Some(condition) => Some(Template::parse(condition).ok()?),
                None => None,
            };
            return Some(Trigger::Event(EventTrigger {
                event_type: event_type.to_owned(),
                condition,
            }));
        }
        let schedule = Schedule::parse(text("schedule")?, text("timezone"));
        schedule.ok().map(|it| Trigger::Schedule(Box::new(it)))
    }
}

impl Schedule {
    /// The parameters that a run gets from the due time that starts it.
    #[must_use]
    pub fn params(&self, due: Time) -> Json {
        json!({"trigger": {"schedule": self.text(), "dueAt": due.to_rfc3339()}})
    }
}
