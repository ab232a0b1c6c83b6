//! What the outside is told about executions, as the outside sees it: a greater fence and the same key after a kill, in
//! every tool; keys of their own for undos and items; greater fences in runs that are repeated.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::listener::{Answer, Listener, OK};
use crate::test_site::{RUN, TestSite, WitnessLine, example, is_gone, soon};

/// All times that commands of a step began.
fn began(site: &TestSite, step: &str) -> Vec<WitnessLine> {
    let seen = site.seen().into_iter();
    seen.filter(|it| it.what == "began" && it.step == step)
        .collect()
}

/// A step was executed twice, because its process was killed: another number and a greater fence, but the same key. It
/// is the same attempt, except where losses are attempts.
pub(crate) fn rises(site: &TestSite, step: &str, losses_are_attempts: bool) {
    let seen = began(site, step);
    let [first, second] = &seen[..] else {
        panic!("{step} began {} times", seen.len());
    };
    assert_eq!((first.execution, second.execution), (1, 2), "{seen:?}");
    assert!(second.fence > first.fence, "{seen:?}");
    assert_eq!(first.key, second.key, "{seen:?}");
    let attempt = if losses_are_attempts { 2 } else { 1 };
    assert_eq!((first.attempt, second.attempt), (1, attempt), "{seen:?}");
}

#[test]
fn an_undo_has_a_key_of_its_own_and_a_greater_fence() {
    let site = TestSite::new("fence-undo");
    site.hold("hotel~undo");
    let process = site.start(&example("actions/trip.yaml"), &["--input", "cars=0"]);
    site.begun("hotel~undo", 1);
    process.kill();
    site.hold_no_more("hotel~undo");
    site.call(&["resume", RUN]);
    rises(&site, "hotel~undo", false);
    let (hotel, undo) = (began(&site, "hotel"), began(&site, "hotel~undo"));
    assert_ne!(hotel[0].key, undo[0].key);
    assert!(hotel[0].fence < undo[0].fence, "{hotel:?} {undo:?}");
    // Two failures of the work itself are two attempts.
    let cars = began(&site, "car");
    let told = |it: &WitnessLine| (it.execution, it.attempt);
    assert_eq!(
        cars.iter().map(told).collect::<Vec<_>>(),
        [(1, 1), (2, 2)],
        "{cars:?}"
    );
}

#[test]
fn items_have_keys_of_their_own() {
    let site = TestSite::new("fence-items");
    let text = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: items}
workflow:
  - step: each
    loop: {in: [1, 2, 3, 4, 5], iterator: n, spec: {mode: parallel, max_in_flight: 5}}
    tool: {kind: shell, cmds: [echo done]}
"#;
    let file = site.file("items.yaml", text);
    let items: Vec<String> = (0..5).map(|n| format!("each[{n}]")).collect();
    items.iter().for_each(|item| site.hold(item));
    let process = site.start(&file, &[]);
    let pids: Vec<u32> = items.iter().map(|item| site.begun(item, 1)).collect();
    process.kill();
    soon("the items end with their worker", || {
        pids.iter().all(|pid| is_gone(*pid))
    });
    items.iter().for_each(|item| site.hold_no_more(item));
    site.good(&["resume", RUN]);
    let mut keys = BTreeMap::new();
    for item in &items {
        rises(&site, item, false);
        keys.insert(began(&site, item)[0].key.clone(), item);
    }
    assert_eq!(keys.len(), 5, "{keys:?}");
}

#[test]
fn a_child_that_is_called_again_and_a_run_that_is_repeated_have_greater_fences() {
    let site = TestSite::new("fence-runs");
    let inner = "
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: inner}
workflow:
  - {step: before, tool: {kind: shell, cmds: [echo before]}, next: work}
  - {step: work, tool: {kind: shell, cmds: [exit 1]}}
";
    site.file("inner.yaml", inner);
    let outer = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: outer}
