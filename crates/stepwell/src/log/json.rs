//! Log lines as JSON: one object for each line, with the time, the level, the target, the message and all fields, also those
//! of the request that the line belongs to.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json};
use stepwell_kernel::time::Time;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Writes each event as one line; `write` gets the line without its end.
pub(super) struct JsonLines {
    pub(super) write: fn(&str),
}

/// The fields of a span, kept with it.
struct Fields(Map<String, Json>);

impl<S> Layer<S> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = FieldReader::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Fields(fields.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = FieldReader::default();
        values.record(&mut fields);
        if let Some(span) = context.span(id)
            && let Some(known) = span.extensions_mut().get_mut::<Fields>()
        {
            known.0.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = head(event.metadata().level().as_str(), event.metadata().target());
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.extend(fields.0.clone());
            }
        }
        let mut own = FieldReader::default();
        event.record(&mut own);
        line.extend(own.0);
        (self.write)(&Json::Object(line).to_string());
    }
}

/// A line for people, in the same form.
pub(super) fn message(text: &str) -> String {
    let mut line = head("INFO", "stepwell");
    line.insert("message".to_owned(), text.into());
    Json::Object(line).to_string()
}

fn head(level: &str, target: &str) -> Map<String, Json> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.map_or(0, |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
    let mut line = Map::new();
    line.insert("time".to_owned(), Time(millis).to_rfc3339().into());
    line.insert("level".to_owned(), level.into());
    line.insert("target".to_owned(), target.into());
    line
}

/// Reads the fields of an event or a span.
#[derive(Default)]
struct FieldReader(Map<String, Json>);

impl FieldReader {
    fn put(&mut self, field: &Field, value: impl Into<Json>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for FieldReader {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
