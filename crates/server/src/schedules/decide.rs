//! What becomes of the due times that have come: a function of the schedule, the time, and whether its last run is open.

use std::collections::VecDeque;

use stepwell_dialects::trigger::Schedule;
use stepwell_kernel::time::Time;

use super::{CatchUp, Overlap, ScheduleDocument};

/// A due time that no server has acted on within this time is missed.
const LATE_MS: u64 = 60_000;
/// How far back due times are looked for; older ones are not even noted.
const BACK_MS: u64 = 31 * 86_400_000;
/// How many due times are kept of those that were missed; older ones are only counted.
const KEPT: usize = 1_000;
/// How many due times are looked at; a schedule with more goes on an hour ago.
const MOST: usize = 100_000;
const NEAR_MS: i64 = 3_600_000;
/// How many due times may wait for the end of the run before.
const QUEUE: usize = 100;

/// The next due times.
pub(crate) fn upcoming(schedule: &Schedule, after: Time, count: usize) -> Vec<Time> {
    let mut all = Vec::new();
    let mut at = after;
    while let Some(next) = schedule.next_after(at).filter(|_| all.len() < count) {
        all.push(next);
        at = next;
    }
    all
}

/// Decides about all due times up to now. Says whether there was one.
pub(super) fn decide(
    document: &mut ScheduleDocument,
    schedule: &Schedule,
    is_last_open: bool,
    now: Time,
) -> bool {
    let from = Time(now.0.saturating_sub_unsigned(BACK_MS));
    let mut at = Time(document.decided_to).max(from);
    let mut due: VecDeque<Time> = VecDeque::new();
    let mut seen = 0;
    while let Some(next) = schedule.next_after(at).filter(|it| *it <= now) {
        (at, seen) = (next, seen + 1);
        due.push_back(next);
        if due.len() > KEPT {
            due.pop_front();
            document.missed_total += 1;
        }
        if seen == MOST {
            at = at.max(Time(now.0 - NEAR_MS));
        }
    }
    if due.is_empty() {
        return false;
    }
    document.decided_to = at.0;
    let (late, in_time): (Vec<Time>, Vec<Time>) =
        due.into_iter().partition(|it| now.since(*it) > LATE_MS);
    let made_good = match document.catch_up {
        CatchUp::None => 0,
        CatchUp::Latest => 1,
        CatchUp::All => usize::try_from(document.catch_up_most).unwrap_or(usize::MAX),
    };
    let given_up = late.len().saturating_sub(made_good);
    for due in &late[..given_up] {
        document.note_missed(*due, "LATE");
    }
    let mut is_open = is_last_open;
    for due in late[given_up..].iter().chain(&in_time) {
        let is_busy = is_open || !document.pending.is_empty();
        match document.overlap {
            Overlap::Skip if is_busy => document.note_missed(*due, "OVERLAP"),
            Overlap::Queue if document.pending.len() >= QUEUE => {
                document.note_missed(*due, "QUEUE_FULL");
            }
            Overlap::Allow | Overlap::Skip | Overlap::Queue => {
                document.pending.push(due.0);
                is_open = true;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn every_minute(catch_up: CatchUp, most: u32, overlap: Overlap) -> ScheduleDocument {
        ScheduleDocument {
            name: "s".into(),
            definition: "d".into(),
            revision: None,
            cron: "* * * * *".into(),
            timezone: None,
            params: json!({}),
            project: "p".into(),
            environment: "e".into(),
            priority: 0,
            catch_up,
            catch_up_most: most,
            overlap,
            paused: false,
            by: "me".into(),
            changed_at: String::new(),
            decided_to: 0,
            pending: Vec::new(),
            started: Vec::new(),
            missed: Vec::new(),
            missed_total: 0,
        }
    }

    fn decided(document: &mut ScheduleDocument, open: bool, now: i64) -> (Vec<i64>, u64) {
        let schedule = document.schedule().unwrap();
        decide(document, &schedule, open, Time(now));
        let pending = document.pending.iter().map(|it| it / MINUTE).collect();
        (pending, document.missed_total)
    }

    #[test]
    fn due_times_are_decided_once_and_late_ones_by_the_policy() {
        let now = 10 * MINUTE + 5;
        for (catch_up, most, wanted) in [
            (CatchUp::None, 0, (vec![10], 9)),
            (CatchUp::Latest, 0, (vec![9, 10], 8)),
            (CatchUp::All, 3, (vec![7, 8, 9, 10], 6)),
            (CatchUp::All, 99, ((1..=10).collect(), 0)),
        ] {
            let mut document = every_minute(catch_up, most, Overlap::Allow);
            assert_eq!(decided(&mut document, false, now), wanted, "{catch_up:?}");
            assert_eq!(decided(&mut document, false, now), wanted, "again");
            assert_eq!(document.decided_to, 10 * MINUTE);
        }
    }

    #[test]
    fn a_due_time_finds_the_run_before_open() {
        let mut skip = every_minute(CatchUp::All, 9, Overlap::Skip);
        assert_eq!(decided(&mut skip, true, MINUTE), (vec![], 1));
        assert_eq!(skip.missed[0].reason, "OVERLAP");
        assert_eq!(decided(&mut skip, false, 2 * MINUTE), (vec![2], 1));
        assert_eq!(
            decided(&mut skip, false, 3 * MINUTE),
            (vec![2], 2),
            "the run is not started yet"
        );
        let mut queue = every_minute(CatchUp::None, 0, Overlap::Queue);
        assert_eq!(decided(&mut queue, true, MINUTE), (vec![1], 0));
        assert_eq!(decided(&mut queue, true, 2 * MINUTE), (vec![1, 2], 0));
    }

    #[test]
    fn a_schedule_that_stood_still_for_long_is_decided_quickly() {
        let mut document = every_minute(CatchUp::Latest, 0, Overlap::Allow);
        document.cron = "* * * * * *".into();
        let now = 400 * 86_400_000;
        let schedule = document.schedule().unwrap();
        assert!(decide(&mut document, &schedule, false, Time(now)));
        assert!(document.missed.len() <= super::super::REMEMBERED);
        assert_eq!(document.decided_to, now);
    }
}
