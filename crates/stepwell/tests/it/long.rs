//! Long plans and long loops: every step is done once, in order, and the commands that show such a run show all of it.
//! That their cost grows with the length and not with its square is measured by `cargo xtask growth`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value as Json;

use crate::{mock, scratch, stepwell, stepwell_in};

/// Steps of a plan and items of a loop.
const MANY: usize = 2_500;
/// Steps of one layer of a plan.
const WIDTH: usize = 100;

/// What a step of a layer depends on: three steps of the layer before.
fn needs(no: usize) -> Vec<usize> {
    let Some(layer) = (no / WIDTH).checked_sub(1) else {
        return Vec::new();
    };
    let place = no % WIDTH;
    [0, 1, 7]
        .map(|shift| layer * WIDTH + (place + shift) % WIDTH)
        .to_vec()
}

/// Layers of steps, as a workflow resource.
fn layers() -> String {
    let mut text = String::from(
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: long}\nspec:\n  steps:\n",
    );
    for no in 0..MANY {
        let needs: Vec<String> = needs(no).iter().map(|need| format!("s{need}")).collect();
        let needs = needs.join(", ");
        writeln!(
            text,
            "  - {{name: s{no}, timeout: 1h, tool: {{kind: noop}}, dependsOn: [{needs}]}}"
        )
        .unwrap();
    }
    text
}

/// Each step was started once, after all steps that it depends on had completed, and completed once.
fn in_order(events: &[Json]) {
    let mut started = HashSet::new();
    let mut completed = HashSet::new();
    for event in events {
        let Some(step) = event["stepId"].as_str() else {
            continue;
        };
        let no: usize = step[1..].parse().unwrap();
        match event["eventType"].as_str().unwrap() {
            "StepStarted" => {
                assert!(started.insert(no), "{step} was started twice");
                let early: Vec<usize> = needs(no);
                assert!(early.iter().all(|need| completed.contains(need)), "{step}");
            }
            "StepCompleted" => assert!(completed.insert(no), "{step} completed twice"),
            other => panic!("{step}: {other}"),
        }
    }
    assert_eq!((started.len(), completed.len()), (MANY, MANY));
}

fn events(out: &str) -> Vec<Json> {
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_long_plan_is_done_once_and_in_order() {
    let file = scratch("long/layers.yaml", layers().as_bytes());
    let run = stepwell(&["run", &file, "--events", "--parallel", "64"]);
    assert_eq!(run.code, 0, "{}", run.err);
    in_order(&events(&run.out));
    let pretended = mock(&file, &["--events"]);
    assert_eq!(pretended.code, 0, "{}", pretended.err);
    in_order(&events(&pretended.out));
}

const LOOP: &str = "\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: long-loop}
workflow:
  - step: each
    loop:
      in: '{{ range(COUNT) | list }}'
      iterator: item
      spec: {mode: parallel}
    tool:
      kind: sqlite
      database: done.db
      command: PRAGMA synchronous = OFF; INSERT INTO done VALUES (:item, :execution)
      params: {item: '{{ iter.item }}', execution: '{{ execution_id }}'}
";

#[test]
fn every_item_of_a_long_loop_is_done_once_and_shown() {
    let file = scratch(
        "long-loop/loop.yaml",
        LOOP.replace("COUNT", &MANY.to_string()).as_bytes(),
    );
    let folder = Path::new(&file).parent().unwrap();
    for name in ["done.db", "store.db", "store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(folder.join(name));
    }
    let done = rusqlite::Connection::open(folder.join("done.db")).unwrap();
    done.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE done (item, execution)")
        .unwrap();
    let store = ["--store", "sqlite:store.db"];
    let call = |args: &[&str]| {
        let done = stepwell_in(folder, &[args, &store].concat());
        assert_eq!(done.code, 0, "{args:?}: {}", done.err);
        done
    };
    let run = call(&["run", "loop.yaml", "-o", "json", "--parallel", "4"]).json();
    let items = &run["ext"]["steps"][0]["items"];
    assert_eq!(items["done"], MANY, "{items}");
    let count = |what: &str| -> usize {
        let query = format!("SELECT count({what}) FROM done");
        done.query_row(&query, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(
        (count("*"), count("DISTINCT item")),
        (MANY, MANY),
        "each once"
    );

    let run_id = run["runId"].as_str().unwrap();
    let log = events(&call(&["runs", "events", run_id]).out);
    let mut kinds: HashMap<&str, usize> = HashMap::new();
    for event in &log {
        *kinds
            .entry(event["eventType"].as_str().unwrap())
            .or_default() += 1;
    }
    // The items, and the step itself.
    assert_eq!(kinds["StepStarted"], MANY + 1);
    assert_eq!(kinds["StepCompleted"], MANY + 1);
    let shown = call(&["runs", "show", run_id]).out;
    assert!(shown.contains("success"), "{shown}");
    assert!(call(&["runs", "list"]).out.contains(run_id));
}

#[test]
fn a_plan_with_too_many_steps_is_refused_with_the_limit() {
    let mut text = String::from("workflowType: long\nworkflowVersion: 1\nsteps:\n");
    for no in 0..=20_000 {
        writeln!(text, "- {{stepType: S{no}, tool: {{kind: noop}}}}").unwrap();
    }
    let file = scratch("long/too-long.yaml", text.as_bytes());
    let refused = stepwell(&["check", &file]);
    assert_eq!(refused.code, 1, "{}", refused.out);
    let said = refused.out + &refused.err;
    assert!(
        said.contains("PLAN_TOO_LARGE") && said.contains("20000"),
        "{said}"
    );
}
