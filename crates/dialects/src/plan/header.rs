//! What a plan says about itself: in `metadata`, or in older files at the root.

use serde_json::{Map, Value as Json, json};

use super::capabilities::{self, ADAPTER, FALLBACK, Fallback, REQUIRED};
use super::model::{Header, OnStepFailure};
use super::{fields, step};
use crate::codes;
use crate::leftover;
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::source::Span;
use crate::tree::Value;
use crate::words::quote;

/// Where the fields that are not known here are kept.
const UNKNOWN: &str = "unknownFields";

/// The two places where a field of the header can be.
struct HeaderFields<'f, 'n> {
    root: &'f mut Fields<'n>,
    metadata: Option<Fields<'n>>,
}

impl<'n> HeaderFields<'_, 'n> {
    /// The field from either place. Both at once is fine only if they agree.
    fn opt(&mut self, name: &'static str, p: &mut Problems) -> Option<Field<'n>> {
        let inner = self.metadata.as_mut().and_then(|it| it.opt(name, p));
        let outer = self.root.opt(name, p);
        if let (Some(inner), Some(outer)) = (&inner, &outer)
            && inner.json() != outer.json()
        {
            let message = format!("{} differs from the one in `metadata`", outer.label);
            p.error(codes::FIELD_CONFLICT, outer.span(), message)
                .help("keep the one in `metadata`");
        }
        inner.or(outer)
    }

    fn req(&mut self, name: &'static str, p: &mut Problems) -> Option<Field<'n>> {
        let found = self.opt(name, p);
        if found.is_none() {
            let span = self
                .metadata
                .as_ref()
                .map_or(self.root.span(), Fields::span);
            let message = format!("the plan needs `{name}`");
            p.missing(codes::INVALID_PLAN_SCHEMA, span, &[name], message)
                .help(format!("add `{name}: …` to `metadata`"));
        }
        found
    }
}

/// Reads everything but the steps.
pub(super) fn read<'n>(root: &mut Fields<'n>, p: &mut Problems) -> Option<Header<'n>> {
    let metadata = root
        .opt("metadata", p)
        .and_then(|it| it.known(&fields::METADATA, p));
    let is_older = metadata.is_none();
    let mut f = HeaderFields { root, metadata };

    let plan_id = f.req("planId", p).and_then(|it| it.name(p));
    let plan_version = version(&mut f, p);
    let schema_version = schema_version(&mut f, is_older, p);
    let mut header = Header {
        plan_id: plan_id.unwrap_or_default(),
        plan_version: plan_version.unwrap_or_default(),
        schema_version: schema_version.unwrap_or_default(),
        wants_parallel: None,
        on_failure: OnStepFailure::Fail,
        hold: None,
        needs_approval: false,
        timeout_ms: None,
        drain_timeout_ms: None,
        retry: None,
        steps_span: Span::default(),
        extra: Json::Null,
    };
    policies(&mut f, &mut header, p);
    let fallback = f.opt("fallbackBehavior", p);
    let fallback = fallback
        .and_then(|it| Fallback::read(&it, p))
        .unwrap_or_default();
    let mut extra = about(&mut f, p);
    if let Some(word) = fallback.word() {
        extra.insert(FALLBACK.to_owned(), word.into());
    }
    let capabilities = f.opt("requiresCapabilities", p);
    let capabilities =
        capabilities.and_then(|it| capabilities::check(&it, fallback, &mut header, p));
    if let Some(capabilities) = capabilities {
        extra.insert(REQUIRED.to_owned(), json!(capabilities));
    }
    if let Some(metadata) = f.metadata {
        keep_unknown(&metadata, "`metadata`", &mut extra, p);
    }
    if !extra.is_empty() {
        header.extra = Json::Object(extra);
    }
    Some(header)
}

fn policies(f: &mut HeaderFields<'_, '_>, header: &mut Header<'_>, p: &mut Problems) {
    if let Some(failure) = f.opt("onStepFailure", p).and_then(|it| failure(&it, p)) {
        header.on_failure = failure;
    }
    header.hold = f.opt("holdTimeout", p).and_then(|it| hold(&it, p));
    if let Some(needed) = f.opt("requiresApproval", p).and_then(|it| it.bool(p)) {
        header.needs_approval = needed;
    }
    header.timeout_ms = f.opt("timeout", p).and_then(|it| it.time(p));
    header.drain_timeout_ms = f.opt("drainTimeout", p).and_then(|it| it.time(p));
    header.retry = f.opt("retryPolicy", p).and_then(|it| step::retry(&it, p));
}

