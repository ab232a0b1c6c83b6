//! What a step says about executions that are lost with their worker: `atMostOnce` and `maxLosses`. All languages have
//! the same two fields, but for linear, where a loss is an attempt and `maxAttempts` limits both.

use stepwell_kernel::plan::{RetryPolicy, Step};

use crate::codes;
use crate::field::Field;
use crate::problem::Problems;
use crate::reader::Fields;
use crate::shape::{Row, Rule, Shape, may};

/// Most losses that a file may allow.
const MOST: i64 = 1_000;

const ONCE_ABOUT: &str = "The step is never executed twice by itself: if its worker is lost, the step fails with class lease_lost, and no failure is retried.";
const LOSSES_ABOUT: &str =
    "How often the step may be lost with its worker before it fails with LOST_TOO_OFTEN.";

pub(crate) const AT_MOST_ONCE: Row = may(&["atMostOnce"], Shape::Flag, ONCE_ABOUT).or("false");
pub(crate) const MAX_LOSSES: Row = may(&["maxLosses"], Shape::Int(1, MOST), LOSSES_ABOUT).or("10");

/// The same rows for the language whose fields are written in lower case.
pub(crate) const AT_MOST_ONCE_SNAKE: Row =
    may(&["atMostOnce", "at_most_once"], Shape::Flag, ONCE_ABOUT).or("false");
pub(crate) const MAX_LOSSES_SNAKE: Row = may(
    &["maxLosses", "max_losses"],
    Shape::Int(1, MOST),
    LOSSES_ABOUT,
)
.or("10");

/// Whether a key promises how often a step is executed.
pub(crate) fn is_promise(key: &str) -> bool {
    [AT_MOST_ONCE_SNAKE, MAX_LOSSES_SNAKE]
        .iter()
        .any(|row| row.names.contains(&key))
}

/// A step that runs at most once has no retries and no losses to limit.
pub(crate) const RULE: Rule = Rule::Schema(
    r#"{
        "if": { "properties": { "atMostOnce": { "const": true } }, "required": ["atMostOnce"] },
        "then": { "properties": { "retryPolicy": { "type": "null" }, "maxLosses": { "type": "null" } } }
    }"#,
);

/// The same for linear, whose retries are fields of the step.
pub(crate) const LINEAR_RULE: Rule = Rule::Schema(
    r#"{
        "if": { "properties": { "atMostOnce": { "const": true } }, "required": ["atMostOnce"] },
        "then": { "properties": { "maxAttempts": { "type": "null" }, "backoff": { "type": "null" } } }
    }"#,
);

/// What a step says about losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) at_most_once: bool,
    max_losses: Option<u32>,
}

impl Losses {
    /// Reads the two fields of a language that has both.
    pub(crate) fn read(f: &mut Fields<'_>, p: &mut Problems) -> Losses {
        let once = f.opt("atMostOnce", p);
        let most = f.opt("maxLosses", p);
        Losses::of(once, most, p)
    }

    /// The same with the names of the playbook language.
    pub(crate) fn read_snake(f: &mut Fields<'_>, p: &mut Problems) -> Losses {
        let once = f.opt(["atMostOnce", "at_most_once"], p);
        let most = f.opt(["maxLosses", "max_losses"], p);
        Losses::of(once, most, p)
    }

    /// Reads `atMostOnce` of a language that has no `maxLosses`.
    pub(crate) fn read_once(f: &mut Fields<'_>, p: &mut Problems) -> Losses {
        let once = f.opt("atMostOnce", p);
        Losses::of(once, None, p)
    }

    fn of(once: Option<Field<'_>>, most: Option<Field<'_>>, p: &mut Problems) -> Losses {
        let at_most_once = once.and_then(|it| it.bool(p)).unwrap_or(false);
        if let Some(most) = most.as_ref().filter(|_| at_most_once) {
            contradicts(most, p);
        }
        Losses {
            at_most_once,
            max_losses: most
                .and_then(|it| it.whole(p))
                .and_then(|most| u32::try_from(most).ok()),
        }
    }

    /// Reports fields that ask for another execution of a step that runs at most once.
    pub(crate) fn exclude<'f>(
        self,
        retries: impl IntoIterator<Item = &'f Field<'f>>,
        p: &mut Problems,
    ) {
        for field in retries.into_iter().filter(|_| self.at_most_once) {
            contradicts(field, p);
        }
    }

    /// Puts them into the net, after the retries of the step.
    pub(crate) fn apply(self, step: &mut Step) {
        step.at_most_once = self.at_most_once;
        step.max_losses = self.max_losses;
        if self.at_most_once {
            step.retry = RetryPolicy::once();
        }
    }
}

fn contradicts(field: &Field<'_>, p: &mut Problems) {
    let message = "has no meaning in a step with `atMostOnce`, which has one execution";
    let help = format!(
        "remove {} or `atMostOnce`; a failure of the step is handled as the definition says",
        field.label
    );
    field.error(codes::FIELD_CONFLICT, message, p).help(help);
}
