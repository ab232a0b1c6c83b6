//! `executor`: where a run begins and ends, and what holds for all of it.

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::{FinalFailure, Unhandled};

use super::fields;
pub(super) use super::model::Executor;
use super::model::Named;
use crate::codes;
use crate::field::Field;
use crate::leftover;
use crate::problem::Problems;
use crate::reader::Fields;

/// Reads the mapping `executor`; problems are reported and leave the defaults.
pub(super) fn read(field: &Field<'_>, p: &mut Problems) -> Executor {
    let mut out = Executor::default();
    let Some(mut f) = field.known(&fields::EXECUTOR, p) else {
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
    if let Some(spec) = f
        .opt("spec", p)
        .and_then(|it| it.known(&fields::RUN_SPEC, p))
    {
        self::spec(spec, &mut out, p);
    }
    leftover::finish(&f, "`executor`", p);
    out
}

fn requires(field: &Field<'_>, p: &mut Problems) -> Json {
    if let Some(mut f) = field.known(&fields::REQUIRES, p) {
        if let Some(tools) = f.opt("tools", p) {
            let kinds = crate::tools::kind_names();
            for item in tools.list(p).unwrap_or_default() {
                if let Some(name) = item.string(p)
                    && !kinds.contains(&name)
                {
                    p.warn(
                        codes::TOOL_UNKNOWN,
                        item.span(),
                        format!("there is no tool {}", crate::words::quote(name)),
                    )
                    .help(format!("the kinds are {}", crate::words::list(&kinds)));
                }
            }
        }
        f.opt("features", p).and_then(|it| it.strings(p));
        leftover::finish(&f, "`requires`", p);
    }
    field.json()
}

fn spec(mut f: Fields<'_>, out: &mut Executor, p: &mut Problems) {
    out.entry = named(f.opt("entry_step", p), p);
    out.final_step = named(f.opt("final_step", p), p);
    if let Some(it) = f.opt("no_next_is_error", p).and_then(|it| it.bool(p)) {
        out.policy.no_next_is_error = it;
    }
    if let Some(it) = f.opt("strict", p).and_then(|it| it.bool(p)) {
        out.policy.strict_templates = it;
    }
    out.policy.timeout_ms = f.opt(["timeout", "timeout_s"], p).and_then(|it| it.time(p));
    if let Some(policy) = f
        .opt("policy", p)
        .and_then(|it| it.known(&fields::RUN_POLICY, p))
    {
        self::policy(policy, out, p);
    }
    leftover::finish(&f, "`executor.spec`", p);
}

fn named(field: Option<Field<'_>>, p: &mut Problems) -> Option<Named> {
    let field = field?;
    let text = field.string(p)?.to_owned();
    Some(Named {
        text,
        span: field.span(),
    })
}

fn policy(mut f: Fields<'_>, out: &mut Executor, p: &mut Problems) {
    unhandled(&mut f, out, p);
    if let Some(word) = f.opt("final", p).and_then(|it| it.word(p)) {
        out.policy.final_failure = match word {
            "partial" => FinalFailure::Partial,
            _ => FinalFailure::Fail,
        };
    }
    let mut time =
        |names: [&'static str; 2], p: &mut Problems| f.opt(names, p).and_then(|it| it.time(p));
    if let Some(millis) = time(["stall_timeout", "stall_timeout_s"], p) {
        out.policy.stall_timeout_ms = millis;
    }
    if let Some(millis) = time(["drain_timeout", "drain_timeout_s"], p) {
        out.policy.drain_timeout_ms = millis;
    }
    if let Some(mut defaults) = f
        .opt("defaults", p)
        .and_then(|it| it.known(&fields::STEP_DEFAULTS, p))
    {
        out.default_timeout_ms = defaults
            .opt(["timeout_s", "timeout"], p)
            .and_then(|it| it.time(p));
        leftover::finish(&defaults, "`policy.defaults`", p);
    }
    if let Some(mut results) = f
        .opt("results", p)
        .and_then(|it| it.known(&fields::RESULTS, p))
    {
        // Large results always travel as references, so `true` asks for what is done anyway.
        let first = results.opt("reference_first", p);
        if let Some(field) = first.filter(|it| it.bool(p) == Some(false)) {
            p.warn(
                codes::FIELD_UNUSED,
                field.span(),
                "large results are passed by reference whatever `reference_first` says",
            )
            .help("remove it");
        }
        leftover::finish(&results, "`policy.results`", p);
    }
    leftover::finish(&f, "`executor.spec.policy`", p);
}

/// `failure.mode` says whether the other branches finish, `completion` what the run is then.
fn unhandled(f: &mut Fields<'_>, out: &mut Executor, p: &mut Problems) {
    let completion = f.opt("completion", p);
    let word = completion.as_ref().and_then(|it| it.word(p));
    let mut mode = None;
    if let Some(mut failure) = f
        .opt("failure", p)
        .and_then(|it| it.known(&fields::FAILURE_MODE, p))
    {
        mode = failure.opt("mode", p).and_then(|it| it.word(p));
        leftover::finish(&failure, "`policy.failure`", p);
    }
    out.policy.unhandled = match (mode, word) {
        (Some("fail_fast"), Some("partial")) => {
            let span = completion.map_or(f.span(), |it| it.span());
            p.error(
                codes::FIELD_CONFLICT,
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
