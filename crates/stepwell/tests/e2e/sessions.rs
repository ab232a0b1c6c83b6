//! A healthy process keeps its session and its time, whatever the machine does; a process that has really lost its
//! session ends its work before another one begins it.

use std::time::{Duration, Instant};

use crate::preload;
use crate::slow_line::SlowLine;
use crate::test_site::{Log, RUN, TestSite, is_gone, soon};

/// Longer than the session of `stepwell run`, which is 5 s.
const PAUSE: Duration = Duration::from_secs(7);

/// Two commands with a sleep of two seconds between them, each step executed once at most.
const NAP: &str = "
metadata:
  planId: nap
  planVersion: 1.0.0
  schemaVersion: v1.2
  requiresCapabilities: [basic-execution]
  fallbackBehavior: reject
steps:
  - {stepId: first, tool: {kind: shell, cmds: [echo first]}}
  - {stepId: nap, tool: {kind: sleep, seconds: 2}}
  - {stepId: last, tool: {kind: shell, cmds: [echo last]}}
";

/// Each step was executed once, and the run has ended well.
fn all_once(site: &TestSite) {
    let log = site.log();
    for step in ["first", "nap", "last"] {
        assert_eq!(log.count("StepStarted", step), 1, "{:?}", log.types());
        assert_eq!(log.count("StepFailed", step), 0, "{:?}", log.types());
    }
    assert_eq!((site.times("first"), site.times("last")), ((1, 1), (1, 1)));
    assert_eq!(log.types().last(), Some(&"RunCompleted"));
}

#[test]
fn a_process_that_stood_still_goes_on() {
    let site = TestSite::new("stood-still");
    let file = site.file("nap.yaml", NAP);
    site.hold("first");
    let process = site.start(&file, &[]);
    site.begun("first", 1);
    process.send("STOP");
    std::thread::sleep(PAUSE);
    process.send("CONT");
    site.release("first");
    let (code, said) = process.end();
    assert_eq!(code, 0, "{said}");
    all_once(&site);
}

/// A machine whose clock the test sets.
pub(crate) fn with_clock(site: TestSite) -> Option<(TestSite, impl Fn(i64))> {
    let library = preload::clock(&site.folder)?;
    let path = site.folder.join("clock");
    let set = {
        let path = path.clone();
        move |seconds: i64| {
            use std::os::unix::fs::FileExt as _;
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
        }
    };
    std::fs::write(&path, 0_i64.to_ne_bytes()).unwrap();
    let site = site
        .with("LD_PRELOAD", library.to_str().unwrap())
        .with("TEST_CLOCK", path.to_str().unwrap());
    Some((site, set))
}

#[test]
fn a_clock_that_is_set_neither_fails_nor_stalls_nor_shortens_anything() {
    for (name, jump) in [
        ("clock-ahead", 8),
        ("clock-far-ahead", 7_200),
        ("clock-back", -7_200),
    ] {
        let Some((site, set)) = with_clock(TestSite::new(name)) else {
            return;
        };
        let file = site.file("nap.yaml", NAP);
        site.hold("first");
        let process = site.start(&file, &[]);
        site.begun("first", 1);
        set(jump);
        site.release("first");
        process.until("nap");
        let napping = Instant::now();
        // Once more while a step sleeps.
        set(-2 * jump);
        // A run that waited for the clock would not end in half a minute.
        let (code, said) = process.end();
        assert_eq!(code, 0, "{said}");
        assert!(napping.elapsed() > Duration::from_millis(1_500), "{said}");
        all_once(&site);
    }
}

#[test]
fn work_that_is_ready_is_done_after_a_restart_with_a_clock_that_was_set_back() {
    let Some((site, set)) = with_clock(TestSite::new("clock-back-restart")) else {
        return;
    };
    let text = NAP.replace("  - {stepId: nap, tool: {kind: sleep, seconds: 2}}\n", "");
    let text = text.replace(
        "{stepId: first,",
        "{stepId: first, retryPolicy: {maxAttempts: 3},",
    );
    let file = site.file("two.yaml", &text);
    site.hold("first");
    let process = site.start(&file, &[]);
    site.begun("first", 1);
    process.kill();
    site.hold_no_more("first");
    set(-7_200);
    let (code, said) = site.spawn(&["resume", RUN]).end();
    assert_eq!(code, 0, "{said}");
    assert_eq!(site.log().completed(), ["first", "last"]);
}

