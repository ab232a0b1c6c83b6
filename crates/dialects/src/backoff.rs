//! The words for waits between retries, and the wait as `dag` and `plan` write it: `backoff`,
//! `initialDelay`, `maxDelay`.
//!
//! `backoff` occurs in the wild both as a strategy ("exponential") and as a duration ("30s", which
//! means 30 s each time). Not here: how long a wait is, which the kernel computes, and how often and for
//! which errors a step is retried.

use stepwell_kernel::plan::{Backoff, BackoffKind};

use crate::codes;
use crate::duration::{DurationRule, parse_text};
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::words::{self, quote};

/// The wait before the first retry where a file does not say.
pub(crate) const INITIAL_MS: u64 = 1_000;
/// The longest wait where a file does not say.
pub(crate) const MAX_MS: u64 = 60_000;

/// Older words for kinds of wait. The kinds and their names are the kernel's table.
const OTHER_WORDS: [(&str, BackoffKind); 1] = [("fixed", BackoffKind::Constant)];

/// The kinds of wait that the retry policies of a language offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Every kind, also with jitter and without any wait.
    All,
    /// Those of the specification of `dag`.
    Specified,
}

/// All words of a kind of wait, its name first.
fn words_of(kind: BackoffKind) -> impl Iterator<Item = &'static str> {
    let others = OTHER_WORDS.into_iter().filter(move |(_, it)| *it == kind);
    [kind.name()]
        .into_iter()
        .chain(others.map(|(word, _)| word))
}

/// The kind of wait of a task's rule.
#[must_use]
pub fn of_task(word: &str) -> Option<BackoffKind> {
    let other = || OTHER_WORDS.into_iter().find(|(it, _)| *it == word);
    BackoffKind::from_name(word).or_else(|| Some(other()?.1))
}

/// The words that a task's rule may use.
pub(crate) fn task_words() -> Vec<&'static str> {
    let kinds = BackoffKind::ALL.iter().copied();
    kinds.flat_map(words_of).collect()
}

/// The words that a step's retry policy may use.
pub(crate) fn step_words(offered: Kinds) -> Vec<&'static str> {
    let kinds = step_kinds(offered);
    kinds.flat_map(words_of).collect()
}

fn step_kinds(offered: Kinds) -> impl Iterator<Item = BackoffKind> {
    let kinds = BackoffKind::ALL.iter().copied();
    kinds.filter(move |it| offered == Kinds::All || (*it != BackoffKind::None && !it.has_jitter()))
}

fn of_step(word: &str, offered: Kinds) -> Option<BackoffKind> {
    let kind = of_task(word)?;
    step_kinds(offered).find(|it| *it == kind)
}

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
pub(crate) fn read(f: &mut Fields<'_>, offered: Kinds, p: &mut Problems) -> Backoff {
    let strategy = f.opt("backoff", p);
    let initial = f.opt("initialDelay", p);
    let cap = f.opt("maxDelay", p);
    let initial_ms = initial.as_ref().and_then(|field| field.time(p));
    let cap_ms = cap.as_ref().and_then(|field| field.time(p));

    let (kind, fixed_ms) =
        strategy.map_or((BackoffKind::Exponential, None), |s| shape(&s, offered, p));
    if let (Some(_), Some(initial)) = (fixed_ms, &initial) {
        p.error(
            codes::FIELD_CONFLICT,
            initial.span(),
            "`backoff` is a duration already, so `initialDelay` has no meaning",
        )
        .help("remove `initialDelay`, or make `backoff` a strategy such as `exponential`");
    }
    if kind == BackoffKind::None {
        for delay in [&initial, &cap].into_iter().flatten() {
            let message = format!("`backoff` is `none`, so {} has no effect", delay.label);
            p.warn(codes::FIELD_UNUSED, delay.span(), message)
                .help("remove it, or make `backoff` a strategy such as `exponential`");
        }
        return Backoff {
            kind,
            initial_ms: 0,
            multiplier: 2.0,
            max_ms: 0,
        };
    }
    let initial_ms = fixed_ms.or(initial_ms).unwrap_or(INITIAL_MS);
    if let (Some(cap), Some(cap_ms)) = (&cap, cap_ms)
        && cap_ms < initial_ms
    {
        p.warn(
            codes::FIELD_VALUE,
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
fn shape(field: &Field<'_>, offered: Kinds, p: &mut Problems) -> (BackoffKind, Option<u64>) {
    let default = (BackoffKind::Exponential, None);
    if field.node.as_str().is_none() {
        // A number is meant as a duration, and lacks its unit.
        field.duration(DurationRule::TEXT, p);
        return default;
    }
    let Some(text) = field.text(p) else {
        return default;
    };
    if let Some(kind) = of_step(text, offered) {
        return (kind, None);
    }
    if parse_text(text).is_some() || text.trim_start().starts_with('-') {
        let millis = field.duration(DurationRule::TEXT.or_zero(), p);
        return (BackoffKind::Constant, millis);
    }
    // A message names each kind once.
    let names: Vec<&str> = step_kinds(offered).map(BackoffKind::name).collect();
    let near = words::nearest(text, &names);
    let message = format!(
        "must be {} or a duration such as `30s`, but is {}",
        words::list(&names),
        quote(text)
    );
    field
        .error(codes::FIELD_VALUE, &message, p)
        .maybe_help(near.map(|near| format!("did you mean {}?", quote(near))));
    default
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kinds_name_is_the_one_that_the_kernel_writes() {
        for kind in BackoffKind::ALL {
            assert_eq!(serde_json::json!(kind), kind.name());
            assert_eq!(of_task(kind.name()), Some(*kind));
        }
    }
}
