//! `spec` of a step: admission, timeout and what a failure means.

use stepwell_kernel::expr::Template;
use stepwell_kernel::plan::{Admission, AdmitRule, OnDenied, OnFailure, OnLoopFailure};

use super::fields;
use crate::codes;
use crate::field::Field;
use crate::leftover;
use crate::losses::Losses;
use crate::problem::Problems;
use crate::reader::Fields;
use crate::template;

/// What a step's `spec` says.
#[derive(Debug, Default)]
pub(super) struct StepPolicy {
    pub(super) admit: Option<Admission>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) losses: Losses,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) loop_failure: Option<OnLoopFailure>,
}

/// Reads the mapping `spec` of a step.
pub(super) fn read(mut f: Fields<'_>, p: &mut Problems) -> StepPolicy {
    let mut out = StepPolicy::default();
    let timeout = f.opt(["timeout", "timeout_s"], p);
    out.timeout_ms = timeout.as_ref().and_then(|it| it.time(p));
    out.losses = Losses::read_snake(&mut f, p);
    if let Some(mut policy) = f
        .opt("policy", p)
        .and_then(|it| it.known(&fields::STEP_POLICY, p))
    {
        if let Some(field) = policy.opt("admit", p) {
            out.admit = admit(&field, p);
        }
        if let Some(mut lifecycle) = policy
            .opt("lifecycle", p)
            .and_then(|it| it.known(&fields::LIFECYCLE, p))
        {
            let inner = lifecycle.opt(["timeout_s", "timeout"], p);
            leftover::finish(&lifecycle, "`policy.lifecycle`", p);
            if let Some(inner) = inner {
                if timeout.is_some() {
                    p.error(
                        codes::FIELD_CONFLICT,
                        inner.span(),
                        "the step has two timeouts",
                    )
                    .help("keep `spec.timeout`");
                }
                out.timeout_ms = inner.time(p);
            }
        }
        if let Some(mut failure) = policy
            .opt("failure", p)
            .and_then(|it| it.known(&fields::FAILURE_MODE, p))
        {
            if let Some(mode) = failure.opt("mode", p) {
                out.loop_failure = loop_failure(&mode, p);
                out.on_failure = out.loop_failure.map(|mode| match mode {
                    OnLoopFailure::Continue => OnFailure::Skip,
                    OnLoopFailure::Fail => OnFailure::Stop { compensate: false },
                });
            }
            leftover::finish(&failure, "`policy.failure`", p);
        }
        leftover::finish(&policy, "the policy of a step", p);
    }
    leftover::finish(&f, "the `spec` of a step", p);
    out
}

/// Reads `failure.mode`: `fail_fast` ends the loop, every other word lets the other iterations run.
pub(super) fn loop_failure(field: &Field<'_>, p: &mut Problems) -> Option<OnLoopFailure> {
    match field.word(p)? {
        "fail_fast" => Some(OnLoopFailure::Fail),
        _ => Some(OnLoopFailure::Continue),
    }
}

fn admit(field: &Field<'_>, p: &mut Problems) -> Option<Admission> {
    let mut f = field.known(&fields::ADMIT, p)?;
    if let Some(mode) = f.opt("mode", p) {
        mode.word(p);
    }
    let denied = f.opt("denied", p);
    let denied = denied.and_then(|it| it.word(p));
    let items = f.req("rules", p).and_then(|it| it.list(p));
    f.finish(p);
    let mut rules: Vec<AdmitRule> = Vec::new();
    for item in items? {
        if rules.last().is_some_and(|rule| rule.when.is_none()) {
            p.warn(
                codes::RULE_UNREACHABLE,
                item.span(),
                format!(
                    "{} is never looked at: a rule before it always matches",
                    item.label
                ),
            )
            .help("put the rule without a condition last");
        }
        rules.extend(rule(&item, p));
    }
    Some(Admission {
        rules,
        denied: if denied == Some("discard") {
            OnDenied::Discard
        } else {
            OnDenied::Pending
        },
    })
}

/// `{when, then: {allow}}` or `{else: {then: {allow}}}`; `then` may be left out below `else`.
fn rule(item: &Field<'_>, p: &mut Problems) -> Option<AdmitRule> {
    let mut f = item.known(&fields::ADMIT_RULE, p)?;
    let when = f.opt("when", p);
    let otherwise = f.opt("else", p);
    let then = f.opt("then", p);
    let span = f.span();
    f.finish(p);
    let (when, body): (Option<Template>, Option<Field<'_>>) = match (when, otherwise) {
        (Some(when), None) => (Some(template::condition(&when, p)?), then),
        (None, Some(_)) if then.is_some() => {
            p.error(
                codes::RULE_SHAPE,
                span,
                "a rule with `else` has no `then` beside it",
            )
            .help("write `else: {then: {allow: false}}`");
            return None;
        }
        (None, Some(otherwise)) => {
            let body = match otherwise.node.as_map() {
                Some([entry]) if entry.key == "then" => Field::of(entry),
                _ => otherwise,
            };
            (None, Some(body))
        }
        _ => {
            p.error(
                codes::RULE_SHAPE,
                span,
                "an admission rule has either `when` or `else`",
            )
            .help("write `when: \"{{ … }}\"` with `then: {allow: true}`, or `else: {then: {allow: false}}`");
            return None;
        }
    };
    let Some(body) = body else {
        p.error(codes::RULE_SHAPE, span, "this rule does not say what to do")
            .help("add `then: {allow: true}`");
        return None;
    };
    let mut f = body.known(&fields::ALLOW, p)?;
    let allow = f.req("allow", p).and_then(|it| it.bool(p));
    f.finish(p);
    Some(AdmitRule {
        when,
        allow: allow?,
    })
}
