//! Logs that were written once replay in every version: each folder of `fixtures/histories` has the plan, the
//! log and how the run ended. They are never written anew; a change that breaks one breaks every
//! log out there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use stepwell_kernel::chain;
use stepwell_kernel::contract::{Record, Recorder, from_record};
use stepwell_kernel::event::Event;
use stepwell_kernel::evolve::replay;
use stepwell_kernel::plan::{Net, Plan};
use stepwell_kernel::state::State;

pub(crate) fn histories() -> Vec<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/histories");
    let entries = std::fs::read_dir(root).expect("the histories");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder").path())
        .collect();
    folders.sort();
    folders
}

fn read(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn plan(folder: &Path) -> Plan {
    let net: Net = serde_json::from_str(&read(folder, "net.json")).expect("a net");
    Plan::new(net).expect("a plan")
}

/// The records of a log: the contract's fields, and beside them `ext` and the chain.
pub(crate) fn records(folder: &Path) -> Vec<Record> {
    let record = |line: &str| {
        let mut contract: Json = serde_json::from_str(line).expect("a line of JSON");
        let fields = contract.as_object_mut().expect("a record");
        let ext = fields.remove("ext").expect("ext");
        let mut text = |name: &str| {
            let value = fields.remove(name).expect("a hash");
            value.as_str().expect("a hash").to_owned()
        };
        let (prev_hash, hash) = (text("prevHash"), text("hash"));
        Record {
            contract,
            ext,
            prev_hash,
            hash,
        }
    };
    read(folder, "log.jsonl").lines().map(record).collect()
}

/// How a run ended, as a tree that a person can read.
fn tree(plan: &Plan, state: &State) -> String {
    let mut text = format!("{:?} at {}\n", state.phase(), state.last_at());
    for no in plan.numbers() {
        let _ = writeln!(text, "{}", plan.step(no).name);
        for visit in state.steps()[no.0 as usize].visits() {
            let run = visit.run();
            let _ = write!(
                text,
                "  {:?}, attempt {}.{}",
                run.status(),
                run.logical(),
                run.execution()
            );
            let _ = write!(text, ", undo {:?}", run.compensation());
            if let Some(error) = run.error() {
                let _ = write!(text, ", {}", error.code);
            }
            if let Some(each) = visit.each() {
                let _ = write!(text, ", {} items, {} failed", each.count(), each.failed());
            }
            text.push('\n');
        }
    }
    text
}

#[test]
fn recorded_histories_replay_to_the_same_end() {
    let folders = histories();
    assert!(folders.len() >= 10, "there are histories of every language");
    for folder in folders {
        let plan = plan(&folder);
        let events: Vec<Event> = records(&folder)
            .iter()
            .map(|record| from_record(record).expect("a record is an event"))
            .collect();
        let run_id = records(&folder)[0].contract["runId"]
            .as_str()
            .expect("a run id")
            .to_owned();
        let state = replay(&plan, &run_id, None, &events).unwrap();
        expect_test::expect_file![folder.join("end.txt")].assert_eq(&tree(&plan, &state));
    }
}

#[test]
fn recorded_histories_are_recorded_the_same_today() {
    for folder in histories() {
        let plan = plan(&folder);
        let records = records(&folder);
        chain::verify(&records).unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()));
        let run_id = records[0].contract["runId"].as_str().expect("a run id");
        let mut recorder = Recorder::new(run_id);
        for record in &records {
            let event = from_record(record).expect("a record is an event");
            let again = recorder.record(&plan, &event).expect("it fits its schema");
            assert_eq!(again, *record, "{}", folder.display());
        }
    }
}
