//! Encoded states: the format has a number, and cannot change without it.

use std::path::PathBuf;

use expect_test::expect;
use serde_json::{Value as Json, json};
use stepwell_kernel::command::TimerKind;
use stepwell_kernel::contract::from_record;
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::event::{Event, Rollback};
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::plan::{Plan, StepNo, StepRef};
use stepwell_kernel::state::{Due, FORMAT, ItemResult, Phase, State, Status, UndoStatus};

use crate::golden::{histories, plan, records};
use crate::support::{net, task, tasks};

const WHAT_TO_DO: &str = "the form of an encoded state has changed: raise FORMAT in \
    crates/kernel/src/evolve/state/encoding.rs, run this test with UPDATE_EXPECT=1, and commit the new file of \
    fixtures/states beside the old one";

fn file() -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/states");
    PathBuf::from(root).join(format!("v{FORMAT}.jsonl"))
}

/// States of the recorded histories, one in the middle and one shortly before the end, a line each.
fn states_of_today() -> String {
    let mut lines = String::new();
    for folder in histories() {
        let plan = plan(&folder);
        let records = records(&folder);
        let events: Vec<Event> = records.iter().map(|it| from_record(it).unwrap()).collect();
        let run_id = records[0].contract["runId"].as_str().unwrap();
        let mut state = State::new(run_id, &plan);
        for (index, event) in events.iter().enumerate() {
            evolve(&plan, &mut state, event, &mut Vec::new()).unwrap();
            if index == events.len() / 2 || index + 2 == events.len() {
                let history = folder.file_name().unwrap().to_str().unwrap();
                let state = String::from_utf8(state.encode()).unwrap();
                lines.push_str(&format!("{history} {state}\n"));
            }
        }
    }
    lines
}

#[test]
fn a_format_never_changes_under_its_number() {
    let file = file();
    if !file.exists() && std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, states_of_today()).unwrap();
    }
    let written = std::fs::read_to_string(&file);
    let written = written.unwrap_or_else(|_| panic!("{} is missing: {WHAT_TO_DO}", file.display()));
    for line in written.lines() {
        let (history, text) = line.split_once(' ').expect("a history and a state");
        let folder = histories().into_iter().find(|it| it.ends_with(history));
        let plan = plan(&folder.expect("the history"));
        let state = State::decode(FORMAT, text.as_bytes(), &plan);
        let state = state.unwrap_or_else(|| panic!("{history} cannot be read: {WHAT_TO_DO}"));
        let again = String::from_utf8(state.encode()).unwrap();
        assert!(again == text, "{WHAT_TO_DO}\n  was {text}\n  is  {again}");
    }
}

/// The words that the recorded histories do not all use. A change here is a change of the format too.
#[test]
fn the_words_of_the_format_are_these() {
    let at = StepRef::first(StepNo(3));
    let words = json!([
        [
            Status::Arrived,
            Status::Denied,
            Status::Ready,
            Status::Running,
            Status::Waiting,
            Status::Looping,
            Status::Succeeded,
            Status::Failed,
            Status::Held,
            Status::Skipped,
            Status::Cancelled,
        ],
        [
            UndoStatus::None,
            UndoStatus::Due,
            UndoStatus::Running,
            UndoStatus::Done,
            UndoStatus::Failed,
            UndoStatus::NotCompensable,
        ],
        [
            TimerKind::Attempt,
            TimerKind::Wait,
            TimerKind::Hold,
            TimerKind::Run,
            TimerKind::Drain,
            TimerKind::Stall,
        ],
        [
            Phase::Void,
            Phase::Created,
            Phase::Queued,
            Phase::Running,
            Phase::Finalizing,
            Phase::Stopping,
            Phase::Compensating,
            Phase::Ended(RunOutcome::Partial),
            Phase::Ended(RunOutcome::Failed(Rollback::Complete)),
            Phase::Ended(RunOutcome::Cancelled(Rollback::None)),
        ],
        [Due::Enter(at), Due::Route(at), Due::Failure(at)],
        [Target::Step(at), Target::Undo(at)],
        [
            ItemResult::Succeeded(None),
            ItemResult::Succeeded(Some(Json::Null.into())),
            ItemResult::Skipped,
            ItemResult::Cancelled,
        ],
    ]);
    let lines: Vec<String> = words
        .as_array()
        .unwrap()
        .iter()
        .map(Json::to_string)
        .collect();
    expect![[r#"
        ["arrived","denied","ready","running","waiting","looping","succeeded","failed","held","skipped","cancelled"]
        ["none","due","running","done","failed","not_compensable"]
        ["attempt","wait","hold","run","drain","stall"]
        ["void","created","queued","running","finalizing","stopping","compensating",{"ended":"partial"},{"ended":{"failed":"complete"}},{"ended":{"cancelled":"none"}}]
        [{"enter":{"step":3,"visit":1}},{"route":{"step":3,"visit":1}},{"failure":{"step":3,"visit":1}}]
        [{"step":{"step":3,"visit":1}},{"undo":{"step":3,"visit":1}}]
        [{"succeeded":null},{"succeeded":[null]},"skipped","cancelled"]"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn bytes_that_do_not_fit_are_not_decoded() {
    let here = Plan::new(tasks(&["a", "b"])).unwrap();
    let state = State::new("run_1", &here);
    let bytes = state.encode();
    assert_eq!(State::decode(FORMAT, &bytes, &here), Some(state));
    assert_eq!(State::decode(FORMAT + 1, &bytes, &here), None);
    assert_eq!(State::decode(FORMAT, &bytes[1..], &here), None);
    assert_eq!(State::decode(FORMAT, b"", &here), None);
    let more_steps = Plan::new(tasks(&["a", "b", "c"])).unwrap();
    assert_eq!(State::decode(FORMAT, &bytes, &more_steps), None);
    let fewer_edges = Plan::new(net(vec![task("a"), task("b")], &[])).unwrap();
    assert_eq!(State::decode(FORMAT, &bytes, &fewer_edges), None);
}
