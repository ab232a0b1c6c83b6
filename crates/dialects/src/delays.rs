//! The wait between retries as `dag` and `plan` write it: `backoff`, `initialDelay`, `maxDelay`.
//!
//! `backoff` occurs in the wild both as a strategy ("exponential") and as a duration ("30s", which
//! means 30 s each time). Not here: how often and for which errors a step is retried.

use stepwell_kernel::plan::{Backoff, BackoffKind};

use crate::duration::{DurationRule, parse_text};
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::words::{self, quote};

/// The wait before the first retry where a file does not say.
pub(crate) const INITIAL_MS: u64 = 1_000;
/// The longest wait where a file does not say.
pub(crate) const MAX_MS: u64 = 60_000;

const STRATEGIES: [&str; 3] = ["constant", "linear", "exponential"];

/// The wait where a file says nothing.
pub(crate) fn default() -> Backoff {
    Backoff {
        kind: BackoffKind::Exponential,
        initial_ms: INITIAL_MS,
        multiplier: 2.0,
        max_ms: MAX_MS,
    }
}

/// Reads the three fields.
pub(crate) fn read(f: &mut Fields<'_>, p: &mut Problems) -> Backoff {
    let strategy = f.opt("backoff", p);
    let initial = f.opt("initialDelay", p);
    let cap = f.opt("maxDelay", p);
    let initial_ms = initial
        .as_ref()
        .and_then(|field| field.duration(DurationRule::TEXT.or_zero(), p));
    let cap_ms = cap
        .as_ref()
        .and_then(|field| field.duration(DurationRule::TEXT.or_zero(), p));

    let (kind, fixed_ms) = strategy.map_or((BackoffKind::Exponential, None), |s| shape(&s, p));
    if let (Some(_), Some(initial)) = (fixed_ms, &initial) {
        p.error(
            "FIELD_CONFLICT",
            initial.span(),
            "`backoff` is a duration already, so `initialDelay` has no meaning",
        )
        .help("remove `initialDelay`, or make `backoff` a strategy such as `exponential`");
    }
    let initial_ms = fixed_ms.or(initial_ms).unwrap_or(INITIAL_MS);
    if let (Some(cap), Some(cap_ms)) = (&cap, cap_ms)
        && cap_ms < initial_ms
    {
        p.warn(
            "FIELD_VALUE",
            cap.span(),
            "`maxDelay` is shorter than the first delay, so every delay is `maxDelay`",
        )
        .help("make `maxDelay` the longest delay you want");
    }
    Backoff {
        kind,
        initial_ms,
        multiplier: 2.0,
        max_ms: cap_ms.unwrap_or(MAX_MS.max(initial_ms)),
    }
}

/// A strategy, or a duration that is the same each time.
fn shape(field: &Field<'_>, p: &mut Problems) -> (BackoffKind, Option<u64>) {
    let default = (BackoffKind::Exponential, None);
    if field.node.as_str().is_none() {
        // A number is meant as a duration, and lacks its unit.
        field.duration(DurationRule::TEXT, p);
        return default;
    }
    let Some(text) = field.text(p) else {
        return default;
    };
    match text {
        "constant" | "fixed" => (BackoffKind::Constant, None),
        "linear" => (BackoffKind::Linear, None),
        "exponential" => default,
        _ if parse_text(text).is_some() || text.trim_start().starts_with('-') => (
            BackoffKind::Constant,
            field.duration(DurationRule::TEXT.or_zero(), p),
        ),
        _ => {
            let near = words::nearest(text, &STRATEGIES);
            let message = format!(
                "must be {} or a duration such as `30s`, but is {}",
                words::list(&STRATEGIES),
                quote(text)
            );
            field
                .error("FIELD_VALUE", &message, p)
                .maybe_help(near.map(|near| format!("did you mean {}?", quote(near))));
            default
        }
    }
}