workflow:
  - step: call
    tool:
      - {name: first, kind: noop}
      - name: inner
        kind: playbook
        path: ./inner.yaml
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 0.01}}]}}
"#;
    let file = site.file("outer.yaml", outer);
    assert_eq!(site.run(&file, &[]).code, 3);
    let again = site.call(&["runs", "retry", RUN]);
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    site.call(&["run", &file, "--resume"]);
    let work = began(&site, "work");
    assert_eq!(work.len(), 6, "{work:?}");
    let runs: BTreeSet<&str> = work.iter().map(|it| it.run.as_str()).collect();
    let keys: BTreeSet<&str> = work.iter().map(|it| it.key.as_str()).collect();
    assert_eq!((runs.len(), keys.len()), (6, 6), "each is another run");
    assert!(work.is_sorted_by(|a, b| a.fence < b.fence), "{work:?}");
}

#[test]
fn a_step_that_an_operator_retries_has_another_key() {
    let site = TestSite::new("fence-retried");
    let text = r#"
metadata: {planId: p, planVersion: '1', schemaVersion: v1.2}
steps:
  - stepId: pay
    onStepFailure: hold
    tool: {kind: shell, cmds: ['test -e ready']}
"#;
    let file = site.file("pay.yaml", text);
    let process = site.start(&file, &[]);
    soon("the step is held", || {
        began(&site, "pay").len() == 1 && site.log().count("StepHeld", "pay") == 1
    });
    site.file("ready", "");
    site.good(&["runs", "retry", RUN, "--step", "pay"]);
    let (code, said) = process.end();
    assert_eq!(code, 0, "{said}");
    let pay = began(&site, "pay");
    let told = |it: &WitnessLine| (it.execution, it.attempt);
    assert_eq!(pay.iter().map(told).collect::<Vec<_>>(), [(1, 1), (2, 1)]);
    assert!(pay[0].fence < pay[1].fence && pay[0].key != pay[1].key);
}

#[test]
fn a_receiver_over_http_sees_which_of_two_requests_is_the_current_one() {
    let site = TestSite::new("fence-http");
    let slow = Listener::start(0, Answer::Wait(std::time::Duration::from_secs(20)));
    let port = slow.port;
    let text = format!(
        r#"
metadata: {{planId: p, planVersion: '1', schemaVersion: v1.2}}
steps:
  - stepId: pay
    tool:
      kind: http
      method: POST
      url: {}
      headers: {{STEPWELL-STEP: mine}}
      json: {{fence: "{{{{ execution.fence }}}}", key: "{{{{ execution.idempotency_key }}}}"}}
"#,
        slow.url()
    );
    let file = site.file("pay.yaml", &text);
    let process = site.start(&file, &[]);
    soon("the request arrives", || slow.heard().len() == 1);
    let first = slow.heard().remove(0);
    process.kill();
    drop(slow);
    let next = Listener::start(port, OK);
    site.good(&["resume", RUN]);
    let second = next.heard().remove(0);
    for heard in [&first, &second] {
        assert_eq!(heard.headers["stepwell-run"], RUN);
        assert_eq!(heard.headers["stepwell-step"], "mine");
        assert_eq!(heard.headers["stepwell-attempt"], "1");
        // A template of the task gives the same.
        let body: Json = serde_json::from_str(&heard.body).unwrap();
        assert_eq!(body["fence"].to_string(), heard.headers["stepwell-fence"]);
        assert_eq!(body["key"], heard.headers["idempotency-key"]);
    }
    let number = |name: &str| -> (u64, u64) {
        let number = |it: &str| it.parse().unwrap();
        (number(&first.headers[name]), number(&second.headers[name]))
    };
    assert_eq!(number("stepwell-execution"), (1, 2));
    let (before, after) = number("stepwell-fence");
    assert!(before < after, "{before} {after}");
    let key = "idempotency-key";
    assert_eq!(first.headers[key], second.headers[key]);
}

