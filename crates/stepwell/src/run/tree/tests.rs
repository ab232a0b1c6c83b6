//! The tree at given sizes, at a given moment. The state is made by hand, in its encoded form: each row is
//! one situation.

use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_kernel::event::{StepError, WaitKind};
use stepwell_kernel::plan::{ErrorClass, Plan, StepRef};
use stepwell_kernel::state::{FORMAT, ItemResult, Phase, State, Status, UndoStatus};
use stepwell_kernel::time::Time;

use super::chatter::Chatter;
use super::layout::{Screen, screen};
use super::{Live, bare_width, up};
use crate::term::Paint;

/// The time in all tests: 2026-01-01T13:00:00Z.
const NOW: Time = Time(1_767_225_600_000 + 13 * 3_600_000);

/// A playbook with steps of these names, one after the other, retried up to five times.
pub(in crate::run) fn plan(names: &[&str]) -> Plan {
    let mut text =
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: night\nworkflow:\n".to_owned();
    for (at, name) in names.iter().enumerate() {
        text.push_str(&format!("  - step: {name}\n    tool:\n      kind: noop\n"));
        if let Some(next) = names.get(at + 1) {
            text.push_str(&format!("    next:\n      - step: {next}\n"));
        }
    }
    let source = Source::from_bytes("night.yaml", text.as_bytes()).unwrap();
    let loaded = load(&source);
    let mut net = loaded.plan.unwrap().net().clone();
    for step in &mut net.steps {
        step.retry.max_executions = 5;
    }
    Plan::new(net).unwrap()
}

/// A run that has started, with the first visits of its first steps, as `change` leaves it.
pub(in crate::run) fn running(
    plan: &Plan,
    visits: impl IntoIterator<Item = Json>,
    change: impl FnOnce(&mut Json),
) -> State {
    let state = State::new("run_a", plan).encode();
    let mut encoded: Json = serde_json::from_slice(&state).unwrap();
    encoded["phase"] = json!(Phase::Running);
    encoded["started_at"] = json!(before(90_000));
    for (step, visit) in visits.into_iter().enumerate() {
        encoded["steps"][step]["visits"] = json!([visit]);
    }
    change(&mut encoded);
    State::decode(FORMAT, &serde_json::to_vec(&encoded).unwrap(), plan).unwrap()
}

fn before(millis: i64) -> Time {
    Time(NOW.0 - millis)
}

/// The encoded form of a visit.
pub(in crate::run) fn visit(status: Status) -> Json {
    let ended = status.is_terminal().then(|| before(1_000));
    json!({ "run": {
        "status": status, "logical": 1, "execution": 1, "tries": 1, "visible_at": NOW,
        "woken": false, "task": "READY_STEP", "params": 0, "compensation": "none",
        "routed": false, "started_at": before(4_200), "ended_at": ended,
    } })
}

fn waiting(kind: &WaitKind, deadline: Option<Time>) -> Json {
    let mut visit = visit(Status::Waiting);
    visit["run"]["wait"] = json!({ "kind": kind, "deadline": deadline, "approvals": [] });
    visit
}

pub(in crate::run) fn failure() -> Arc<StepError> {
    let class = ErrorClass::Transport;
    Arc::new(StepError::new(class, "CONNECT_FAILED", "nobody answers"))
}

struct View<'v> {
    plan: &'v Plan,
    state: &'v State,
    below: Vec<Live<'v>>,
    said: Vec<(String, String)>,
}

impl<'v> View<'v> {
    fn of(plan: &'v Plan, state: &'v State) -> View<'v> {
        View {
            plan,
            state,
            below: Vec::new(),
            said: Vec::new(),
        }
    }

    fn lines(&self, columns: usize, height: usize) -> Vec<String> {
        screen(&Screen {
            root: Live {
                plan: self.plan,
                state: self.state,
            },
            below: &self.below,
            said: &self.said,
            now: NOW,
            frame: "⠋",
            columns,
            height,
            paint: Paint(false),
        })
    }

    fn looks(&self, columns: usize, height: usize, expected: &Expect) {
        let lines = self.lines(columns, height);
        assert!(lines.len() <= height, "{lines:#?}");
        for line in &lines {
            assert!(bare_width(line) < columns, "{line}");
        }
        expected.assert_eq(&format!("{}\n", lines.join("\n")));
    }
}

