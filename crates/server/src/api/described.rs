//! Schemas of the kernel and of the views in the OpenAPI document. Their types have JSON Schemas already: the document takes
//! these, so that clients can generate every type.

use std::marker::PhantomData;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use stepwell_kernel::contract::schemas;
use stepwell_kernel::plan::Net;
use stepwell_views::evidence::EvidenceDocument;
use stepwell_views::run_ext::{RunShown, UndoPreview};
use stepwell_views::watch::RunMoment;
use stepwell_views::why::ReasonRow;
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

const COMPONENTS: &str = "#/components/schemas/";

/// A run with `ext`.
pub(super) type RunViewBody = Typed<RunShown>;
pub(super) type UndoPreviewBody = Typed<UndoPreview>;
pub(super) type ReasonBody = Typed<ReasonRow>;
pub(super) type EvidenceBody = Typed<EvidenceDocument>;
/// A run at a moment, with its watermark.
pub(super) type MomentBody = Typed<RunMoment>;
/// A compiled definition, as the endpoints for nets show it.
pub(super) type NetBody = Typed<Net>;

/// A type that has a JSON Schema, as the OpenAPI document shows it.
pub(super) struct Typed<T>(PhantomData<T>);

impl<T: JsonSchema> Typed<T> {
    /// The schema of the type, and those that it refers to.
    fn all() -> (Value, Map<String, Value>) {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let settings = settings.with(|it| {
            it.definitions_path = "/components/schemas".into();
            it.meta_schema = None;
        });
        let mut generator = settings.into_generator();
        let schema = generator.root_schema_for::<T>().to_value();
        (schema, generator.take_definitions(true))
    }
}

impl<T: JsonSchema> PartialSchema for Typed<T> {
    fn schema() -> RefOr<Schema> {
        let (mut schema, _) = Self::all();
        if let Some(fields) = schema.as_object_mut() {
            for name in ["components", "$defs", "title"] {
                fields.remove(name);
            }
        }
        described(schema)
    }
}

impl<T: JsonSchema> ToSchema for Typed<T> {
    fn name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schemas(found: &mut Vec<(String, RefOr<Schema>)>) {
        let (_, definitions) = Self::all();
        for (name, schema) in definitions {
            found.push((name, described(schema)));
        }
    }
}

/// An event of a run: one of the types of the contract, with what the fold reads of it (`ext`) and the hash chain.
pub(super) struct RunEvent;

impl PartialSchema for RunEvent {
    fn schema() -> RefOr<Schema> {
        let names = event_names();
        let all: Vec<Value> = names.iter().map(|it| reference(&component(it))).collect();
        let mapping: Map<String, Value> = names
            .iter()
            .map(|it| (it.clone(), format!("{COMPONENTS}{}", component(it)).into()))
            .collect();
        described(json!({
            "description": "An event of a run as the contract has it, with `ext`, `prevHash` and `hash` beside.",
            "oneOf": all,
            "discriminator": { "propertyName": "eventType", "mapping": mapping },
        }))
    }
}

impl ToSchema for RunEvent {
    fn schemas(found: &mut Vec<(String, RefOr<Schema>)>) {
        let mut all = schemas();
        let Some(ext) = all.remove(EXT) else { return };
        for (name, schema) in ext["$defs"].as_object().into_iter().flatten() {
            found.push((name.clone(), described(moved(schema.clone()))));
        }
        for name in event_names() {
            let Some(contract) = all.remove(&format!("{EVENTS}{name}{SUFFIX}")) else {
                continue;
            };
            let bodies = ext["oneOf"].as_array().into_iter().flatten();
            let body = bodies
                .into_iter()
                .find(|it| it["properties"]["type"]["const"] == name.as_str());
            let schema = event_schema(contract, body.cloned().unwrap_or_default());
            found.push((component(&name), described(schema)));
        }
    }
}

const EVENTS: &str = "events/";
const SUFFIX: &str = ".schema.json";
const EXT: &str = "events/ext.schema.json";

fn event_names() -> Vec<String> {
    let all = schemas();
    let names = all.keys().filter(|it| it.as_str() != EXT);
    names
        .filter_map(|it| it.strip_prefix(EVENTS)?.strip_suffix(SUFFIX))
        .map(str::to_owned)
        .collect()
}

/// The name of the schema of a type of event.
fn component(event_type: &str) -> String {
    format!("{event_type}Event")
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{COMPONENTS}{name}") })
}

/// The event of the contract with `ext` and the hash chain.
fn event_schema(mut contract: Value, ext: Value) -> Value {
    let hash = |about: &str| json!({ "type": "string", "description": about });
    if let Some(fields) = contract.as_object_mut() {
        for name in ["$id", "$schema", "title", "additionalProperties"] {
            fields.remove(name);
        }
    }
    contract["properties"]["ext"] = moved(ext);
    contract["properties"]["prevHash"] = hash("The hash of the event before.");
    contract["properties"]["hash"] = hash("The hash of this event and of all events before it.");
    if let Some(required) = contract["required"].as_array_mut() {
        required.extend(["ext", "prevHash", "hash"].map(Value::from));
    }
    contract
}

