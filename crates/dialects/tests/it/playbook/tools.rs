//! Tool blocks in their normalised form.

use serde_json::json;
use stepwell_dialects::{Field, Problems, tools};
use stepwell_kernel::plan::{WaitOn, Work};

use super::{codes, net, tasks};

fn work(tool: &str) -> Work {
    net(&format!("workflow:\n- step: a\n  tool: {tool}\n")).steps[0]
        .work
        .clone()
}

#[test]
fn tasks_are_named_by_name_label_or_place() {
    let names: Vec<_> =
        tasks("[{kind: noop}, {name: x, kind: noop}, y: {kind: noop}, {kind: noop}]")
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["name"].clone())
            .collect();
    assert_eq!(names, ["task_1", "x", "y", "task_4"]);
}

#[test]
fn aliases_become_one_name() {
    assert_eq!(
        tasks("{kind: http, endpoint: 'http://h', method: post, payload: {a: 1}, timeout: 2}"),
        json!([{"name": "task_1", "kind": "http", "url": "http://h", "method": "POST", "body": {"a": 1}, "timeout_ms": 2000}])
    );
    assert_eq!(tasks("{kind: shell, cmd: ls}")[0]["cmds"], json!(["ls"]));
    assert_eq!(
        tasks("{kind: postgres, auth: pg, query: SELECT 1}")[0]["commands"],
        json!(["SELECT 1"])
    );
}

#[test]
fn fields_may_stand_in_spec() {
    let task = &tasks("{kind: python, spec: {code: result = 1, input: {a: 1}}}")[0];
    assert_eq!(
        (&task["code"], &task["args"]),
        (&json!("result = 1"), &json!({"a": 1}))
    );
    assert_eq!(
        codes("workflow:\n- step: a\n  tool: {kind: python, code: x, spec: {code: y}}\n"),
        ["FIELD_CONFLICT"]
    );
}

#[test]
fn a_script_stands_in_for_code_and_statements() {
    let script = |tool: &str| tasks(tool)[0]["script"].clone();
    let file = json!({"type": "file", "uri": "a.py"});
    assert_eq!(script("{kind: python, script: a.py}"), file);
    assert_eq!(
        script("{kind: python, script: {uri: a.py, source: {type: file}}}"),
        file
    );
    assert_eq!(
        script("{kind: postgres, auth: pg, script: {source: {type: inline, code: SELECT 1}}}"),
        json!({"type": "inline", "code": "SELECT 1"})
    );
    let code = |tool: &str| codes(&format!("workflow:\n- step: a\n  tool: {tool}\n"));
    let elsewhere = "{kind: python, script: {uri: x, source: {type: gcs}}}";
    assert_eq!(code(elsewhere), ["FIELD_VALUE"]);
    assert_eq!(code("{kind: python, script: {}}"), ["FIELD_MISSING"]);
    assert_eq!(
        code("{kind: python, script: a.py, code: result = 1}"),
        ["FIELD_CONFLICT"]
    );
    assert_eq!(
        code("{kind: shell, script: a.sh}"),
        ["FIELD_MISSING", "FIELD_UNUSED"]
    );
}

#[test]
fn rules_are_normalised_with_their_defaults() {
    let rules = |rules: &str| {
        tasks(&format!(
            "{{kind: noop, spec: {{policy: {{rules: {rules}}}}}}}"
        ))[0]["rules"]
            .clone()
    };
    assert_eq!(
        rules("[{when: '{{ workload.x }}', then: {do: retry}}, {else: {do: fail}}]"),
        json!([{"when": "{{ workload.x }}", "do": "retry", "attempts": 3, "backoff": "constant", "delay_ms": 1000}, {"do": "fail"}])
    );
    assert_eq!(
        rules(
            "[{when: '{{ workload.x }}', then: {do: retry, backoff: fixed, delay: 0.5, attempts: '{{ workload.n }}'}}]"
        )[0],
        json!({"when": "{{ workload.x }}", "do": "retry", "attempts": "{{ workload.n }}", "backoff": "constant", "delay_ms": 500})
    );
    assert_eq!(
        rules("[{else: {then: {set: {ctx.a: 1, iter.b: 2, step.c: 3, d: 4}}}}]")[0],
        json!({"do": "continue", "set_ctx": {"a": 1}, "set_iter": {"b": 2}, "set_step": {"c": 3, "d": 4}})
    );
    assert_eq!(
        rules("[{when: true, then: {do: jump, to: previous}}]")[0]["to"],
        "previous"
    );
}

#[test]
fn work_that_needs_no_worker_gets_none() {
    assert!(matches!(
        work("{kind: workflow, path: b.yaml}"),
        Work::Child(_)
    ));
    let Work::Wait(wait) = work("{kind: wait, event: paid, timeout: 1h}") else {
        panic!("a wait")
    };
    assert_eq!(
        wait.on,
        WaitOn::Event {
            event_type: "paid".into()
        }
    );
    assert_eq!(wait.deadline_ms, Some(3_600_000));
    let Work::Wait(wait) = work("[{kind: manual}]") else {
        panic!("a wait")
    };
    assert_eq!(wait.on, WaitOn::Manual);
    let Work::Wait(wait) = work("{kind: sleep, seconds: 1.5}") else {
        panic!("a wait")
    };
    assert_eq!(wait.on, WaitOn::Timer { millis: 1500 });
}