/// One step in each situation.
fn situations() -> (Plan, State) {
    let plan = plan(&[
        "prepare",
        "fetch",
        "store",
        "notify",
        "payment",
        "cool-down",
        "sub",
        "undo",
        "rest",
    ]);
    let mut again = visit(Status::Running);
    again["run"]["tries"] = json!(2);
    again["run"]["error"] = json!(failure());
    let mut back = visit(Status::Ready);
    back["run"]["visible_at"] = json!(NOW.plus(11_500));
    back["run"]["error"] = json!(failure());
    let mut undone = visit(Status::Succeeded);
    undone["run"]["compensation"] = json!(UndoStatus::Running);
    let event = WaitKind::Event {
        event_type: "order.paid".into(),
        rerun: false,
    };
    let child = WaitKind::Child {
        request_key: "run_a|sub|1".into(),
        input: Arc::new(json!({})),
        call: None,
    };
    let visits = [
        visit(Status::Succeeded),
        again,
        back,
        waiting(&WaitKind::Approval, None),
        waiting(&event, Some(NOW.plus(62 * 60_000))),
        waiting(
            &WaitKind::Timer { rerun: false },
            Some(NOW.plus(11_400_000)),
        ),
        waiting(&child, None),
        undone,
    ];
    let at = StepRef::first(plan.numbers().nth(7).unwrap());
    let state = running(&plan, visits, |state| {
        state["undoing"] = json!({
            "todo": [at], "next": 0, "run": visit(Status::Running)["run"], "results": [],
            "halted": false,
        });
    });
    (plan, state)
}

