//! Causes that found no free slot where the limits refuse a run (`WhenFull::Reject`). The trigger tries them again by
//! itself, because a due time or an event has no sender who waits for an answer.

use std::collections::HashSet;

use stepwell_kernel::time::Time;

use super::causes::Cause;

/// Causes that are tried again, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    causes: Vec<Cause>,
    /// When they are tried again at the latest.
    retry_at: Option<Time>,
    /// The ids of causes that were put off once: people are told once.
    told: HashSet<String>,
}

impl PutOff {
    /// When the causes are tried again.
    pub(super) fn next(&self) -> Option<Time> {
        self.retry_at
    }

    /// Whether the cause found no slot before.
    pub(super) fn has_waited(&self, cause: &Cause) -> bool {
        self.told.contains(&cause.id)
    }

    /// The causes to try now, oldest first: those that waited stand before new ones, so that no new one takes the slot
    /// that an older one waits for.
    pub(super) fn due(&mut self, new: Vec<Cause>, now: Time) -> Vec<Cause> {
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
    pub(super) fn put(&mut self, cause: Cause, retry_at: Time) {
        self.told.insert(cause.id.clone());
        self.causes.push(cause);
        self.retry_at = Some(self.retry_at.map_or(retry_at, |at| at.min(retry_at)));
    }
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
