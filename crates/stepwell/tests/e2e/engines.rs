//! A run is finished by the engine that began it: a rehearsal has no real effects, whatever process is on its store.

use std::time::{Duration, Instant};

use serde_json::json;
use stepwell::Stepwell;

use crate::test_site::TestSite;

const TWO: &str = "
metadata: {planId: two, planVersion: '1', schemaVersion: v1.2}
steps:
  - {stepId: one, tool: {kind: shell, cmds: [echo one]}}
  - {stepId: two, dependsOn: [one], tool: {kind: shell, cmds: [echo two]}}
";

/// A rehearsal whose process was killed in the middle of its second step.
fn interrupted_rehearsal(site: &TestSite) -> String {
    let file = site.file("two.yaml", TWO);
    let process = site.start(&file, &["--engine", "mock", "--work-ms", "3000"]);
    process.until("two    RUNNING");
    process.kill();
    file
}

#[test]
fn a_rehearsal_is_continued_by_the_mock_engine_only() {
    for site in [
        TestSite::new("rehearsal"),
        TestSite::on_postgres("rehearsal-on-postgres"),
    ] {
        let file = interrupted_rehearsal(&site);
        for command in [&["resume", "run_a"][..], &["run", &file, "--resume"]] {
            let call = site.call(command);
            assert_eq!(call.code, 1, "{call:?}");
            assert!(call.err.contains("ENGINE_DIFFERS"), "{call:?}");
            let solution = "stepwell resume run_a --engine mock";
            assert!(call.err.contains(solution), "{call:?}");
        }
        site.good(&["resume", "run_a", "--engine", "mock"]);
        assert_eq!(site.show()["status"], "COMPLETED");
        assert_eq!(site.seen(), [], "nothing was done for real");
    }
}

#[test]
fn a_run_with_real_effects_is_not_finished_by_pretending() {
    let site = TestSite::new("no-rehearsal");
    let file = site.file("two.yaml", TWO);
    site.hold("two");
    let process = site.start(&file, &[]);
    site.begun("two", 1);
    process.kill();
    site.hold_no_more("two");
    let call = site.call(&["resume", "run_a", "--engine", "mock"]);
    assert_eq!(call.code, 1, "{call:?}");
    assert!(call.err.contains("ENGINE_DIFFERS"), "{call:?}");
    site.good(&["resume", "run_a"]);
    assert_eq!(site.times("two"), (2, 1));
}

#[test]
fn an_engine_that_takes_over_what_others_left_leaves_a_rehearsal_alone() {
    let site = TestSite::new("rehearsal-beside");
    let file = interrupted_rehearsal(&site);
    let store = site.folder.join(".stepwell/stepwell.db");
    let engine = Stepwell::at(&format!("sqlite:{}", store.display())).open();
    let engine = engine.unwrap();
    // Its own runs get through.
    let own = site.folder.join(&file);
    engine.start(own, json!({})).unwrap().wait().unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    engine.stop().unwrap();
    let log = site.log();
    assert_eq!(log.completed(), ["one"], "{:?}", log.types());
    site.good(&["resume", "run_a", "--engine", "mock"]);
    assert_eq!(site.log().completed(), ["one", "two"]);
}
