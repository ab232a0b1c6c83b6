//! The tree at given sizes, at a given moment. The state is made by hand: each row is one situation.

use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::json;
use stepwell_dialects::{Source, load};
use stepwell_kernel::event::{StepError, UndoResult, WaitKind};
use stepwell_kernel::plan::{ErrorClass, Plan, StepRef};
use stepwell_kernel::state::{
    ItemResult, LoopState, Phase, State, Status, StepRun, UndoStatus, Undoing, Visit, WaitState,
};
use stepwell_kernel::time::Time;

use super::chatter::Chatter;
use super::layout::{Screen, screen};
use super::{Live, bare_width, up};
use crate::term::Paint;

/// 2026-01-01T13:00:00Z.
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

pub(in crate::run) fn running(plan: &Plan) -> State {
    let mut state = State::new("run_a", plan);
    state.phase = Phase::Running;
    state.started_at = Some(before(90_000));
    state
}

fn before(millis: i64) -> Time {
    Time(NOW.0 - millis)
}

pub(in crate::run) fn visit(status: Status) -> Visit {
    let mut run = StepRun::new(status, NOW);
    (run.tries, run.execution) = (1, 1);
    run.started_at = Some(before(4_200));
    if status.is_terminal() {
        run.ended_at = Some(before(1_000));
    }
    Visit {
        run,
        args: None,
        each: None,
    }
}

fn waiting(kind: WaitKind, deadline: Option<Time>) -> Visit {
    let mut visit = visit(Status::Waiting);
    visit.run.wait = Some(Box::new(WaitState {
        kind,
        deadline,
        token_hash: None,
        approvals: Vec::new(),
    }));
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
    let mut state = running(&plan);
    let mut again = visit(Status::Running);
    again.run.tries = 2;
    again.run.error = Some(failure());
    let mut back = visit(Status::Ready);
    back.run.visible_at = NOW.plus(11_500);
    back.run.error = Some(failure());
    let mut undone = visit(Status::Succeeded);
    undone.run.compensation = UndoStatus::Running;
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
        waiting(WaitKind::Approval, None),
        waiting(event, Some(NOW.plus(62 * 60_000))),
        waiting(WaitKind::Timer { rerun: false }, Some(NOW.plus(11_400_000))),
        waiting(child, None),
        undone,
    ];
    for (step, visit) in state.steps.iter_mut().zip(visits) {
        step.visits.push(visit);
    }
    let at = StepRef::first(plan.numbers().nth(7).unwrap());
    let mut run = StepRun::new(Status::Running, NOW);
    run.tries = 1;
    state.undoing = Some(Undoing {
        todo: vec![at],
        next: 0,
        run,
        results: Vec::<UndoResult>::new(),
        halted: false,
        interrupted: None,
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
    let mut state = running(&plan);
    let items: Vec<serde_json::Value> = (0..120).map(|item| json!(item)).collect();
    let mut each = LoopState::new(Arc::new(items), 4);
    for (item, result) in each.results.iter_mut().enumerate().take(30) {
        *result = Some(match item {
            3 | 7 => ItemResult::Failed(failure()),
            _ => ItemResult::Succeeded(None),
        });
    }
    (each.failed, each.next) = (2, 34);
    for item in 30..34 {
        each.active.insert(item, visit(Status::Running).run);
    }
    let mut back = visit(Status::Ready).run;
    back.tries = 2;
    back.visible_at = NOW.plus(2_000);
    back.error = Some(failure());
    each.active.insert(31, back);
    let mut visit = visit(Status::Looping);
    visit.run.started_at = Some(before(10_000));
    visit.each = Some(Box::new(each));
    state.steps[0].visits.push(visit);
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
    let mut state = running(&outer);
    state.steps[0].visits.push(visit(Status::Succeeded));
    let kind = WaitKind::Child {
        request_key: "run_a|pay|1".into(),
        input: Arc::new(json!({})),
        call: None,
    };
    state.steps[1].visits.push(waiting(kind, None));
    let mut below = running(&inner);
    below.run_id = "run_b".into();
    below.parent = Some(stepwell_kernel::event::Parent {
        run_id: "run_a".into(),
        step_id: "pay".into(),
    });
    below.steps[0].visits.push(visit(Status::Running));
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
    let mut state = running(&plan);
    for step in &mut state.steps[..122] {
        step.visits.push(visit(Status::Succeeded));
    }
    state.steps[122].visits.push(visit(Status::Running));
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
    let mut state = running(&plan);
    state.steps[0].visits.push(visit(Status::Succeeded));
    state.steps[1].visits.push(visit(Status::Running));
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
    state.steps[1].visits[0] = visit(Status::Failed);
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
