//! The published JSON Schemas (draft 2020-12): one for each event type from the table of fields, the
//! body, the signals and the snapshot from their types.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value as Json, json};

use super::fields::{ENVELOPE, Field, Shape};
use super::view::fields_of;
use crate::event::{Body, EventType};
use crate::signal::SignalKind;
use crate::snapshot::RunSnapshot;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const BASE: &str = "https://stepwell.dev/schemas";

/// Every schema by its path below the folder they are published in.
#[must_use]
pub fn schemas() -> BTreeMap<String, Json> {
    let mut all = BTreeMap::new();
    for event_type in EventType::ALL {
        let path = format!("events/{}.schema.json", event_type.name());
        all.insert(path.clone(), event_schema(*event_type, &path));
    }
    let path = "events/ext.schema.json";
    all.insert(
        path.into(),
        type_schema::<Body>(path, "What the fold reads of an event"),
    );
    let path = "snapshot/RunSnapshot.schema.json";
    all.insert(
        path.into(),
        type_schema::<RunSnapshot>(path, "A run as the contract shows it"),
    );
    for signal in SignalKind::ALL {
        let path = format!("signals/{}.schema.json", signal.name());
        all.insert(path, signal.schema());
    }
    all
}

fn event_schema(event_type: EventType, path: &str) -> Json {
    let mut properties = Map::new();
    properties.insert(
        "eventType".into(),
        json!({ "type": "string", "const": event_type.name(), "description": "The event's type" }),
    );
    let mut required = vec!["eventType"];
    for field in ENVELOPE.iter().chain(fields_of(event_type)) {
        add(field, &mut properties, &mut required);
    }
    json!({
        "$schema": DIALECT,
        "$id": format!("{BASE}/{path}"),
        "title": format!("{} Event", event_type.name()),
        "description": event_type.about(),
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

fn add(field: &Field, properties: &mut Map<String, Json>, required: &mut Vec<&'static str>) {
    let mut schema = shape_schema(field.shape);
    schema["description"] = field.about.into();
    properties.insert(field.name.into(), schema);
    if field.required {
        required.push(field.name);
    }
}

fn shape_schema(shape: Shape) -> Json {
    match shape {
        Shape::Word(word) => json!({ "type": "string", "const": word }),
        Shape::Words(words) => json!({ "type": "string", "enum": words }),
        Shape::Text => json!({ "type": "string" }),
        Shape::Uuid => json!({ "type": "string", "format": "uuid" }),
        Shape::RunId => json!({ "type": "string", "pattern": "^run_[a-zA-Z0-9_-]+$" }),
        Shape::Hash => json!({ "type": "string", "pattern": "^[a-f0-9]{64}$" }),
        Shape::Moment => json!({ "type": "string", "format": "date-time" }),
        Shape::Uri => json!({ "type": "string", "format": "uri" }),
        Shape::Version => json!({ "type": "string", "pattern": "^v\\d+\\.\\d+$" }),
        Shape::Number(least) => json!({ "type": "integer", "minimum": least }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::Object(fields) => closed(fields),
        Shape::Objects(fields) => json!({ "type": "array", "items": closed(fields) }),
    }
}

fn closed(fields: &'static [Field]) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        add(field, &mut properties, &mut required);
    }
    json!({
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

fn type_schema<T: JsonSchema>(path: &str, title: &str) -> Json {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema: Schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".into(), format!("{BASE}/{path}").into());
    schema.insert("title".into(), title.into());
    schema.to_value()
}