#[test]
fn every_situation_is_said_in_words() {
    let (plan, state) = situations();
    View::of(&plan, &state).looks(110, 24, &expect![[r#"
        night  running  1 min 30 s
          ✓ prepare    success  3.2 s
          ⠋ fetch      running  4.2 s  attempt 2 of 5, CONNECT_FAILED (transport): nobody answers
          ◷ store      ready    4.2 s  retries in 12 s, attempt 2 of 5, CONNECT_FAILED (transport): nobody answers
          ◷ notify     waiting  4.2 s  waits for approval
          ◷ payment    waiting  4.2 s  waits for event order.paid until 14:02 UTC
          ◷ cool-down  waiting  4.2 s  sleeps 3 h 10 min more
          ◷ sub        waiting  4.2 s  waits for run run_7d3ca283fd619d7a15c28f4d1b002854
          ⠋ undo       success  3.2 s  undoing, attempt 1
          ○ rest       pending
    "#]]);
}

#[test]
fn forty_columns_are_enough_to_see_what_happens() {
    let (plan, state) = situations();
    View::of(&plan, &state).looks(
        40,
        24,
        &expect![[r#"
            night  running  1 min 30 s
              ✓ prepare    success  3.2 s
              ⠋ fetch      running  4.2 s
                  attempt 2 of 5, CONNECT_FAILED (…
              ◷ store      ready    4.2 s
                  retries in 12 s, attempt 2 of 5,…
              ◷ notify     waiting  4.2 s
                  waits for approval
              ◷ payment    waiting  4.2 s
                  waits for event order.paid until…
              ◷ cool-down  waiting  4.2 s
                  sleeps 3 h 10 min more
              ◷ sub        waiting  4.2 s
                  waits for run run_7d3ca283fd619d…
              ⠋ undo       success  3.2 s
                  undoing, attempt 1
              ○ rest       pending
        "#]],
    );
}

#[test]
fn no_size_makes_a_line_wrap_or_the_drawing_too_high() {
    let (plan, state) = situations();
    let view = View::of(&plan, &state);
    for columns in 4..130 {
        for height in 1..22 {
            let lines = view.lines(columns, height);
            assert!(lines.len() <= height, "{columns}x{height}: {lines:#?}");
            let widest = lines.iter().map(|line| bare_width(line)).max();
            assert!(widest.unwrap() < columns, "{columns}x{height}: {lines:#?}");
        }
    }
}

#[test]
fn a_loop_has_a_bar_and_names_the_items_that_make_trouble() {
    let plan = plan(&["load", "report"]);
    let result = |item| match item {
        3 | 7 => Some(ItemResult::Failed(failure())),
        0..30 => Some(ItemResult::Succeeded(None)),
        _ => None,
    };
    let mut back = visit(Status::Ready)["run"].clone();
    back["tries"] = json!(2);
    back["visible_at"] = json!(NOW.plus(2_000));
    back["error"] = json!(failure());
    let busy = visit(Status::Running)["run"].clone();
    let mut looping = visit(Status::Looping);
    looping["run"]["started_at"] = json!(before(10_000));
    looping["each"] = json!({
        "items": (0..120).collect::<Vec<u32>>(), "window": 4, "next": 34, "failed": 2, "highest": 0,
        "results": (0..120).map(result).collect::<Vec<_>>(),
        "active": { "30": busy, "31": back, "32": busy, "33": busy },
    });
    let state = running(&plan, [looping], |_| {});
    View::of(&plan, &state).looks(110, 24, &expect![[r#"
        night  running  1 min 30 s
          ⠋ load        running   10 s  ████░░░░░░░░░░░░ 30/120, 2 failed, 4 running, 3/s, about 30 s left
          ◷   load[31]  ready    4.2 s  retries in 2 s, attempt 3 of 5, CONNECT_FAILED (transport): nobody answers
          ○ report      pending
    "#]]);
    View::of(&plan, &state).looks(
        50,
        24,
        &expect![[r#"
            night  running  1 min 30 s
              ⠋ load        running   10 s
                  30/120, 2 failed, 4 running, 3/s, about 30…
              ◷   load[31]  ready    4.2 s
                    retries in 2 s, attempt 3 of 5, CONNECT_…
              ○ report      pending
        "#]],
    );
}

#[test]
fn a_child_stands_below_its_step() {
    let (outer, inner) = (
        plan(&["before", "pay", "after"]),
        plan(&["card", "receipt"]),
    );
    let kind = WaitKind::Child {
        request_key: "run_a|pay|1".into(),
        input: Arc::new(json!({})),
        call: None,
    };
    let visits = [visit(Status::Succeeded), waiting(&kind, None)];
    let state = running(&outer, visits, |_| {});
    let below = running(&inner, [visit(Status::Running)], |state| {
        state["run_id"] = json!("run_b");
        state["parent"] = json!({ "run_id": "run_a", "step_id": "pay" });
    });
    let mut view = View::of(&outer, &state);
    view.below.push(Live {
        plan: &inner,
        state: &below,
    });
    view.looks(
        100,
        24,
        &expect![[r#"
        night  running  1 min 30 s
          ✓ before     success  3.2 s
          ◷ pay        waiting  4.2 s  waits for run run_e9469cc36bd3958f9d9d17bbb2175165
          ⠋   card     running  4.2 s  attempt 1 of 5
          ○   receipt  pending
          ○ after      pending
    "#]],
    );
}

#[test]
fn a_plan_that_is_higher_than_the_screen_folds_what_is_done() {
    let names: Vec<String> = (0..140).map(|number| format!("step-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let plan = plan(&names);
    let done = (0..122).map(|_| visit(Status::Succeeded));
    let state = running(&plan, done.chain([visit(Status::Running)]), |_| {});
    View::of(&plan, &state).looks(
        60,
        8,
        &expect![[r#"
        night  running  1 min 30 s
          … 122 done
          ⠋ step-122    running  4.2 s  attempt 1 of 5
          ○ step-123    pending
          ○ step-124    pending
          ○ step-125    pending
          ○ step-126    pending
          … 13 to come
    "#]],
    );
}

#[test]
fn the_last_lines_of_what_runs_stand_below() {
    let plan = plan(&["fetch", "store"]);
    let at_store = |status| running(&plan, [visit(Status::Succeeded), visit(status)], |_| {});
    let state = at_store(Status::Running);
    let mut chatter = Chatter::default();
    chatter.hear("run_a", "fetch", "it is over, so nobody hears this");
    chatter.hear("run_b", "store", "of another run");
    chatter.hear("run_a", "store~undo", "nobody undoes it");
    for number in 0..9 {
        chatter.hear("run_a", "store", &format!("row {number}\u{1b}[2J"));
    }
    chatter.forget_ended(&[Live {
        plan: &plan,
        state: &state,
    }]);
    let mut view = View::of(&plan, &state);
    view.said = chatter.lines();
    view.looks(
        60,
        24,
        &expect![[r#"
        night  running  1 min 30 s
          ✓ fetch  success  3.2 s
          ⠋ store  running  4.2 s  attempt 1 of 5
          store | row 4\u{1b}[2J
          store | row 5\u{1b}[2J
          store | row 6\u{1b}[2J
          store | row 7\u{1b}[2J
          store | row 8\u{1b}[2J
    "#]],
    );
    view.looks(
        60,
        6,
        &expect![[r#"
        night  running  1 min 30 s
          ✓ fetch  success  3.2 s
          ⠋ store  running  4.2 s  attempt 1 of 5
          store | row 8\u{1b}[2J
    "#]],
    );
    let state = at_store(Status::Failed);
    chatter.forget_ended(&[Live {
        plan: &plan,
        state: &state,
    }]);
    assert!(chatter.lines().is_empty());
}

#[test]
fn a_drawing_that_a_narrower_terminal_has_broken_is_drawn_over_whole() {
    let drawn = ["x".repeat(50), "\u{1b}[31mabc\u{1b}[0m".to_owned()];
    assert_eq!(up(&drawn, 80), "\r\u{1b}[2A");
    assert_eq!(up(&drawn, 20), "\r\u{1b}[4A");
    assert_eq!(up(&[], 20), "\r");
}
