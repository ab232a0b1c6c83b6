//! The form of a mapping with known keys, as data: the names of its fields, what they hold, and which of them go
//! together. The readers look fields up in these tables, report keys that the tables do not have, and take words and
//! limits from them; the JSON Schemas are written from the same tables ([`crate::schema`]). Each language has its
//! tables in its `fields.rs`.

use std::ops::RangeInclusive;

use serde_json::{Map, Value as Json, json};

use crate::duration::DurationRule;
use crate::schema::pieces::{
    self, absent, any_of, condition, duration, given, one_of, or_null, text, whole,
};

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Any,
    /// Any value but null.
    Something,
    /// Text, which may be empty.
    Text,
    /// Text that is not blank.
    String,
    /// The name of a step, a queue and the like.
    Name,
    /// Text of this form, a regular expression.
    Form(&'static str),
    Flag,
    /// A whole number within these limits.
    Int(i64, i64),
    /// A whole number within these limits, or a template.
    IntOrTemplate(i64, i64),
    /// Any number within these limits.
    Number(f64, f64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these values, given as JSON.
    Values(&'static [&'static str]),
    Duration(DurationRule),
    /// A mapping with keys of the author's choice.
    Map,
    /// A mapping with keys of the author's choice; the values are texts, numbers or truth values.
    ScalarMap,
    /// Assignments to variables of this scope: `x: …`.
    Assignments(&'static str),
    /// Assignments to variables of these scopes: `ctx.x: …`, or `ctx: {x: …}`.
    Scoped(&'static [&'static str]),
    /// Text, a number or a truth value.
    Scalar,
    /// The same, as text a name.
    ScalarName,
    /// Text without `|`, or a whole number.
    Version,
    /// Text with a template.
    Template,
    /// A template or a truth value.
    Condition,
    /// A list whose items have this shape; it may be empty.
    List(&'static Shape),
    /// A list with at least one and at most so many items.
    Filled(&'static Shape, usize),
    /// A list in which nothing occurs twice.
    Unique(&'static Shape),
    /// One text, or a list in which nothing occurs twice.
    OneOrMore,
    /// A value of this shape, or null.
    OrNull(&'static Shape),
    /// A value of one of these shapes.
    Either(&'static [Shape]),
    /// A mapping with known keys.
    Fields(&'static KnownFields),
    /// A definition of the schema that is made elsewhere.
    Shared(&'static str),
}

/// One field of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The name of the field, then its aliases.
    pub(crate) names: &'static [&'static str],
    pub(crate) required: bool,
    pub(crate) shape: Shape,
    /// The description of the field in the JSON Schema.
    about: &'static str,
    /// The value that an absent field has, as JSON.
    default: Option<&'static str>,
    example: Option<&'static str>,
    /// Only in messages: the reader refuses the field, so the schema does not have it.
    refused: bool,
}

pub(crate) const fn may(names: &'static [&'static str], shape: Shape, about: &'static str) -> Row {
    Row {
        names,
        required: false,
        shape,
        about,
        default: None,
        example: None,
        refused: false,
    }
}

pub(crate) const fn must(names: &'static [&'static str], shape: Shape, about: &'static str) -> Row {
    Row {
        required: true,
        ..may(names, shape, about)
    }
}

impl Row {
    /// With what holds if the field is absent, as JSON.
    pub(crate) const fn or(self, default: &'static str) -> Row {
        Row {
            default: Some(default),
            ..self
        }
    }

    pub(crate) const fn such_as(self, example: &'static str) -> Row {
        Row {
            example: Some(example),
            ..self
        }
    }

    /// A field that is known only to say that it is not supported.
    pub(crate) const fn refused(self) -> Row {
        Row {
            refused: true,
            ..self
        }
    }

    pub(crate) fn words(&self) -> &'static [&'static str] {
        if let Shape::Words(words) = self.shape {
            words
        } else {
            &[]
        }
    }

    pub(crate) fn limits(&self) -> RangeInclusive<i64> {
        if let Shape::Int(low, high) | Shape::IntOrTemplate(low, high) = self.shape {
            low..=high
        } else {
            i64::MIN..=i64::MAX
        }
    }

    pub(crate) fn duration(&self) -> DurationRule {
        if let Shape::Duration(rule) = self.shape {
            rule
        } else {
            DurationRule::TEXT
        }
    }
}

/// Which fields go together. The readers check the same with messages of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// At least one of these sets of fields is given.
    AnyOf(&'static [&'static [&'static str]]),
    /// Exactly one of these fields is given.
    OneOf(&'static [&'static str]),
    /// Where this field is given, none of these is.
    Excludes(&'static str, &'static [&'static str]),
    /// At least one of these fields is given, here or in the mapping `inside`; if not `always`, only where that
    /// mapping is given.
    HereOrIn {
        inside: &'static str,
        names: &'static [&'static str],
        always: bool,
    },
    /// Where this field is a duration, none of these is given.
    DurationExcludes(&'static str, &'static [&'static str]),
    /// Where this field is given and none of those, none of these is.
    Alone {
        field: &'static str,
        without: &'static [&'static str],
        excludes: &'static [&'static str],
    },
    /// Anything else, as JSON Schema.
    Schema(&'static str),
}

/// A mapping with known keys.
#[derive(Debug)]
pub(crate) struct KnownFields {
    /// Its name among the definitions of the schema; empty for one that stands in line.
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) rows: &'static [Row],
    pub(crate) rules: &'static [Rule],
    /// Whether other keys are refused. Where they are not, they are reported as unused.
    pub(crate) closed: bool,
}

impl KnownFields {
    pub(crate) fn row(&self, name: &str) -> Option<&'static Row> {
        self.rows.iter().find(|row| row.names.contains(&name))
    }

    /// All names, those of fields that are refused left out.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let rows = self.rows.iter().filter(|row| !row.refused);
        rows.flat_map(|row| row.names.iter().copied()).collect()
    }

    /// The JSON Schema. Named mappings below it are put into `defs`.
    pub(crate) fn schema(&self, defs: &mut Map<String, Json>) -> Json {
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        let mut all: Vec<Json> = Vec::new();
        for row in self.rows.iter().filter(|row| !row.refused) {
            let [first, others @ ..] = row.names else {
                continue;
            };
            let mut schema = row.schema(defs);
            properties.insert((*first).to_owned(), schema.clone());
            for other in others {
                schema["description"] = format!("The same as {first}.").into();
                properties.insert((*other).to_owned(), schema.clone());
            }
            if row.required && others.is_empty() {
                required.push(first);
            } else {
                let names = row.names.iter().map(|name| given(&[name]));
                all.extend(one_of(names.collect(), row.required));
            }
        }
        all.extend(self.rules.iter().map(Rule::schema));
        let mut schema = json!({ "type": "object", "properties": properties });
        for (key, value, there) in [
            ("description", json!(self.about), !self.about.is_empty()),
            ("required", json!(required), !required.is_empty()),
            ("additionalProperties", json!(false), self.closed),
            ("allOf", json!(all), !all.is_empty()),
        ] {
            if there {
                schema[key] = value;
            }
        }
        schema
    }
}

impl Rule {
    fn schema(&self) -> Json {
        match self {
            Rule::AnyOf(sets) => any_of(sets.iter().map(|set| given(set))),
            Rule::OneOf(names) => {
                let one: Vec<Json> = names.iter().map(|name| given(&[name])).collect();
                json!({ "oneOf": one })
            }
            Rule::HereOrIn {
                inside,
                names,
                always,
            } => {
                let somewhere = any_of(names.iter().flat_map(|name| {
                    let properties = json!({ *inside: given(&[name]) });
                    let nested = json!({ "required": [inside], "properties": properties });
                    [given(&[name]), nested]
                }));
                match always {
                    true => somewhere,
                    false => json!({ "if": given(&[inside]), "then": somewhere }),
                }
            }
            Rule::DurationExcludes(field, others) => {
                let duration = json!({ "$ref": "#/$defs/delay" });
                let properties = json!({ *field: duration });
                json!({
                    "if": { "required": [field], "properties": properties },
                    "then": absent(others),
                })
            }
            Rule::Excludes(field, others) => {
                json!({ "if": given(&[field]), "then": absent(others) })
            }
            Rule::Alone {
                field,
                without,
                excludes,
            } => json!({
                "if": {
                    "allOf": [
                        given(&[field]),
                        { "not": any_of(without.iter().map(|name| given(&[name]))) },
                    ],
                },
                "then": absent(excludes),
            }),
            Rule::Schema(text) => parsed(text),
        }
    }
}

fn parsed(text: &str) -> Json {
    serde_json::from_str(text).expect("the tables of fields hold JSON, as a test checks")
}

impl Row {
    fn schema(&self, defs: &mut Map<String, Json>) -> Json {
        let mut schema = self.shape.schema(defs);
        if !self.required || self.names.len() > 1 {
            schema = or_null(schema);
        }
        if !self.about.is_empty() {
            schema["description"] = self.about.into();
        }
        if let Some(default) = self.default {
            schema["default"] = parsed(default);
        }
        if let Some(example) = self.example {
            schema["examples"] = json!([example]);
        }
        schema
    }
}

impl Shape {
    fn schema(&self, defs: &mut Map<String, Json>) -> Json {
        match self {
            Shape::Any => json!({}),
            Shape::Something => {
                json!({ "type": ["object", "array", "string", "number", "boolean"] })
            }
            Shape::Text => json!({ "type": "string" }),
            Shape::String => text(),
            Shape::Name => json!({ "$ref": "#/$defs/name" }),
            Shape::Form(pattern) => json!({ "type": "string", "pattern": pattern }),
            Shape::Flag => json!({ "type": "boolean" }),
            Shape::Int(low, high) => whole(*low, *high),
            Shape::IntOrTemplate(low, high) => any_of([whole(*low, *high), pieces::template()]),
            Shape::Number(low, high) => {
                json!({ "type": "number", "minimum": low, "maximum": high })
            }
            Shape::Words([word]) => json!({ "const": word }),
            Shape::Words(words) => json!({ "enum": words }),
            Shape::Values(values) => {
                json!({ "enum": values.iter().map(|it| parsed(it)).collect::<Vec<_>>() })
            }
            Shape::Duration(rule) => duration(*rule),
            Shape::Map => json!({ "type": "object" }),
            Shape::ScalarMap => json!({
                "type": "object",
                "additionalProperties": { "type": ["string", "number", "boolean", "null"] },
            }),
            Shape::Assignments(scope) => pieces::assignments(scope),
            Shape::Scoped(scopes) => pieces::scoped_assignments(scopes, false),
            Shape::Scalar => json!({ "type": ["string", "number", "boolean"] }),
            Shape::ScalarName => {
                let mut schema = pieces::name();
                schema["type"] = json!(["string", "number", "boolean"]);
                schema
            }
            Shape::Version => {
                json!({ "type": ["string", "integer"], "pattern": r"^[^|]*[^|\s][^|]*$" })
            }
            Shape::Template => pieces::template(),
            Shape::Condition => condition(),
            Shape::List(item) => json!({ "type": "array", "items": item.schema(defs) }),
            Shape::Filled(item, most) => {
                let mut schema =
                    json!({ "type": "array", "minItems": 1, "items": item.schema(defs) });
                if *most < usize::MAX {
                    schema["maxItems"] = json!(most);
                }
                schema
            }
            Shape::Unique(item) => {
                json!({ "type": "array", "uniqueItems": true, "items": item.schema(defs) })
            }
            Shape::OneOrMore => {
                let both = [Shape::String, Shape::Unique(&Shape::String)];
                any_of(both.iter().map(|shape| shape.schema(defs)))
            }
            Shape::OrNull(shape) => {
                let null = json!({ "type": "null" });
                any_of([shape.schema(defs), null])
            }
            Shape::Either(shapes) => any_of(shapes.iter().map(|shape| shape.schema(defs))),
            Shape::Shared(name) => json!({ "$ref": format!("#/$defs/{name}") }),
            Shape::Fields(fields) if fields.name.is_empty() => fields.schema(defs),
            Shape::Fields(fields) => {
                if !defs.contains_key(fields.name) {
                    // It may contain itself.
                    defs.insert(fields.name.to_owned(), Json::Null);
                    let schema = fields.schema(defs);
                    defs.insert(fields.name.to_owned(), schema);
                }
                json!({ "$ref": format!("#/$defs/{}", fields.name) })
            }
        }
    }
}
