//! `executor`: where a run begins and ends, and what holds for all of it.

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::{FinalFailure, Unhandled};

pub(super) use super::model::Executor;
use super::model::Named;
use crate::duration::DurationRule;
use crate::field::Field;
use crate::leftover;
use crate::problem::Problems;
use crate::reader::Fields;

/// Reads `executor`.
pub(super) fn read(field: &Field<'_>, p: &mut Problems) -> Executor {
    let mut out = Executor::default();
    let Some(mut f) = field.fields(p) else {
        return out;
    };
    let profile = f.opt("profile", p).and_then(|it| it.string(p));
    let version = f.opt("version", p).and_then(|it| it.scalar_text(p));
    if profile.is_some() || version.is_some() {
        out.profile = json!({ "profile": profile, "version": version });
    }
    if let Some(requires) = f.opt("requires", p) {
        out.requires = self::requires(&requires, p);
    }
    if let Some(spec) = f.opt("spec", p).and_then(|it| it.fields(p)) {
        self::spec(spec, &mut out, p);
    }
    leftover::report(
        &f,
        "`executor`",
        &["profile", "version", "requires", "spec"],
        p,
    );
    out
}

fn requires(field: &Field<'_>, p: &mut Problems) -> Json {
    if let Some(mut f) = field.fields(p) {
        if let Some(tools) = f.opt("tools", p) {
            let kinds = crate::tools::kind_names();
            for item in tools.list(p).unwrap_or_default() {
                if let Some(name) = item.string(p)
                    && !kinds.contains(&name)
                {
                    p.warn(
                        "TOOL_UNKNOWN",
                        item.span(),
                        format!("there is no tool {}", crate::words::quote(name)),
                    )
                    .help(format!("the kinds are {}", crate::words::list(&kinds)));
                }
            }
        }
        f.opt("features", p).and_then(|it| it.strings(p));
        leftover::report(&f, "`requires`", &["tools", "features"], p);
    }
    field.json()
}

const SPEC: &[&str] = &[
    "entry_step",
    "final_step",
    "no_next_is_error",
    "timeout",
    "policy",
];

fn spec(mut f: Fields<'_>, out: &mut Executor, p: &mut Problems) {
    out.entry = named(f.opt("entry_step", p), p);
    out.final_step = named(f.opt("final_step", p), p);
    if let Some(it) = f.opt("no_next_is_error", p).and_then(|it| it.bool(p)) {
        out.policy.no_next_is_error = it;
    }
    out.policy.timeout_ms = f
        .opt(["timeout", "timeout_s"], p)
        .and_then(|it| it.duration(DurationRule::SECONDS, p));
    if let Some(policy) = f.opt("policy", p).and_then(|it| it.fields(p)) {
        self::policy(policy, out, p);
    }
    leftover::report(&f, "`executor.spec`", SPEC, p);
}

fn named(field: Option<Field<'_>>, p: &mut Problems) -> Option<Named> {
    let field = field?;
    let text = field.string(p)?.to_owned();
    Some(Named {
        text,
        span: field.span(),
    })
}

const POLICY: &[&str] = &[
    "completion",
    "failure",
    "final",
    "stall_timeout",
    "drain_timeout",
    "defaults",
    "results",
];

fn policy(mut f: Fields<'_>, out: &mut Executor, p: &mut Problems) {
    unhandled(&mut f, out, p);
    if let Some(word) = f
        .opt("final", p)
        .and_then(|it| it.one_of(&["fail", "partial"], p))
    {
        out.policy.final_failure = match word {
            "partial" => FinalFailure::Partial,
            _ => FinalFailure::Fail,
        };
    }
    let mut time = |names: [&'static str; 2], p: &mut Problems| {
        f.opt(names, p)
            .and_then(|it| it.duration(DurationRule::SECONDS, p))
    };
    if let Some(millis) = time(["stall_timeout", "stall_timeout_s"], p) {
        out.policy.stall_timeout_ms = millis;
    }
    if let Some(millis) = time(["drain_timeout", "drain_timeout_s"], p) {
        out.policy.drain_timeout_ms = millis;
    }
    if let Some(mut defaults) = f.opt("defaults", p).and_then(|it| it.fields(p)) {
        out.default_timeout_ms = defaults
            .opt(["timeout_s", "timeout"], p)
            .and_then(|it| it.duration(DurationRule::SECONDS, p));
        leftover::report(&defaults, "`policy.defaults`", &["timeout_s", "timeout"], p);
    }
    if let Some(mut results) = f.opt("results", p).and_then(|it| it.fields(p)) {
        // Large results always travel as references, so `true` asks for what is done anyway.
        let first = results.opt("reference_first", p);
        if let Some(field) = first.filter(|it| it.bool(p) == Some(false)) {
            p.warn(
                "FIELD_UNUSED",
                field.span(),
                "large results are passed by reference whatever `reference_first` says",
            )
            .help("remove it");
        }
        leftover::report(&results, "`policy.results`", &["reference_first"], p);
    }
    leftover::report(&f, "`executor.spec.policy`", POLICY, p);
}

/// `failure.mode` says whether the other branches finish, `completion` what the run is then.
fn unhandled(f: &mut Fields<'_>, out: &mut Executor, p: &mut Problems) {
    let completion = f.opt("completion", p);
    let word = completion
        .as_ref()
        .and_then(|it| it.one_of(&["fail", "partial"], p));
    let mut mode = None;
    if let Some(mut failure) = f.opt("failure", p).and_then(|it| it.fields(p)) {
        mode = failure
            .opt("mode", p)
            .and_then(|it| it.one_of(&["fail_fast", "continue", "best_effort"], p));
        leftover::report(&failure, "`policy.failure`", &["mode"], p);
    }
    out.policy.unhandled = match (mode, word) {
        (Some("fail_fast"), Some("partial")) => {
            let span = completion.map_or(f.span(), |it| it.span());
            p.error(
                "FIELD_CONFLICT",
                span,
                "a run that stops at the first failure cannot be partial",
            )
            .help("write `failure: {mode: continue}` with `completion: partial`");
            Unhandled::Stop
        }
        (Some("fail_fast"), _) => Unhandled::Stop,
        (_, Some("partial")) => Unhandled::Partial,
        _ => Unhandled::Fail,
    };
}