#[test]
fn a_machine_whose_clock_differs_from_the_database_says_so_and_keeps_to_the_database() {
    let Some((site, set)) = with_clock(TestSite::on_postgres("clock-skew")) else {
        return;
    };
    site.good(&["db", "migrate"]);
    let file = site.file("nap.yaml", NAP);
    set(600);
    let (code, said) = site.start(&file, &[]).end();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("CLOCK_SKEW"), "{said}");
    all_once(&site);
    // A process with a right clock comes later, and its events are later too.
    set(0);
    site.good(&["run", &file, "--run-id", "run_later"]);
    let time = |log: &Log, of: usize| log.0[of]["emittedAt"].as_str().unwrap().to_owned();
    let (log, later) = (site.log(), site.log_of("run_later"));
    assert!(time(&log, log.0.len() - 1) < time(&later, 0));
}

#[test]
fn a_disk_that_is_slower_than_a_session_fails_nothing() {
    let site = TestSite::new("slow-disk");
    let Some(library) = preload::slow_disk(&site.folder) else {
        return;
    };
    // Every commit takes longer than half of a session.
    let site = site
        .with("LD_PRELOAD", library.to_str().unwrap())
        .with("TEST_SYNC_MS", "2600");
    let file = site.file("nap.yaml", NAP);
    let process = site.start(&file, &[]);
    let (code, said) = process.end_within(Duration::from_secs(120));
    assert_eq!(code, 0, "{said}");
    all_once(&site);
}

/// Items of a loop, many at a time.
const MANY: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: many
workflow:
  - step: each
    loop:
      in: "{{ range(400) | list }}"
      iterator: number
      spec: {mode: parallel, max_in_flight: 50}
    tool: {kind: noop}
"#;

#[test]
fn a_slow_line_to_the_database_loses_no_session() {
    let site = TestSite::on_postgres("slow-line");
    let url = site.variable("STEPWELL_STORE").to_owned();
    let line = SlowLine::to(&crate::slow_line::split(&url).0, Duration::from_millis(60));
    let file = site.file("many.yaml", MANY);
    site.good(&["db", "migrate"]);
    let slow = site.line_to(&line.url(&url));
    let (code, said) = slow
        .start(&file, &["--parallel", "50"])
        .end_within(Duration::from_secs(240));
    assert_eq!(code, 0, "{said}");
    let log = site.log();
    let again = log
        .types()
        .iter()
        .filter(|it| **it == "StepExecutionStarted")
        .count();
    assert_eq!(again, 0, "nothing is executed twice");
    assert_eq!(log.completed().len(), 401);
}

#[test]
fn work_of_a_lost_session_ends_before_another_process_begins_it() {
    let site = TestSite::on_postgres("dead-line");
    let url = site.variable("STEPWELL_STORE").to_owned();
    let line = SlowLine::to(&crate::slow_line::split(&url).0, Duration::ZERO);
    let text = NAP.replace(
        "{stepId: first,",
        "{stepId: first, retryPolicy: {maxAttempts: 3},",
    );
    let file = site.file("nap.yaml", &text);
    site.good(&["db", "migrate"]);
    site.hold("first");
    let cut_off = site.line_to(&line.url(&url)).start(&file, &[]);
    let program = site.begun("first", 1);
    line.go_dead();
    site.park("first");
    let second = site.spawn(&["resume", RUN]);
    soon("the second process begins the step", || {
        site.times("first").0 == 2
    });
    assert!(
        is_gone(program),
        "the first process has killed its program before"
    );
    let (code, said) = second.end();
    assert_eq!(code, 0, "{said}");
    assert_eq!(site.log().completed(), ["first", "nap", "last"]);
    assert_eq!(site.times("first"), (2, 1));
    drop(cut_off);
}