#[test]
fn a_zombie_on_postgres_is_refused_by_the_row_that_it_wants_to_change() {
    let site = TestSite::on_postgres("fence-sql");
    let url = site.variable("STEPWELL_STORE").to_owned();
    let (server, schema) = url.rsplit_once("schema=").unwrap();
    let server = server.trim_end_matches(['?', '&']);
    // A table of the test's own, in its own schema.
    let table = format!("{schema}_orders");
    let text = format!(
        r#"
metadata: {{planId: p, planVersion: '1', schemaVersion: v1.2}}
steps:
  - stepId: tables
    tool:
      kind: postgres
      auth: {{dsn: "{server}"}}
      query: |
        CREATE TABLE {table} (id int, fence bigint, seen text);
        INSERT INTO {table} VALUES (7, 0, '');
  - stepId: hold
    dependsOn: [tables]
    tool: {{kind: shell, cmds: [echo held]}}
  - stepId: book
    dependsOn: [hold]
    tool:
      kind: postgres
      auth: {{dsn: "{server}"}}
      query: |
        SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;
        UPDATE {table} SET fence = current_setting('stepwell.fence')::bigint,
          seen = current_setting('stepwell.run_id') || ' ' || current_setting('stepwell.step_id') || ' ' ||
                 current_setting('stepwell.execution') || ' ' || current_setting('stepwell.attempt') || ' ' ||
                 current_setting('stepwell.idempotency_key')
          WHERE id = 7 AND fence <= current_setting('stepwell.fence')::bigint;
        SELECT seen, fence FROM {table};
"#
    );
    let file = site.file("book.yaml", &text);
    site.good(&["run", &file, "--run-id", RUN]);
    let log = site.log();
    let row = &log.of("StepCompleted", "book")[0]["ext"]["output"]["rows"][0];
    let seen = row["seen"].as_str().unwrap();
    assert_eq!(seen, format!("{RUN} book 1 1 {RUN}:book:1:0.task_1"));
    let fence = row["fence"].as_u64().unwrap();
    assert!(fence > began(&site, "hold")[0].fence);
    // The execution of an older run wakes up: it says so by its own settings, and changes nothing.
    let zombie = format!(
        r#"
metadata: {{planId: zombie, planVersion: '1', schemaVersion: v1.2}}
steps:
  - stepId: book
    tool:
      kind: postgres
      auth: {{dsn: "{server}"}}
      query: |
        BEGIN;
        SELECT current_setting('stepwell.fence') AS told;
        SET LOCAL stepwell.fence = '{}';
        UPDATE {table} SET fence = current_setting('stepwell.fence')::bigint
          WHERE id = 7 AND fence <= current_setting('stepwell.fence')::bigint;
        COMMIT AND CHAIN;
        SELECT current_setting('stepwell.fence')::bigint AS again, fence FROM {table};
        COMMIT;
"#,
        fence - 1
    );
    let file = site.file("zombie.yaml", &zombie);
    site.good(&["run", &file, "--run-id", "run_zombie"]);
    let log = site.log_of("run_zombie");
    let output = &log.of("StepCompleted", "book")[0]["ext"]["output"];
    let told = |command: &str, name: &str| output[command]["rows"][0][name].to_string();
    let own: u64 = told("command_1", "told").trim_matches('"').parse().unwrap();
    assert!(own > fence, "a later run has a greater fence");
    assert_eq!(output["command_3"]["row_count"], 0, "{output}");
    assert_eq!(told("command_5", "fence"), fence.to_string());
    assert_eq!(told("command_5", "again"), own.to_string());
}

#[test]
fn a_wrong_field_of_execution_is_found_when_a_definition_is_loaded() {
    let site = TestSite::new("fence-check");
    let file = |name: &str, tool: &str, more: &str| {
        let text = format!(
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: x}}\nworkflow:\n  - step: a\n    tool: {tool}\n{more}"
        );
        site.file(name, &text)
    };
    let good = file(
        "good.yaml",
        "{kind: shell, cmds: ['echo {{ execution.fence }}']}",
        "",
    );
    let wrong = file(
        "wrong.yaml",
        "{kind: http, url: 'https://a.example', headers: {X: '{{ execution.fense }}'}}",
        "",
    );
    let nowhere = file(
        "nowhere.yaml",
        "{kind: noop}",
        "    next: {arcs: [{step: b, when: '{{ execution.attempt > 1 }}'}]}\n  - {step: b, tool: {kind: noop}}\n",
    );
    assert_eq!(site.call(&["check", "--deny-warnings", &good]).code, 0);
    for (file, says) in [
        (wrong, "did you mean `execution.fence`?"),
        (nowhere, "`execution.attempt` has no value here"),
    ] {
        let call = site.call(&["check", &file]);
        let said = format!("{}{}", call.out, call.err);
        assert_eq!(call.code, 1, "{said}");
        assert!(
            said.contains("TEMPLATE_EXECUTION") && said.contains(says),
            "{said}"
        );
    }
    let page = site.good(&["explain", "TEMPLATE_EXECUTION"]);
    assert!(page.contains("## What to do"), "{page}");
}