/// A schema whose references lead to the components of the document.
fn moved(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let at = value.as_str().filter(|_| name == "$ref");
                let at = at.map(|at| at.replace("#/$defs/", COMPONENTS).into());
                (name, at.unwrap_or_else(|| moved(value)))
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(moved).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

/// A JSON Schema as the document can hold it.
fn described(schema: Value) -> RefOr<Schema> {
    let schema = plain(schema);
    // A schema that the document cannot hold is any value there; the tests find it.
    serde_json::from_value(schema).unwrap_or_else(|_| {
        let any = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        RefOr::T(any.into())
    })
}

/// The same schema in the words that the document has: no `const`, no `true`.
fn plain(schema: Value) -> Value {
    let fields = match schema {
        Value::Object(fields) => fields,
        // Any value.
        Value::Bool(true) => Map::new(),
        other @ (Value::Null
        | Value::Bool(false)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => return other,
    };
    let mut made = Map::new();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("const", value) => {
                made.insert("enum".to_owned(), json!([value]));
            }
            ("properties", Value::Object(inner)) => {
                let inner = inner.into_iter().map(|(name, it)| (name, plain(it)));
                made.insert(name, Value::Object(inner.collect()));
            }
            ("oneOf" | "anyOf" | "allOf", Value::Array(items)) => {
                made.insert(name, items.into_iter().map(plain).collect());
            }
            ("items" | "additionalProperties", value @ (Value::Object(_) | Value::Bool(true))) => {
                made.insert(name, plain(value));
            }
            (_, value) => {
                made.insert(name, value);
            }
        }
    }
    let mut parts: Vec<Value> = Vec::new();
    for name in ["$ref", "oneOf", "anyOf", "allOf"] {
        if let Some(value) = made.remove(name) {
            parts.push(json!({ name: value }));
        }
    }
    let is_object = made.contains_key("type") || made.contains_key("properties");
    if parts.len() + usize::from(is_object) > 1 {
        // The document has one form at a place: the value fits all of them.
        let about = made.remove("description");
        parts.push(Value::Object(made));
        made = Map::from_iter([("allOf".to_owned(), Value::Array(parts))]);
        made.extend(about.map(|it| ("description".to_owned(), it)));
    } else if let Some(Value::Object(part)) = parts.pop() {
        made.extend(part);
    } else if !is_object {
        // How the document says that any type fits.
        made.insert("type".to_owned(), Value::Null);
    }
    Value::Object(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schemas that the document takes, by name.
    fn all() -> Vec<(String, RefOr<Schema>)> {
        let mut found = vec![
            ("RunView".to_owned(), RunViewBody::schema()),
            ("Net".to_owned(), NetBody::schema()),
            ("EvidenceDocument".to_owned(), EvidenceBody::schema()),
            ("RunMoment".to_owned(), MomentBody::schema()),
            ("RunEvent".to_owned(), RunEvent::schema()),
        ];
        RunViewBody::schemas(&mut found);
        NetBody::schemas(&mut found);
        EvidenceBody::schemas(&mut found);
        MomentBody::schemas(&mut found);
        RunEvent::schemas(&mut found);
        found
    }

    #[test]
    fn no_name_has_two_schemas_and_every_reference_leads_somewhere() {
        let mut named = Map::new();
        for (name, schema) in all() {
            let schema = json!(schema);
            let before = named.insert(name.clone(), schema.clone());
            assert!(before.is_none_or(|it| it == schema), "{name}");
        }
        let text = Value::Object(named.clone()).to_string();
        for part in text.split(COMPONENTS).skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(named.contains_key(name), "{name}");
        }
    }

    #[test]
    fn the_schemas_of_the_document_lose_nothing() {
        for (form, wanted) in [
            (json!({ "const": "a" }), json!({ "enum": ["a"] })),
            (json!(true), json!({})),
            (
                json!({ "type": "object", "properties": { "a": { "const": 1 } }, "$ref": "#/x" }),
                json!({ "allOf": [{ "$ref": "#/x" },
                    { "type": "object", "properties": { "a": { "enum": [1] } } }] }),
            ),
        ] {
            assert_eq!(json!(described(form)), wanted);
        }
        let waits = all().into_iter().find(|it| it.0 == "StepWaitingEvent");
        let text = json!(waits.unwrap().1).to_string();
        assert!(
            text.contains("\"wait\"") && text.contains("StepWaiting"),
            "{text}"
        );
    }
}
