//! The macro behind the table of events, and what the columns of the table mean. The table itself is in `body`.

/// Where an event type comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOrigin {
    /// The execution contract lists the type.
    Contract,
    /// The type is additive: evidence and detail. It never changes the status of a run.
    Additive,
}

/// Which component emits an event, in the contract's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emitter {
    Engine,
    /// The component that approves runs.
    Planner,
    /// Authorization: signals and people.
    System,
    /// A worker, about work that it has claimed.
    Worker,
    /// The holder of the step-run: a worker with its lease, a person who completes it, or else the engine.
    Holder,
}

/// Defines `Body` and `EventType` from one table. A row is the documentation of the event, then
/// `#[event(number, origin, emitter, key(subject, attempt, ordinal))]`, then the variant with its data.
///
/// - *number*: what stored keys know the type by. It never changes, and the compiler refuses a number that is used
///   twice.
/// - *origin*: a variant of [`EventOrigin`].
/// - *emitter*: a variant of [`Emitter`].
/// - *key*: what the event is recorded under. The subject is `run`, `step`, or a field with an id. The attempt and the
///   ordinal are a number or a field; the ordinal `seq` is the sequence number, for events that may occur more than
///   once in an attempt.
///
/// The rows stand in groups. The name of a group is also a macro: a pattern for all events of the group, or
/// with `(types)` for their types.
macro_rules! events {
    (
        $(
            $(#[doc = $group_doc:literal])+
            $group:ident {
                $(
                    $(#[doc = $doc:literal])+
                    #[event(
                        $number:literal, $origin:ident, $emitter:ident,
                        key($subject:ident, $attempt:tt, $ordinal:tt)
                    )]
                    $variant:ident { $($data:tt)* },
                )+
            }
        )+
    ) => {
        /// The type and the data of an event.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "type")]
        pub enum Body {
            $($($(#[doc = $doc])+ $variant { $($data)* },)+)+
            /// An event that this version cannot read, because a newer version wrote it. The event counts in the log and
            /// changes nothing. It is never written: the log has it as the newer version wrote it.
            #[serde(skip)]
            Opaque(OpaqueEvent),
        }

        /// The type of an event, without its data.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum EventType {
            $($($(#[doc = $doc])+ $variant = $number,)+)+
            /// The types that this version does not know; see [`Body::Opaque`].
            Opaque = 255,
        }

        $(
            $(#[doc = $group_doc])+
            #[macro_export]
            macro_rules! $group {
                () => { $($crate::event::Body::$variant { .. })|+ };
                (types) => { $($crate::event::EventType::$variant)|+ };
            }
            pub use $group;
        )+

        impl EventType {
            /// Every type that this version knows, in the order of the table.
            pub const ALL: &'static [EventType] = &[$($(EventType::$variant,)+)+];

            /// The name in the log.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(EventType::$variant => stringify!($variant),)+)+
                    EventType::Opaque => "Opaque",
                }
            }

            /// The type of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<EventType> {
                EventType::ALL.iter().copied().find(|it| it.name() == name)
            }

            /// Whether the contract lists the type.
            #[must_use]
            pub const fn origin(self) -> EventOrigin {
                match self {
                    $($(EventType::$variant => EventOrigin::$origin,)+)+
                    EventType::Opaque => EventOrigin::Additive,
                }
            }

            /// Which component emits it.
            #[must_use]
            pub const fn emitter(self) -> Emitter {
                match self {
                    $($(EventType::$variant => Emitter::$emitter,)+)+
                    EventType::Opaque => Emitter::Engine,
                }
            }

            /// What happened, in one line.
            #[must_use]
            pub fn about(self) -> &'static str {
                let about = match self {
                    $($(EventType::$variant => concat!($($doc),+),)+)+
                    EventType::Opaque => "A newer version wrote the event, and this version cannot read it.",
                };
                about.trim()
            }

            /// How the key is made: the subject, the attempt and the ordinal.
            #[must_use]
            pub const fn key_rule(self) -> [&'static str; 3] {
                match self {
                    $($(EventType::$variant =>
                        [stringify!($subject), stringify!($attempt), stringify!($ordinal)],)+)+
                    EventType::Opaque => ["run", "1", "seq"],
                }
            }
        }

        impl Body {
            /// The type of the event.
            #[must_use]
            pub const fn event_type(&self) -> EventType {
                match self {
                    $($(Body::$variant { .. } => EventType::$variant,)+)+
                    Body::Opaque(_) => EventType::Opaque,
                }
            }

            /// The step that the event is about.
            #[must_use]
            pub fn step(&self) -> Option<StepRef> {
                match self {
                    $($(at!($variant $subject) => step_of!($subject $subject),)+)+
                    Body::Opaque(_) => None,
                }
            }

            /// The id that the event is about, if it is about neither the run nor a step.
            pub(super) fn id(&self) -> Option<&str> {
                match self {
                    $($(at!($variant $subject) => id_of!($subject $subject),)+)+
                    Body::Opaque(_) => None,
                }
            }

            /// The logical attempt in the key; for pauses their ordinal.
            pub(crate) fn attempt(&self) -> u32 {
                match self {
                    $($(at!($variant $attempt) => attempt_of!($attempt),)+)+
                    Body::Opaque(_) => 1,
                }
            }

            /// What tells the event apart from others of its attempt; zero if it is the only one.
            pub(super) fn ordinal(&self, seq: u64) -> u64 {
                match self {
                    $($(at!($variant $ordinal) => ordinal_of!($ordinal, seq),)+)+
                    Body::Opaque(_) => seq,
                }
            }
        }
    };
}

/// The pattern of a variant that binds the field of a column, if the column names one.
macro_rules! at {
    ($variant:ident run) => {
        Body::$variant { .. }
    };
    ($variant:ident seq) => {
        Body::$variant { .. }
    };
    ($variant:ident $number:literal) => {
        Body::$variant { .. }
    };
    ($variant:ident $field:ident) => {
        Body::$variant { $field, .. }
    };
}

/// The column twice: once to be compared, once as the name that the pattern has bound.
macro_rules! step_of {
    (run $run:ident) => {
        None
    };
    (step $field:ident) => {
        Some(*$field)
    };
    ($other:ident $field:ident) => {{
        let _ = $field;
        None
    }};
}

macro_rules! id_of {
    (run $run:ident) => {
        None
    };
    (step $field:ident) => {{
        let _ = $field;
        None
    }};
    ($other:ident $field:ident) => {
        Some($field.as_str())
    };
}

macro_rules! attempt_of {
    ($number:literal) => {
        $number
    };
    ($field:ident) => {
        *$field
    };
}

macro_rules! ordinal_of {
    ($number:literal, $seq:ident) => {
        $number
    };
    (seq, $seq:ident) => {
        $seq
    };
    ($field:ident, $seq:ident) => {
        u64::from(*$field)
    };
}

pub(super) use {at, attempt_of, events, id_of, ordinal_of, step_of};
