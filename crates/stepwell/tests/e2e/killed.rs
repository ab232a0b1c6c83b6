//! Processes that are killed, or frozen, in the middle of what takes longer: loops, sleeps, child runs
//! and pipelines.

use std::time::Duration;

use crate::test_site::{RUN, TestSite, is_gone, soon};

fn playbook(name: &str, workflow: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: {name}\nworkflow:\n{workflow}"
    )
}

#[test]
fn a_loop_goes_on_with_the_items_that_were_not_done() {
    let site = TestSite::new("loop");
    let text = playbook(
        "many",
        r#"
  - step: each
    loop:
      in: "{{ range(20) | list }}"
      iterator: number
      spec: {mode: parallel, max_in_flight: 3}
    tool:
      kind: shell
      env: {NUMBER: "{{ iter.number }}"}
      cmds: ['echo "$NUMBER"']
    next:
      arcs:
        - step: after
          when: "{{ event.name == 'loop.done' }}"
  - step: after
    tool:
      kind: python
      args: {results: "{{ each.data }}"}
      code: result = [item["data"] for item in results]
"#,
    );
    let file = site.file("many.yaml", &text);
    let held = ["each[7]", "each[8]", "each[9]"];
    held.iter().for_each(|item| site.hold(item));
    let process = site.start(&file, &[]);
    let pids: Vec<u32> = held.iter().map(|item| site.begun(item, 1)).collect();
    // No more than three are in flight, so nothing else has begun.
    assert_eq!(site.times("each[10]"), (0, 0));
    process.kill();
    soon("they end with their worker", || {
        pids.iter().all(|pid| is_gone(*pid))
    });
    held.iter().for_each(|item| site.hold_no_more(item));
    site.good(&["run", &file, "--resume"]);

    let log = site.log();
    for number in 0..20 {
        let item = format!("each[{number}]");
        let times = if held.contains(&item.as_str()) { 2 } else { 1 };
        assert_eq!(log.count("StepCompleted", &item), 1, "{item}");
        assert_eq!(log.executions(&item), times, "{item}");
        assert_eq!(site.times(&item), (times, 1), "{item}");
    }
    assert_eq!(log.count("StepCompleted", "each"), 1);
    assert_eq!(log.count("StepCompleted", "after"), 1);
    let output = &log.of("StepCompleted", "after")[0]["ext"];
    let numbers: Vec<u32> = (0..20).collect();
    let numbers = serde_json::to_string(&numbers).unwrap();
    assert!(output.to_string().contains(&numbers), "{output}");
}

#[test]
fn a_run_that_was_left_is_not_executed_by_the_process_of_another_run() {
    for site in [
        TestSite::new("left"),
        TestSite::on_postgres("left-on-postgres"),
    ] {
        let text = playbook(
            "one",
            "  - step: left\n    tool: {kind: shell, cmds: [echo left]}\n",
        );
        let one = site.file("one.yaml", &text);
        let text = playbook(
            "two",
            "  - step: other\n    tool: {kind: shell, cmds: [echo other]}\n",
        );
        let two = site.file("two.yaml", &text);
        site.hold("left");
        let process = site.start(&one, &[]);
        site.begun("left", 1);
        process.kill();
        site.hold_no_more("left");
        site.hold("other");
        let process = site.spawn(&["run", &two, "--run-id", "run_two"]);
        site.begun("other", 1);
        soon("the second process sees that the first one is dead", || {
            site.log().types().contains(&"StepExecutionFailed")
        });
        // Several looks for work that lies in the store.
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(site.times("left"), (1, 0));
        site.release("other");
        let (code, said) = process.end();
        assert_eq!(code, 0, "{said}");
        assert!(!said.contains("left"), "{said}");
        assert_eq!(site.times("left"), (1, 0));
        site.good(&["resume", RUN]);
        assert_eq!(site.times("left"), (2, 1));
    }
}

