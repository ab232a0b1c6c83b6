//! The signals of the contract as data: their names, who may send them, what they may say.

use serde_json::{Map, Value as Json, json};

use crate::command::Role;
use crate::rejection::{Code, Rejection};

/// Most signals a run takes in a minute.
pub const SIGNALS_PER_MINUTE: usize = 60;
/// Largest payload, in bytes of JSON.
pub const MAX_SIGNAL_BYTES: usize = 64 * 1024;

/// A signal of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKind {
    /// Nothing new starts.
    Pause,
    /// The run goes on.
    Resume,
    /// The run is stopped for good.
    Cancel,
    /// A failed step gets another logical attempt.
    RetryStep,
    /// A run that has ended is repeated as a new one.
    RetryRun,
    /// A step is passed over.
    SkipStep,
    /// Parameters of what starts later change.
    UpdateParams,
    /// One step's later input changes.
    InjectOverride,
    /// One step's later executions go elsewhere.
    UpdateTarget,
    /// Everything stops.
    EmergencyStop,
    /// Someone is told.
    EscalateAlert,
}

enum PayloadField {
    Text { most: usize },
    Flag,
    Object,
    OneOf(&'static [&'static str]),
}

struct FieldRule {
    name: &'static str,
    required: bool,
    field: PayloadField,
}

const fn rule(name: &'static str, required: bool, field: PayloadField) -> FieldRule {
    FieldRule {
        name,
        required,
        field,
    }
}

impl SignalKind {
    /// Every signal.
    pub const ALL: [SignalKind; 11] = [
        SignalKind::Pause,
        SignalKind::Resume,
        SignalKind::Cancel,
        SignalKind::RetryStep,
        SignalKind::RetryRun,
        SignalKind::SkipStep,
        SignalKind::UpdateParams,
        SignalKind::InjectOverride,
        SignalKind::UpdateTarget,
        SignalKind::EmergencyStop,
        SignalKind::EscalateAlert,
    ];

    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SignalKind::Pause => "PAUSE",
            SignalKind::Resume => "RESUME",
            SignalKind::Cancel => "CANCEL",
            SignalKind::RetryStep => "RETRY_STEP",
            SignalKind::RetryRun => "RETRY_RUN",
            SignalKind::SkipStep => "SKIP_STEP",
            SignalKind::UpdateParams => "UPDATE_PARAMS",
            SignalKind::InjectOverride => "INJECT_OVERRIDE",
            SignalKind::UpdateTarget => "UPDATE_TARGET",
            SignalKind::EmergencyStop => "EMERGENCY_STOP",
            SignalKind::EscalateAlert => "ESCALATE_ALERT",
        }
    }

    /// The signal of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<SignalKind> {
        SignalKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The least role that may send it.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            SignalKind::Pause | SignalKind::Resume | SignalKind::Cancel => Role::Operator,
            SignalKind::RetryStep | SignalKind::RetryRun | SignalKind::SkipStep => Role::Engineer,
            SignalKind::UpdateParams
            | SignalKind::InjectOverride
            | SignalKind::UpdateTarget
            | SignalKind::EmergencyStop => Role::Admin,
            SignalKind::EscalateAlert => Role::System,
        }
    }

    /// Whether the sender must say why.
    #[must_use]
    pub fn needs_reason(self) -> bool {
        self.role() == Role::Admin
    }

    fn rules(self) -> Vec<FieldRule> {
        let step = || rule("stepId", true, PayloadField::Text { most: 300 });
        let reason = || rule("reason", false, PayloadField::Text { most: 500 });
        match self {
            SignalKind::Pause | SignalKind::Cancel => vec![reason()],
            SignalKind::Resume => vec![],
            SignalKind::RetryStep => vec![step(), rule("force", false, PayloadField::Flag)],
            SignalKind::RetryRun => vec![reason(), rule("force", false, PayloadField::Flag)],
            SignalKind::SkipStep => vec![step(), reason()],
            SignalKind::UpdateParams => vec![rule("params", true, PayloadField::Object)],
            SignalKind::InjectOverride => {
                vec![step(), rule("override", true, PayloadField::Object)]
            }
            SignalKind::UpdateTarget => vec![step(), rule("newTarget", true, PayloadField::Object)],
            // A missing reason has a code of its own, so it is not checked here.
            SignalKind::EmergencyStop => {
                vec![
                    rule("reason", false, PayloadField::Text { most: 1000 }),
                    rule("forceKill", false, PayloadField::Flag),
                ]
            }
            SignalKind::EscalateAlert => vec![
                rule(
                    "level",
                    true,
                    PayloadField::OneOf(&["INFO", "WARNING", "CRITICAL", "P1"]),
                ),
                rule("note", false, PayloadField::Text { most: 1000 }),
            ],
        }
    }

    /// Whether a payload fits.
    pub fn check(self, payload: &Json) -> Result<(), Rejection> {
        let wrong = |message: String| Err(Rejection::new(Code::SignalInvalidPayload, message));
        if serde_json::to_vec(payload).map_or(0, |bytes| bytes.len()) > MAX_SIGNAL_BYTES {
            return wrong(format!(
                "the payload is larger than {MAX_SIGNAL_BYTES} bytes"
            ));
        }
        let empty = Map::new();
        let fields = match payload {
            Json::Object(fields) => fields,
            Json::Null => &empty,
            _ => return wrong(format!("the payload of {} is a JSON object", self.name())),
        };
        let rules = self.rules();
        if let Some(unknown) = fields
            .keys()
            .find(|key| rules.iter().all(|rule| rule.name != *key))
        {
            let known: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
            return wrong(format!(
                "{} has no field {unknown:.100}; it has {}",
                self.name(),
                known.join(", ")
            ));
        }
        for rule in &rules {
            match fields.get(rule.name) {
                None if rule.required => {
                    return wrong(format!("{} needs {}", self.name(), rule.name));
                }
                Some(value) if !rule.field.fits(value) => {
                    return wrong(format!(
                        "{} of {} must be {}",
                        rule.name,
                        self.name(),
                        rule.field.words()
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The payload's JSON Schema.
    #[must_use]
    pub fn schema(self) -> Json {
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        for rule in self.rules() {
            properties.insert(rule.name.to_owned(), rule.field.schema());
            if rule.required || (rule.name == "reason" && self == SignalKind::EmergencyStop) {
                required.push(rule.name);
            }
        }
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": format!("https://stepwell.dev/schemas/signals/{}.schema.json", self.name()),
            "title": format!("Payload of the signal {}", self.name()),
            "type": "object",
            "additionalProperties": false,
            "properties": properties,
            "required": required,
        })
    }
}

impl PayloadField {
    fn fits(&self, value: &Json) -> bool {
        match self {
            PayloadField::Text { most } => value
                .as_str()
                .is_some_and(|text| text.chars().count() <= *most),
            PayloadField::Flag => value.is_boolean(),
            PayloadField::Object => value.is_object(),
            PayloadField::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
        }
    }

    fn words(&self) -> String {
        match self {
            PayloadField::Text { most } => format!("text of at most {most} characters"),
            PayloadField::Flag => "true or false".into(),
            PayloadField::Object => "a JSON object".into(),
            PayloadField::OneOf(words) => format!("one of {}", words.join(", ")),
        }
    }

    fn schema(&self) -> Json {
        match self {
            PayloadField::Text { most } => json!({ "type": "string", "maxLength": most }),
            PayloadField::Flag => json!({ "type": "boolean" }),
            PayloadField::Object => json!({ "type": "object" }),
            PayloadField::OneOf(words) => json!({ "type": "string", "enum": words }),
        }
    }
}