#[test]
fn a_call_with_more_to_it_is_a_pipeline() {
    for tool in [
        "[{kind: playbook, path: b}, {kind: noop}]",
        "{kind: playbook, path: '{{ workload.path }}'}",
        "{kind: playbook, path: b, spec: {policy: {rules: [{else: {do: continue}}]}}}",
        "{kind: sleep, seconds: '{{ workload.n }}'}",
        "[{kind: sleep, seconds: 1}, {kind: noop}]",
    ] {
        assert!(matches!(work(tool), Work::Pipeline { .. }), "{tool}");
    }
}

#[test]
fn a_step_without_a_tool_only_routes() {
    let net = net("workflow: [{step: a}]\n");
    assert_eq!(net.steps[0].work, tools::nothing());
}

#[test]
fn blocks_that_cannot_work_are_refused() {
    let code = |tool: &str| codes(&format!("workflow:\n- step: a\n  tool: {tool}\n"));
    assert_eq!(code("{kind: htpp, url: x}"), ["TOOL_UNKNOWN"]);
    assert_eq!(code("{kind: http}"), ["FIELD_MISSING"]);
    assert_eq!(code("{url: x}"), ["FIELD_MISSING"]);
    assert_eq!(code("[]"), ["FIELD_VALUE"]);
    assert_eq!(code("noop"), ["FIELD_TYPE"]);
    assert_eq!(
        code("[{name: x, kind: noop}, {name: x, kind: noop}]"),
        ["NAME_DUPLICATE"]
    );
    assert_eq!(
        code("[{kind: wait, event: e}, {kind: noop}]"),
        ["TOOL_NOT_ALONE"]
    );
    assert_eq!(
        code("{kind: wait, event: e, timeout: '{{ t }}'}"),
        ["FIELD_VALUE"]
    );
    assert_eq!(code("{kind: manual, args: {x: 1}}"), ["FIELD_UNUSED"]);
    assert_eq!(code("{kind: workbook, name: nope}"), ["WORKBOOK_UNKNOWN"]);
    assert_eq!(
        code("{kind: http, url: 'http://h', timeout: -5}"),
        ["FIELD_DURATION"]
    );
    assert_eq!(
        code("{kind: shell, cmds: ['echo {{ oops']}"),
        ["TEMPLATE_SYNTAX"]
    );
    assert_eq!(
        code("{kind: python, code: 'print({{ workload.x }})'}"),
        ["TEMPLATE_IGNORED"]
    );
    assert_eq!(code("{kind: python, code: 'f\"{{}}\"'}"), [""; 0]);
}

#[test]
fn rules_that_cannot_work_are_refused() {
    let code = |rules: &str| {
        codes(&format!(
            "workflow:\n- step: a\n  tool: {{kind: noop, spec: {{policy: {{rules: {rules}}}}}}}\n"
        ))
    };
    assert_eq!(code("[{then: {do: fail}}]"), ["RULE_SHAPE"]);
    assert_eq!(code("[{when: '{{ workload.x }}'}]"), ["RULE_SHAPE"]);
    assert_eq!(
        code("[{when: '{{ workload.x }}', else: {do: fail}, then: {do: fail}}]"),
        ["RULE_SHAPE"]
    );
    assert_eq!(code("[{else: {do: jump}}]"), ["RULE_SHAPE"]);
    assert_eq!(code("[{else: {do: jump, to: nowhere}}]"), ["TASK_UNKNOWN"]);
    assert_eq!(code("[{else: {do: explode}}]"), ["FIELD_VALUE"]);
    assert_eq!(
        code("[{else: {do: fail}}, {when: '{{ workload.x }}', then: {do: fail}}]"),
        ["RULE_UNREACHABLE"]
    );
    assert_eq!(code("[{else: {do: fail, attempts: 3}}]"), ["FIELD_UNUSED"]);
    assert_eq!(
        code("[{when: outcome.error, then: {do: fail}}]"),
        ["CONDITION_CONSTANT"]
    );
    assert_eq!(code("[{else: {set: {workload.x: 1}}}]"), ["SET_SCOPE"]);
    assert_eq!(code("[{else: {set_ctx: {a.b: 1}}}]"), ["SET_SCOPE"]);
}

#[test]
fn other_languages_have_no_workbook() {
    let node = crate::node("{kind: workbook, name: w}");
    let mut p = Problems::new();
    assert_eq!(tools::work(&Field::new("`tool`", &node), &mut p), None);
    assert_eq!(p.into_vec()[0].code, "WORKBOOK_UNKNOWN");
}
