//! The table of signals: their names, who may send them, when they are allowed, what they may say. Authorization,
//! validation, the JSON Schemas, the table in the documents and the help of the command derive from it.

use serde_json::{Map, Value as Json, json};

use crate::command::Role;
use crate::rejection::{Code, Rejection};

/// Most signals a run takes in a minute.
pub const SIGNALS_PER_MINUTE: usize = 60;
/// Largest payload, in bytes of JSON.
pub const MAX_SIGNAL_BYTES: usize = 64 * 1024;

/// Defines the signals from one table: each row is the documentation, the variant and its name, the least role that
/// may send it, what the run must be, and the fields of the payload.
macro_rules! signals {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident = $name:literal, $role:ident, $needs:ident, [$($field:expr),*];
    )+) => {
        /// A signal of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SignalKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl SignalKind {
            /// Every signal, in the order of the table.
            pub const ALL: [SignalKind; [$($name),+].len()] = [$(SignalKind::$variant,)+];

            /// The name of the signal in the contract.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(SignalKind::$variant => $name,)+ }
            }

            /// The lowest role that may send the signal.
            #[must_use]
            pub const fn role(self) -> Role {
                match self { $(SignalKind::$variant => Role::$role,)+ }
            }

            /// The state that the run must be in.
            #[must_use]
            pub const fn needs(self) -> SignalNeeds {
                match self { $(SignalKind::$variant => SignalNeeds::$needs,)+ }
            }

            /// What the signal does, in one sentence.
            #[must_use]
            pub fn about(self) -> &'static str {
                let about = match self { $(SignalKind::$variant => concat!($($doc),+),)+ };
                about.trim()
            }

            /// The fields of the payload.
            #[must_use]
            pub const fn fields(self) -> &'static [PayloadField] {
                match self { $(SignalKind::$variant => const { &[$($field),*] },)+ }
            }
        }
    };
}

/// The state that a run must be in for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalNeeds {
    /// The run has not ended.
    NotEnded,
    /// The run has not ended and is not stopping.
    NotStopping,
    /// The run has started and is not stopping.
    Started,
    /// The run has ended.
    Ended,
}

impl SignalNeeds {
    /// The state in words that continue "the run …".
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            SignalNeeds::NotEnded => "has not ended",
            SignalNeeds::NotStopping => "is not stopping",
            SignalNeeds::Started => "has started and is not stopping",
            SignalNeeds::Ended => "has ended",
        }
    }
}

/// What a field of a payload holds.
#[derive(Clone, Copy, Debug)]
pub enum PayloadShape {
    /// Text of at most so many characters.
    Text(usize),
    Flag,
    Object,
    OneOf(&'static [&'static str]),
}

/// Whether a field of a payload may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Optional,
    Required,
    /// Required, but the sender of the signal may give it beside the payload.
    RequiredOrBeside,
}

/// A field of a payload.
#[derive(Clone, Copy, Debug)]
pub struct PayloadField {
    pub name: &'static str,
    pub presence: Presence,
    pub shape: PayloadShape,
    /// The description of the field in schemas and documents.
    pub about: &'static str,
}

const fn may(name: &'static str, shape: PayloadShape, about: &'static str) -> PayloadField {
    PayloadField {
        name,
        presence: Presence::Optional,
        shape,
        about,
    }
}

const fn must(name: &'static str, shape: PayloadShape, about: &'static str) -> PayloadField {
    PayloadField {
        name,
        presence: Presence::Required,
        shape,
        about,
    }
}

const STEP: PayloadField = must(
    "stepId",
    PayloadShape::Text(300),
    "The id of the step, such as `build` or `build#2`.",
);
const REASON: PayloadField = may(
    "reason",
    PayloadShape::Text(500),
    "The reason, which the log keeps.",
);
const FORCE: PayloadField = may(
    "force",
    PayloadShape::Flag,
    "Accepted for other engines; has no effect.",
);
/// A missing reason has a code of its own, so `check` does not look for it.
const STATED_REASON: PayloadField = PayloadField {
    presence: Presence::RequiredOrBeside,
    ..may(
        "reason",
        PayloadShape::Text(1000),
        "The reason, which the log keeps.",
    )
};

