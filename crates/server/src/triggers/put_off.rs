//! Causes that found no free slot where the limits refuse a run (`WhenFull::Reject`). The trigger tries them again by
//! itself, because a due time or an event has no sender who waits for an answer.

use std::collections::HashSet;

use serde_json::Value as Json;
use stepwell_engine::Limits;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::causes::Cause;

/// Causes that are tried again, in the order in which they came.
#[derive(Debug, Default)]
pub struct PutOff {
    causes: Vec<Cause>,
    /// When they are tried again at the latest.
    retry_at: Option<Time>,
    /// The ids of causes that were put off once: people are told once.
    told: HashSet<String>,
}

impl PutOff {
    /// When the causes are tried again.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.retry_at
    }

    /// Whether the cause found no slot before.
    #[must_use]
    pub fn has_waited(&self, cause: &Cause) -> bool {
        self.told.contains(&cause.id)
    }

    /// The causes to try now, oldest first: those that waited stand before new ones, so that no new one takes the slot
    /// that an older one waits for.
    pub fn due(&mut self, new: Vec<Cause>, now: Time) -> Vec<Cause> {
        if new.is_empty() && self.retry_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.retry_at = None;
        let mut all = std::mem::take(&mut self.causes);
        self.told.retain(|id| all.iter().any(|it| it.id == *id));
        all.extend(new);
        all
    }

    /// A cause found no slot.
    pub fn put(&mut self, cause: Cause, retry_at: Time) {
        self.told.insert(cause.id.clone());
        self.causes.push(cause);
        self.retry_at = Some(self.retry_at.map_or(retry_at, |at| at.min(retry_at)));
    }

    /// Tries new causes and those that waited, oldest first. A slot that becomes free meanwhile belongs to the oldest cause
    /// that found none: later causes that need the same slot are not tried.
    pub fn try_all<E>(
        &mut self,
        new: Vec<Cause>,
        now: Time,
        needs: &dyn Fn(&str, &Cause) -> bool,
        start: &mut dyn FnMut(&Cause, bool) -> Result<Tried, E>,
    ) -> Result<(), E> {
        let mut full: Vec<(String, u64)> = Vec::new();
        for cause in self.due(new, now) {
            if let Some((_, retry_after_ms)) = full.iter().find(|it| needs(&it.0, &cause)) {
                self.put(cause, now.plus(*retry_after_ms));
                continue;
            }
            let has_waited = self.has_waited(&cause);
            match start(&cause, has_waited)? {
                Tried::Started | Tried::NotStarted => {}
                Tried::NoSlot {
                    slots,
                    retry_after_ms,
                } => {
                    self.put(cause, now.plus(retry_after_ms));
                    full.push((slots, retry_after_ms));
                }
            }
        }
        Ok(())
    }
}

/// What came of a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    Started,
    /// Its run is there already, or cannot be started at all.
    NotStarted,
    /// No slot is free, and the limits say that such a run is not created (`WhenFull::Reject`).
    NoSlot {
        /// The slots that are full.
        slots: String,
        retry_after_ms: u64,
    },
}

/// Whether the run of a cause needs one of these slots. All slots but those of a key are for every run of the definition.
#[must_use]
pub fn needs_slot(limits: &Limits, plan: &Plan, slots: &str, params: &Json) -> bool {
    let key = limits.key_slot(plan, params);
    !slots.starts_with("key/") || key.as_deref() == Some(slots)
}

/// The parameters of a run with what its cause adds to them.
#[must_use]
pub fn params_with(params: &Json, cause: &Json) -> Json {
    let mut params = params.clone();
    for (key, value) in cause.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    params
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cause(id: &str) -> Cause {
        Cause {
            id: id.into(),
            params: json!({}),
            what: id.into(),
        }
    }

    fn ids(causes: &[Cause]) -> Vec<&str> {
        causes.iter().map(|it| it.id.as_str()).collect()
    }

    #[test]
    fn a_cause_that_was_put_off_is_tried_again_later_and_before_new_ones() {
        let mut put_off = PutOff::default();
        let first = put_off.due(vec![cause("a")], Time(0)).remove(0);
        assert!(!put_off.has_waited(&first));
        put_off.put(first, Time(10));
        assert_eq!(put_off.next(), Some(Time(10)));
        assert_eq!(put_off.due(Vec::new(), Time(9)), []);
        let both = put_off.due(vec![cause("b")], Time(9));
        assert_eq!(ids(&both), ["a", "b"]);
        assert!(put_off.has_waited(&both[0]));
        for it in both {
            put_off.put(it, Time(20));
        }
        assert_eq!(ids(&put_off.due(Vec::new(), Time(20))), ["a", "b"]);
        assert_eq!(
            (put_off.next(), put_off.due(Vec::new(), Time(99))),
            (None, vec![])
        );
    }
}
