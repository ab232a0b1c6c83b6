//! What a field of an event holds in the contract's view, and how that is written as JSON. Values are
//! borrowed from the event and the plan: nothing is copied before it is written.
//!
//! What is written is canonical (RFC 8785) but for integers that a double cannot hold, which are written
//! as they are.

use super::check::is_hash;
use super::fields::TRIGGER_SOURCES;
use super::name::FieldName;
use super::view::words::{as_uri, category};
use crate::canonical::{LARGEST_EXACT, write_number, write_text};
use crate::event::{ArtifactRef, Patch, RunContext, StepError};
use crate::keys;
use crate::plan::{Plan, StepRef};
use crate::time::Time;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum FieldValue<'a> {
    /// The event's own id.
    EventId,
    EventType,
    /// The event's idempotency key.
    IdempotencyKey,
    RunId,
    /// The event's sequence number.
    RunSeq,
    /// The event's own time.
    Now,
    PlanVersion,
    /// The plan that the run is pinned to.
    PlanRef,
    /// One of the contract's words.
    Word(&'static str),
    Text(&'a str),
    /// A time other than the time of the event.
    Time(Time),
    Number(u64),
    Flag(bool),
    /// The id of a step-run.
    StepId(StepRef),
    /// The ids of step-runs.
    StepIds(&'a [StepRef]),
    Texts(&'a [String]),
    /// The keys of a patch.
    Keys(&'a Patch),
    /// The tenant, project and environment of the run, and who started the run.
    Context(&'a RunContext),
    /// The error of a run, a step or an undo.
    Failure(&'a StepError),
    /// The error of an execution that another follows: it is retried, whatever its class.
    RetriedFailure(&'a StepError),
    /// References to the artifacts of a step.
    Artifacts(&'a [ArtifactRef]),
}

/// The data that the values of one event refer to.
#[derive(Clone, Copy, Debug)]
pub struct FieldWriter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) run_id: &'a str,
    pub(super) event_type: &'static str,
    pub(super) seq: u64,
    /// The event's time as text.
    pub(super) now: &'a [u8],
    pub(super) event_id: &'a [u8; 16],
    pub(super) key: &'a [u8; 32],
}

impl FieldWriter<'_> {
    /// Appends an object with these fields.
    pub(super) fn write_object(&self, fields: &[(FieldName, FieldValue<'_>)], out: &mut Vec<u8>) {
        let mut separator = b'{';
        for (name, value) in fields {
            out.push(separator);
            separator = b',';
            out.extend_from_slice(name.member().as_bytes());
            self.write(value, out);
        }
        out.push(b'}');
    }

    /// Appends a value as JSON.
    pub fn write(&self, value: &FieldValue<'_>, out: &mut Vec<u8>) {
        match value {
            FieldValue::EventId => quoted(out, |out| keys::write_uuid(self.event_id, out)),
            FieldValue::EventType => write_plain(self.event_type, out),
            FieldValue::IdempotencyKey => quoted(out, |out| keys::write_hex(self.key, out)),
            // It has letters, digits, `_` and `-`, or its events are refused.
            FieldValue::RunId => write_plain(self.run_id, out),
            FieldValue::RunSeq => write_number(self.seq, out),
            FieldValue::Now => quoted(out, |out| out.extend_from_slice(self.now)),
            FieldValue::PlanVersion => write_text(&self.plan.net().plan_version, out),
            FieldValue::PlanRef => out.extend_from_slice(self.plan.reference().as_bytes()),
            FieldValue::Word(word) => write_plain(word, out),
            FieldValue::Text(text) => write_text(text, out),
            FieldValue::Time(time) => write_time(*time, out),
            FieldValue::Number(number) => write_number(*number, out),
            FieldValue::Flag(flag) => write_flag(*flag, out),
            FieldValue::StepId(at) => write_text(&self.plan.step_id_text(*at), out),
            FieldValue::StepIds(steps) => write_list(*steps, out, |at, out| {
                write_text(&self.plan.step_id_text(*at), out);
            }),
            FieldValue::Texts(texts) => write_list(*texts, out, |text, out| write_text(text, out)),
            FieldValue::Keys(patch) => {
                write_list(patch.keys(), out, |key, out| write_text(key, out))
            }
            FieldValue::Context(context) => write_context(context, out),
            FieldValue::Failure(error) => write_failure(error, category(error.class).1, out),
            FieldValue::RetriedFailure(error) => write_failure(error, true, out),
            FieldValue::Artifacts(artifacts) => write_list(*artifacts, out, write_artifact),
        }
    }
}

impl FieldValue<'_> {
    /// Whether canonical JSON says all of it: integers beyond what a double holds are rounded there.
    pub(super) fn is_exact(&self) -> bool {
        let fits = |number: u64| number <= LARGEST_EXACT;
        match self {
            FieldValue::Number(number) => fits(*number),
            FieldValue::Artifacts(artifacts) => {
                let mut sizes = artifacts.iter().filter_map(|it| it.size_bytes);
                sizes.all(fits)
            }
            FieldValue::EventId
            | FieldValue::EventType
            | FieldValue::IdempotencyKey
            | FieldValue::RunId
            | FieldValue::RunSeq
            | FieldValue::Now
            | FieldValue::PlanVersion
            | FieldValue::PlanRef
            | FieldValue::Word(_)
            | FieldValue::Text(_)
            | FieldValue::Time(_)
            | FieldValue::Flag(_)
            | FieldValue::StepId(_)
            | FieldValue::StepIds(_)
            | FieldValue::Texts(_)
            | FieldValue::Keys(_)
            | FieldValue::Context(_)
            | FieldValue::Failure(_)
            | FieldValue::RetriedFailure(_) => true,
        }
    }
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

/// Appends a text in which nothing is escaped.
fn write_plain(text: &str, out: &mut Vec<u8>) {
    quoted(out, |out| out.extend_from_slice(text.as_bytes()));
}

fn write_flag(flag: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if flag { b"true" } else { b"false" });
}

fn write_time(time: Time, out: &mut Vec<u8>) {
    quoted(out, |out| out.extend_from_slice(&time.rfc3339_bytes()));
}

fn write_list<T>(
    list: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    out.push(b'[');
    for (place, item) in list.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

fn write_context(context: &RunContext, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"environmentId\":");
    write_text(&context.environment_id, out);
    out.extend_from_slice(b",\"projectId\":");
    write_text(&context.project_id, out);
    out.extend_from_slice(b",\"tenantId\":");
    write_text(&context.tenant_id, out);
    let source = context.trigger_source.as_deref();
    if let Some(source) = source.filter(|source| TRIGGER_SOURCES.contains(source)) {
        out.extend_from_slice(b",\"triggerSource\":");
        write_text(source, out);
    }
    if let Some(by) = &context.triggered_by {
        out.extend_from_slice(b",\"triggeredBy\":");
        write_text(by, out);
    }
    out.push(b'}');
}

/// An error in the contract's words.
fn write_failure(error: &StepError, retryable: bool, out: &mut Vec<u8>) {
    let (category, _) = category(error.class);
    out.extend_from_slice(b"{\"category\":");
    write_plain(category, out);
    out.extend_from_slice(b",\"code\":");
    write_text(&error.code, out);
    out.extend_from_slice(b",\"message\":");
    write_text(&error.message, out);
    out.extend_from_slice(b",\"retryable\":");
    write_flag(retryable, out);
    out.push(b'}');
}

/// A pointer in the contract's words; a hash that is none is left to `ext`.
fn write_artifact(artifact: &ArtifactRef, out: &mut Vec<u8>) {
    out.push(b'{');
    if let Some(expires) = artifact.expires_at {
        out.extend_from_slice(b"\"expiresAt\":");
        write_time(expires, out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"kind\":");
    write_text(&artifact.kind, out);
    if let Some(sha256) = artifact.sha256.as_ref().filter(|hash| is_hash(hash)) {
        out.extend_from_slice(b",\"sha256\":");
        write_plain(sha256, out);
    }
    if let Some(size) = artifact.size_bytes {
        out.extend_from_slice(b",\"sizeBytes\":");
        write_number(size, out);
    }
    out.extend_from_slice(b",\"uri\":");
    write_text(&as_uri(&artifact.uri), out);
    out.push(b'}');
}