#[test]
fn a_run_that_a_pipeline_has_called_is_called_once() {
    let site = TestSite::new("child");
    let child = playbook(
        "inner",
        "  - step: slow\n    tool: {kind: shell, cmds: [echo from the child]}\n",
    );
    site.file("inner.yaml", &child);
    let parent = playbook(
        "outer",
        "
  - step: call
    tool:
      - {name: before, kind: shell, cmds: [echo before]}
      - {name: inner, kind: playbook, path: ./inner.yaml}
      - {name: behind, kind: shell, cmds: [echo behind]}
",
    );
    let file = site.file("outer.yaml", &parent);
    site.hold("slow");
    let process = site.start(&file, &[]);
    site.begun("slow", 1);
    process.kill();
    site.hold_no_more("slow");
    site.good(&["run", &file, "--resume"]);

    let list = site.good(&["runs", "list", "-o", "json"]);
    assert_eq!(list.matches("\"COMPLETED\"").count(), 2, "{list}");
    assert_eq!(site.times("slow"), (2, 1));
    // The parent waited while its child ran; what it had done before is not done again.
    let texts = |seen: &crate::test_site::WitnessLine| (seen.what == "began", seen.key.clone());
    let seen = site.seen();
    for task in ["before", "behind"] {
        let began = seen.iter().map(texts);
        let began = began.filter(|(began, key)| *began && key.ends_with(&format!(".{task}")));
        assert_eq!(began.count(), 1, "{task}: {seen:?}");
    }
    assert_eq!(site.log().count("StepCompleted", "call"), 1);
}

#[test]
fn a_sleep_is_not_started_over() {
    let site = TestSite::new("sleep");
    let text = playbook(
        "naps",
        "
  - step: nap
    tool:
      - {name: before, kind: shell, cmds: [echo before]}
      - {name: rest, kind: sleep, seconds: 2}
      - {name: behind, kind: shell, cmds: [echo behind]}
",
    );
    let file = site.file("naps.yaml", &text);
    let process = site.start(&file, &[]);
    process.until("waiting  (sleeps");
    process.kill();
    site.good(&["run", &file, "--resume"]);
    let log = site.log();
    assert_eq!(log.count("StepWaiting", "nap"), 1, "{:?}", log.types());
    assert_eq!(log.count("StepCompleted", "nap"), 1);
    let keys: Vec<String> = site.seen().into_iter().map(|it| it.key).collect();
    let count = |task: &str| keys.iter().filter(|key| key.ends_with(task)).count();
    assert_eq!((count(".before"), count(".behind")), (2, 2), "{keys:?}");
}

#[test]
fn p26_a_worker_that_dies_in_a_pipeline_loses_its_lease_and_the_step_is_tried_again() {
    let site = TestSite::new("pipeline");
    let text = playbook(
        "two",
        r#"
  - step: work
    tool:
      - name: first
        kind: python
        code: "result = {'n': 1}"
      - name: second
        kind: shell
        env: {N: "{{ first.n }}"}
        cmds: ['echo "$N"']
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' }}"
                then: {do: fail}
    next:
      arcs:
        - step: failed
          when: "{{ event.name == 'step.failed' }}"
        - step: done
          when: "{{ event.name == 'step.done' }}"
  - step: failed
    tool: {kind: noop}
  - step: done
    tool: {kind: noop}
"#,
    );
    let file = site.file("two.yaml", &text);
    site.hold("work");
    let process = site.start(&file, &[]);
    site.begun("work", 1);
    process.kill();
    site.hold_no_more("work");
    site.good(&["run", &file, "--resume"]);
    let log = site.log();
    // That the worker is gone is the engine's matter: no rule of the task was asked.
    let lost = log.of("StepExecutionFailed", "work");
    assert_eq!(lost.len(), 1, "{:?}", log.types());
    assert!(lost[0].to_string().contains("LEASE_EXPIRED"), "{}", lost[0]);
    assert_eq!(log.executions("work"), 2);
    // The routing is decided once, by what the second execution came to.
    assert_eq!(log.completed(), ["work", "done"]);
}

/// A worker that stands still for longer than its lease: another takes over, and what the first
/// reports when it wakes is no longer wanted.
#[test]
fn p26_a_result_that_comes_after_the_lease_is_refused() {
    let site = TestSite::on_postgres("frozen");
    let text = playbook(
        "frozen",
        "  - step: slow\n    tool: {kind: shell, cmds: [echo slow]}\n",
    );
    let file = site.file("frozen.yaml", &text);
    site.hold("slow");
    let frozen = site.start(&file, &[]);
    site.begun("slow", 1);
    frozen.send("STOP");
    site.park("slow");
    site.good(&["resume", RUN]);
    let log = site.log();
    assert_eq!(log.executions("slow"), 2);
    assert_eq!(log.count("StepCompleted", "slow"), 1);

    // The work ends while its process is frozen: once awake, the process could stop the work first.
    site.release_parked();
    soon("both have done the work", || site.times("slow") == (2, 2));
    frozen.send("CONT");
    let (code, said) = frozen.end();
    assert_eq!(code, 0, "{said}");
    let after = site.log();
    assert_eq!(after.0, log.0, "the late result has left no trace");
}
