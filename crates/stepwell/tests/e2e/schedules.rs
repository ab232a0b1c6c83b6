//! Schedules in real time: processes that wait for the due times of a definition, are killed, and come back; and two of
//! them at once.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;

use crate::sessions::with_clock;
use crate::test_site::{TestSite, soon};

const EACH_MINUTE: &str = r#"
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: each-minute}
spec:
  timeout: 1h
  trigger: {schedule: "* * * * *"}
  steps:
    - name: note
      timeout: 10m
      tool: {kind: shell, env: {DUE: "{{ workload.trigger.dueAt }}"}, cmds: ['echo "$DUE" >> dues']}
"#;

/// The due times whose runs have done their work, and how often each did it.
fn dues(site: &TestSite) -> BTreeMap<String, usize> {
    let mut dues = BTreeMap::new();
    for due in site.read("dues").lines() {
        *dues.entry(due.to_owned()).or_default() += 1;
    }
    dues
}

/// The states of all runs of the store.
fn states(site: &TestSite) -> Vec<String> {
    let text = site.good(&["runs", "list", "-o", "json"]);
    let list: Json = serde_json::from_str(&text).unwrap();
    let status = |run: &Json| run["status"].as_str().unwrap().to_owned();
    list["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(status)
        .collect()
}

/// The seconds that the clock must be ahead for the next minute to begin in three seconds.
fn before_the_minute() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    57 - i64::try_from(now.as_secs() % 60).unwrap()
}

#[test]
fn due_times_that_pass_while_nobody_waits_start_one_run_each() {
    let Some((site, set)) = with_clock(TestSite::new("schedule-killed")) else {
        return;
    };
    let file = site.file("each-minute.yaml", EACH_MINUTE);
    let ahead = before_the_minute();
    set(ahead);
    site.hold("note");
    let process = site.spawn(&["run", &file, "--idle"]);
    site.begun("note", 1);
    process.kill();
    assert_eq!(states(&site), ["RUNNING"], "the due time has started a run");

    // Two more due times pass. The run that was left is continued, and each due time starts one run.
    set(ahead + 120);
    site.hold_no_more("note");
    let process = site.spawn(&["run", &file, "--idle", "--starts", "2"]);
    let (code, said) = process.end();
    assert_eq!(code, 0, "{said}");
    let done = dues(&site);
    assert_eq!(done.len(), 3, "{done:?}\n{said}");
    assert!(done.values().all(|times| *times == 1), "{done:?}");
    assert_eq!(states(&site), ["COMPLETED"; 3], "{said}");

    // A process that begins to wait in the same minute has nothing to make good.
    let process = site.spawn(&["run", &file, "--idle"]);
    process.until("waiting for");
    process.send("INT");
    let (code, said) = process.end();
    assert_eq!(code, 130, "{said}");
    assert!(dues(&site).values().all(|times| *times == 1), "{said}");
}

#[test]
fn two_processes_that_wait_for_one_schedule_start_one_run_at_each_due_time() {
    let site = TestSite::on_postgres("schedule-two");
    let file = site.file("each-minute.yaml", EACH_MINUTE);
    let processes = [0, 1].map(|_| site.spawn(&["run", &file, "--idle"]));
    for process in &processes {
        process.until("waiting for");
    }
    // The clock is that of the database: the next minute has to come.
    soon("a due time comes", || !dues(&site).is_empty());
    for process in processes {
        process.send("INT");
        let (code, said) = process.end();
        assert_eq!(code, 130, "{said}");
    }
    let done = dues(&site);
    assert!(done.values().all(|times| *times == 1), "{done:?}");
    assert_eq!(states(&site), vec!["COMPLETED"; done.len()]);
}