signals! {
    /// Starts no new work; work in flight continues to its end.
    Pause = "PAUSE", Operator, Started, [REASON];
    /// Continues a paused run.
    Resume = "RESUME", Operator, Started, [];
    /// Stops the run and ends it as cancelled.
    Cancel = "CANCEL", Operator, NotEnded, [REASON];
    /// Gives a failed step another logical attempt.
    RetryStep = "RETRY_STEP", Engineer, Started, [STEP, FORCE];
    /// Repeats a run that has ended as a new run.
    RetryRun = "RETRY_RUN", Engineer, Ended, [REASON, FORCE];
    /// Ends a step as skipped, so that the run can go on.
    SkipStep = "SKIP_STEP", Engineer, Started, [STEP, REASON];
    /// Changes the parameters of steps that start later.
    UpdateParams = "UPDATE_PARAMS", Admin, NotStopping,
        [must("params", PayloadShape::Object, "Merged over the parameters of the run.")];
    /// Changes the input of later attempts of one step.
    InjectOverride = "INJECT_OVERRIDE", Admin, NotStopping,
        [STEP, must("override", PayloadShape::Object, "Merged over the input of the step.")];
    /// Sends later executions of one step to another target.
    UpdateTarget = "UPDATE_TARGET", Admin, NotStopping,
        [STEP, must("newTarget", PayloadShape::Object, "The new target, for the worker to read.")];
    /// Stops everything and ends the run as cancelled, without undoing anything.
    EmergencyStop = "EMERGENCY_STOP", Admin, NotEnded,
        [STATED_REASON, may("forceKill", PayloadShape::Flag, "Whether the run ends without waiting for work in flight.")];
    /// Raises an alert and changes nothing in the run.
    EscalateAlert = "ESCALATE_ALERT", System, NotEnded,
        [
            must("level", PayloadShape::OneOf(&["INFO", "WARNING", "CRITICAL", "P1"]), "The urgency: `P1` and `CRITICAL` raise P1, `WARNING` P2, `INFO` P3."),
            may("note", PayloadShape::Text(1000), "The text of the alert.")
        ];
}

impl SignalKind {
    /// The signal of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<SignalKind> {
        SignalKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the signal changes what was planned: the sender must give a reason, and an operator is told.
    #[must_use]
    pub fn is_destructive(self) -> bool {
        self.role() == Role::Admin
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
            Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
                return wrong(format!("the payload of {} is a JSON object", self.name()));
            }
        };
        let rules = self.fields();
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
        for rule in rules {
            match fields.get(rule.name) {
                None if rule.presence == Presence::Required => {
                    return wrong(format!("{} needs {}", self.name(), rule.name));
                }
                Some(value) if !rule.shape.fits(value) => {
                    return wrong(format!(
                        "{} of {} must be {}",
                        rule.name,
                        self.name(),
                        rule.shape.words()
                    ));
                }
                None | Some(_) => {}
            }
        }
        Ok(())
    }

    /// The payload's JSON Schema.
    #[must_use]
    pub fn schema(self) -> Json {
        let mut properties = Map::new();
        let mut required: Vec<&str> = Vec::new();
        for rule in self.fields() {
            let mut schema = rule.shape.schema();
            schema["description"] = rule.about.into();
            properties.insert(rule.name.to_owned(), schema);
            if rule.presence != Presence::Optional {
                required.push(rule.name);
            }
        }
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": format!("https://stepwell.dev/schemas/signals/{}.schema.json", self.name()),
            "title": format!("Payload of the signal {}", self.name()),
            "description": self.about(),
            "type": "object",
            "additionalProperties": false,
            "properties": properties,
            "required": required,
        })
    }
}

impl PayloadShape {
    fn fits(&self, value: &Json) -> bool {
        match self {
            PayloadShape::Text(most) => value
                .as_str()
                .is_some_and(|text| text.chars().count() <= *most),
            PayloadShape::Flag => value.is_boolean(),
            PayloadShape::Object => value.is_object(),
            PayloadShape::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
        }
    }

    fn words(&self) -> String {
        match self {
            PayloadShape::Text(most) => format!("text of at most {most} characters"),
            PayloadShape::Flag => "true or false".into(),
            PayloadShape::Object => "a JSON object".into(),
            PayloadShape::OneOf(words) => format!("one of {}", words.join(", ")),
        }
    }

    fn schema(&self) -> Json {
        match self {
            PayloadShape::Text(most) => json!({ "type": "string", "maxLength": most }),
            PayloadShape::Flag => json!({ "type": "boolean" }),
            PayloadShape::Object => json!({ "type": "object" }),
            PayloadShape::OneOf(words) => json!({ "type": "string", "enum": words }),
        }
    }
}
