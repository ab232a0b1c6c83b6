//! Reads `spec.trigger`: an event with a condition, or a schedule with a time zone.

use serde_json::{Map, Value as Json};
use stepwell_kernel::expr::Template;

use crate::codes;
use crate::dag::fields;
use crate::problem::Problems;
use crate::reader::Field;
use crate::trigger::Schedule;
use crate::words::quote;
use crate::{cron, template};

pub(super) fn trigger(field: &Field<'_>, p: &mut Problems) -> Option<Json> {
    let mut f = field.known(&fields::TRIGGER, p)?;
    let starts = f.has("event") || f.has("schedule");
    let event = f.opt("event", p);
    let condition_field = f.opt("condition", p);
    let schedule_field = f.opt("schedule", p);
    let zone_field = f.opt("timezone", p);
    f.finish(p);
    if !starts {
        field
            .error(codes::FIELD_VALUE, "starts nothing", p)
            .help("add `event: …` or `schedule: \"0 2 * * *\"`, or remove `trigger`");
        return None;
    }
    if let (Some(_), Some(second)) = (&event, &schedule_field) {
        second
            .error(codes::FIELD_CONFLICT, "stands beside `event`", p)
            .help("a workflow is started by an event or by a schedule: keep one of them, and write a second workflow");
    }
    if let (None, Some(condition)) = (&event, &condition_field) {
        condition
            .error(codes::FIELD_CONFLICT, "stands beside `schedule`", p)
            .help("a condition asks about an event: remove it, or write `event` instead of `schedule`");
    }
    if let (None, Some(zone)) = (&schedule_field, &zone_field) {
        zone.error(codes::FIELD_CONFLICT, "stands beside `event`", p)
            .help("a time zone is for a schedule: remove it");
    }
    let condition = condition_field.and_then(|it| condition(&it, p));
    let zone = zone_field.and_then(|it| zone(&it, p));
    let schedule = schedule_field.and_then(|it| schedule(&it, p));
    let event = event.and_then(|it| event_type(&it, p));
    let mut kept = Map::new();
    for (key, value) in [
        ("event", event.map(str::to_owned)),
        ("condition", condition),
        ("schedule", schedule.map(str::to_owned)),
        ("timezone", zone.map(str::to_owned)),
    ] {
        if let Some(value) = value {
            kept.insert(key.to_owned(), value.into());
        }
    }
    Some(Json::Object(kept))
}

fn event_type<'n>(field: &Field<'n>, p: &mut Problems) -> Option<&'n str> {
    let text = field.string(p)?;
    if text.trim().is_empty() {
        field
            .error(codes::FIELD_VALUE, "is empty", p)
            .help("write the type of the event, such as `contract.signed`");
        return None;
    }
    Some(text)
}

/// A question about the event, which is the only name that a condition can read.
fn condition(field: &Field<'_>, p: &mut Problems) -> Option<String> {
    let asked = template::condition(field, p)?;
    let mut roots = asked.roots().filter(|root| *root != "event");
    if let Some(root) = roots.next() {
        let message = format!(
            "nothing is called {} in a condition of a trigger",
            quote(root)
        );
        p.error(codes::NAME_UNKNOWN, field.span(), message)
            .help("a condition sees the content of the event: `{{ event.total > 100 }}`");
        return None;
    }
    if never_holds(&asked) {
        let message = "the condition is never true, so no event ever starts a run";
        p.warn(codes::DAG_TRIGGER_NEVER, field.span(), message)
            .help("write a condition on the content of the event: `{{ event.total > 100 }}`");
    }
    Some(asked.source().to_owned())
}

/// Whether the condition reads nothing and is false.
fn never_holds(condition: &Template) -> bool {
    let reads_nothing = condition.roots().next().is_none();
    reads_nothing && matches!(condition.truthy(&|_: &str| None), Ok(false))
}

fn zone<'n>(field: &Field<'n>, p: &mut Problems) -> Option<&'n str> {
    let text = field.string(p)?;
    if crate::trigger::is_zone(text) {
        return Some(text);
    }
    field
        .error(
            codes::FIELD_VALUE,
            &format!("is no time zone: {}", quote(text)),
            p,
        )
        .help("write a name of the IANA database, such as `Europe/Berlin` or `UTC`");
    None
}

/// A cron line of five fields, or one of its short names.
fn schedule<'n>(field: &Field<'n>, p: &mut Problems) -> Option<&'n str> {
    let text = field.string(p)?;
    let right = cron::check(text).and_then(|()| Schedule::parse(text, None).map(drop));
    let Err(why) = right else {
        return Some(text);
    };
    field
        .error(codes::FIELD_VALUE, &format!("is not a schedule: {why}"), p)
        .help("write minute, hour, day, month and weekday, such as `0 2 * * *`, or `@daily`");
    None
}
