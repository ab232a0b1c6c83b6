//! What a plan may ask of an engine (`targetAdapter`, `requiresCapabilities`): whether any engine of this program has it, and
//! whether the engine that is to run the plan has it.

use serde_json::Value as Json;
use stepwell_kernel::plan::Plan;

use super::model::Header;
use crate::codes;
use crate::problem::{Problem, Problems, Severity};
use crate::reader::Field;
use crate::source::Span;
use crate::words::{self, quote};

/// Everything that the native engine can do under the names that plans use.
pub const KNOWN: [&str; 22] = [
    "basic-execution",
    "history.rotation",
    "signal.cancel",
    "signal.emergency-stop",
    "signal.pause.emulated",
    "signal.pause.native",
    "signal.retry",
    "signal.skip",
    "signal.update-params",
    "workflow.approval",
    "workflow.artifacts",
    "workflow.cancel",
    "workflow.compensation",
    "workflow.events",
    "workflow.fan.parallel",
    "workflow.pause",
    "workflow.queue",
    "workflow.retry",
    "workflow.secrets",
    "workflow.signals",
    "workflow.timeout",
    "workflow.timers",
];

/// What an engine does not do, and why: the engine, the capability, the reason.
pub const MISSING: [(&str, &str, &str); 4] = [
    (
        "mock",
        "workflow.artifacts",
        "work is simulated, so nothing makes an artifact",
    ),
    (
        "mock",
        "workflow.secrets",
        "work is simulated, so nothing resolves a secret",
    ),
    (
        "temporal",
        "signal.pause.native",
        "Temporal has no pause that holds the timers of a workflow back; `signal.pause.emulated` is the kernel's own",
    ),
    (
        "conductor",
        "signal.pause.native",
        "the pause of Conductor holds back the driver of the run, too; `signal.pause.emulated` is the kernel's own, and work in \
         flight drains",
    ),
];

/// The names under which a compiled plan has them.
pub(super) const ADAPTER: &str = "targetAdapter";
pub(super) const REQUIRED: &str = "requiresCapabilities";
pub(super) const FALLBACK: &str = "fallbackBehavior";

/// What happens if a plan needs a capability that the engine does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fallback {
    /// The plan is refused with an error.
    #[default]
    Reject,
    /// The author wants the same result in another way; the plan runs without the capability, with a warning.
    Emulate,
    /// The plan runs without the capability, with a warning.
    Degrade,
}

impl Fallback {
    pub(super) fn read(field: &Field<'_>, p: &mut Problems) -> Option<Fallback> {
        Some(match field.word(p)? {
            "emulate" => Fallback::Emulate,
            "degrade" => Fallback::Degrade,
            _ => Fallback::Reject,
        })
    }

    /// As plans write it; absent for the default.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Fallback::Reject => None,
            Fallback::Emulate => Some("emulate"),
            Fallback::Degrade => Some("degrade"),
        }
    }
}

/// What keeps an engine from running a plan: errors, or warnings where the plan has a fallback.
///
/// A plan for `mock` is refused by every other engine, which would do real work where its author wants none. The mock
/// engine runs a plan for `native`: it has no effects, and gives the same events for the same results.
#[must_use]
pub fn check_engine(plan: &Plan, engine: &str) -> Vec<Problem> {
    let extra = &plan.net().extra;
    let severity = match extra.get(FALLBACK) {
        Some(_) => Severity::Warning,
        None => Severity::Error,
    };
    let problem = |code, message: String, help: &str| {
        let mut problem = Problem::new(code, severity, Span::default(), message);
        problem.help(help);
        problem
    };
    let mut found = Vec::new();
    let adapter = extra.get(ADAPTER).and_then(Json::as_str);
    let may_run = |adapter: &str| {
        // Simulating real work does no harm.
        [engine, "any"].contains(&adapter) || (engine, adapter) == ("mock", "native")
    };
    if let Some(adapter) = adapter.filter(|it| !may_run(it)) {
        let work = match adapter {
            "mock" => ", which does real work",
            _ => "",
        };
        found.push(problem(
            codes::PLAN_ADAPTER_UNSUPPORTED,
            format!("the plan is written for the engine `{adapter}`, and the engine is `{engine}`{work}"),
            &format!("run the plan with `--engine {adapter}`, or write `targetAdapter: {engine}` or `any`"),
        ));
    }
    let required = extra.get(REQUIRED).and_then(Json::as_array);
    let required = required.into_iter().flatten().filter_map(Json::as_str);
    let missing = |name: &str| MISSING.iter().find(|it| it.0 == engine && it.1 == name);
    for (_, name, why) in required.filter_map(missing) {
        found.push(problem(
            codes::PLAN_CAPABILITY_UNSUPPORTED,
            format!("the plan requires {}, which the engine `{engine}` does not have: {why}", quote(name)),
            "run the plan with `--engine native`, or allow it to run without the capability: `fallbackBehavior: degrade`",
        ));
    }
    found
}

/// Checks the list against what is known, and notes what the plan means by it.
pub(super) fn check<'n>(
    field: &Field<'n>,
    fallback: Fallback,
    header: &mut Header<'_>,
    p: &mut Problems,
) -> Option<Vec<&'n str>> {
    let mut wanted = Vec::new();
    for item in field.list(p)? {
        let Some(name) = item.string(p) else { continue };
        if name == "workflow.fan.parallel" {
            header.wants_parallel = Some(item.span());
        }
        wanted.push(name);
        if KNOWN.contains(&name) {
            continue;
        }
        let message = format!("the capability {} is not known here", quote(name));
        let near =
            words::nearest(name, &KNOWN).map(|near| format!("did you mean {}?", quote(near)));
        match fallback {
            Fallback::Reject => {
                let all = format!("the known ones are {}", words::list(&KNOWN));
                p.error(codes::PLAN_CAPABILITY_UNSUPPORTED, item.span(), message)
                    .help(near.unwrap_or(all));
            }
            Fallback::Emulate | Fallback::Degrade => {
                let rest = "; the plan runs without it, as `fallbackBehavior` says";
                p.warn(
                    codes::PLAN_CAPABILITY_UNSUPPORTED,
                    item.span(),
                    message + rest,
                )
                .maybe_help(near);
            }
        }
    }
    Some(wanted)
}