/// Fields that planners write and that are not known here: kept with the plan as they are, and reported.
fn keep_unknown(fields: &Fields<'_>, what: &str, extra: &mut Map<String, Json>, p: &mut Problems) {
    leftover::keep(fields, what, p);
    let unknown = fields.rest().map(|it| (it.key.clone(), it.node.to_json()));
    let unknown: Map<String, Json> = unknown.collect();
    if unknown.is_empty() {
        return;
    }
    let kept = extra.entry(UNKNOWN).or_insert_with(|| json!({}));
    if let Json::Object(kept) = kept {
        kept.extend(unknown);
    }
}

impl Header<'_> {
    /// What is left at the root once everything was read.
    pub(super) fn keep_unknown(&mut self, root: &Fields<'_>, p: &mut Problems) {
        let mut extra = match std::mem::take(&mut self.extra) {
            Json::Object(extra) => extra,
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
                Map::new()
            }
        };
        keep_unknown(root, "the plan", &mut extra, p);
        if !extra.is_empty() {
            self.extra = Json::Object(extra);
        }
    }
}

fn about(f: &mut HeaderFields<'_, '_>, p: &mut Problems) -> Map<String, Json> {
    let mut extra = Map::new();
    for key in ["name", "description"] {
        if let Some(text) = f.opt(key, p).and_then(|it| it.text(p)) {
            extra.insert(key.to_owned(), text.into());
        }
    }
    if let Some(adapter) = f.opt("targetAdapter", p).and_then(|it| it.word(p)) {
        extra.insert(ADAPTER.to_owned(), adapter.into());
    }
    if let Some(labels) = f.opt("labels", p) {
        for entry in labels.map(p).unwrap_or_default() {
            Field::of(entry).scalar_text(p);
        }
        extra.insert("labels".to_owned(), labels.json());
    }
    extra
}

/// `onStepFailure`, of a plan or of a step.
pub(super) fn failure(field: &Field<'_>, p: &mut Problems) -> Option<OnStepFailure> {
    Some(match field.word(p)? {
        "hold" => OnStepFailure::Hold,
        _ => OnStepFailure::Fail,
    })
}

/// `holdTimeout`, of a plan or of a step, and where it stands.
pub(super) fn hold(field: &Field<'_>, p: &mut Problems) -> Option<(u64, Span)> {
    let millis = field.time(p)?;
    Some((millis, field.span()))
}

/// `planVersion`, in older files also `version`. It is a part of every idempotency key.
fn version(f: &mut HeaderFields<'_, '_>, p: &mut Problems) -> Option<String> {
    let short = f.opt("version", p);
    let field = match short {
        Some(short) => match f.opt("planVersion", p) {
            Some(long) if long.json() != short.json() => {
                p.error(
                    codes::FIELD_CONFLICT,
                    short.span(),
                    "`version` and `planVersion` mean the same and differ",
                )
                .help("keep `planVersion`");
                long
            }
            Some(long) => long,
            None => short,
        },
        None => f.req("planVersion", p)?,
    };
    if let Value::Int(int) = field.node.value {
        return Some(int.to_string());
    }
    let version = field.string(p)?;
    if version.contains('|') {
        field
            .error(codes::NAME_INVALID, "must not hold `|`", p)
            .help("write a version such as `1.2.0`");
        return None;
    }
    Some(version.to_owned())
}

/// `v1.x`. Older files may leave it out.
fn schema_version(
    f: &mut HeaderFields<'_, '_>,
    is_older: bool,
    p: &mut Problems,
) -> Option<String> {
    let field = if is_older {
        match f.opt("schemaVersion", p) {
            Some(field) => field,
            None => return Some("v1.0".to_owned()),
        }
    } else {
        f.req("schemaVersion", p)?
    };
    let text = field.string(p)?;
    if let Some(version) = known_schema_version(text) {
        return Some(version);
    }
    let message = format!("the schema version {} is not known", quote(text));
    p.error(codes::PLAN_SCHEMA_VERSION_UNKNOWN, field.span(), message)
        .help("write `v1.2`; every `v1.x` is read");
    None
}

/// A schema version of the first major, with its `v`.
pub(super) fn known_schema_version(text: &str) -> Option<String> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let mut parts = bare.split('.');
    let digits = |part: &str| {
        !part.is_empty() && part.len() <= 6 && part.bytes().all(|b| b.is_ascii_digit())
    };
    let fits = parts.next() == Some("1") && parts.clone().count() <= 2 && parts.all(digits);
    fits.then(|| format!("v{bare}"))
}
