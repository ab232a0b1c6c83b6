//! What a plan may ask of an engine (`requiresCapabilities`).

use super::model::Header;
use crate::problem::Problems;
use crate::reader::Field;
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

/// What to do about a capability that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fallback {
    /// Refuse the plan.
    #[default]
    Reject,
    /// Do something that amounts to the same.
    Emulate,
    /// Do without.
    Degrade,
}

impl Fallback {
    pub(super) fn read(field: &Field<'_>, p: &mut Problems) -> Option<Fallback> {
        Some(match field.one_of(&["reject", "emulate", "degrade"], p)? {
            "emulate" => Fallback::Emulate,
            "degrade" => Fallback::Degrade,
            _ => Fallback::Reject,
        })
    }
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
                p.error("PLAN_CAPABILITY_UNSUPPORTED", item.span(), message)
                    .help(near.unwrap_or(all));
            }
            Fallback::Emulate | Fallback::Degrade => {
                let rest = "; the plan runs without it, as `fallbackBehavior` says";
                p.warn("PLAN_CAPABILITY_UNSUPPORTED", item.span(), message + rest)
                    .maybe_help(near);
            }
        }
    }
    Some(wanted)
}
