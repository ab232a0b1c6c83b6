//! `execution` in templates: known fields in every language, where it has a value, and names that the definition gives.

use serde_json::{Value as Json, json};
use stepwell_dialects::advice::advice;
use stepwell_dialects::{Loaded, Source, load};

fn loaded(definition: &Json) -> (Source, Loaded) {
    let source = Source::from_bytes("one.yaml", definition.to_string().as_bytes()).unwrap();
    let loaded = load(&source);
    (source, loaded)
}

/// The paths that are reported, as they stand in the source.
fn reported(definition: &Json) -> Vec<(String, String)> {
    let (source, loaded) = loaded(definition);
    let problems = loaded.problems.iter();
    let about = problems.filter(|it| it.code == "TEMPLATE_EXECUTION");
    let text = |span: stepwell_dialects::Span| source.text()[span.start..span.end].to_owned();
    about
        .map(|it| (text(it.span), it.message.clone()))
        .collect()
}

/// Definitions of each language with one step that has this text in its environment.
fn in_each_language(text: &str) -> Vec<Json> {
    let tool = json!({"kind": "shell", "env": {"F": text}, "cmds": ["echo"]});
    vec![
        json!({"workflowId": "w", "name": "w", "version": 1, "active": true, "schemaVersion": "1.0", "workspaceId": "x",
            "executionTier": "Auto", "actions": [{"actionId": "a", "order": 1, "portFamily": "p", "operation": "p:do",
            "tool": tool}]}),
        json!({"apiVersion": "ioa.dev/v0.2", "kind": "Workflow", "metadata": {"name": "w"},
            "spec": {"timeout": "1m", "steps": [{"name": "a", "tool": tool}]}}),
        json!({"metadata": {"planId": "w", "planVersion": "1", "schemaVersion": "v1.2"},
            "steps": [{"stepId": "a", "tool": tool}]}),
        json!({"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "w"},
            "workflow": [{"step": "a", "tool": tool}]}),
        json!({"workflowType": "w", "workflowVersion": 1, "steps": [{"stepType": "a", "tool": tool}]}),
    ]
}

fn playbook(workload: Json, steps: Json) -> Json {
    json!({"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "w"},
        "workload": workload, "workflow": steps})
}

#[test]
fn an_unknown_field_is_an_error_in_every_language() {
    for definition in in_each_language("{{ execution.fense | int }}") {
        let found = reported(&definition);
        assert_eq!(found.len(), 1, "{definition}");
        assert_eq!(found[0].0, "execution.fense");
        assert!(loaded(&definition).1.plan.is_none());
    }
}

#[test]
fn every_field_is_known_in_every_language() {
    let all = "{{ execution.run_id }}{{ execution.step_id }}{{ execution.number }}{{ execution.attempt }}\
               {{ execution.idempotency_key }}{{ execution.fence }}{{ execution | tojson }}";
    for definition in in_each_language(all) {
        let (_, loaded) = loaded(&definition);
        let errors: Vec<_> = loaded
            .problems
            .iter()
            .filter(|it| it.code == "TEMPLATE_EXECUTION")
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        assert!(loaded.plan.is_some(), "{:?}", loaded.problems);
    }
}

#[test]
fn only_executions_have_the_variable() {
    let tool = json!({"kind": "noop"});
    let child =
        json!({"kind": "playbook", "path": "./c.yaml", "args": {"f": "{{ execution.fence }}"}});
    let arc = |arc: Json| json!([{"step": "a", "tool": tool, "next": {"arcs": [arc]}}, {"step": "b", "tool": tool}]);
    for steps in [
        arc(json!({"step": "b", "when": "{{ execution.fence }}"})),
        arc(json!({"step": "b", "args": {"f": "{{ execution.fence }}"}})),
        json!([{"step": "a", "tool": tool, "loop": {"in": "{{ [execution.fence] }}", "iterator": "n"}}]),
        json!([{"step": "a", "tool": child}]),
    ] {
        let found = reported(&playbook(json!({}), steps.clone()));
        assert_eq!(found.len(), 1, "{steps}");
        assert_eq!(found[0].0, "execution.fence", "{steps}");
        assert!(found[0].1.contains("no value here"), "{found:?}");
    }
}

#[test]
fn a_name_that_the_definition_gives_is_its_own() {
    let read = json!({"kind": "shell", "cmds": ["echo"], "env": {"M": "{{ execution.mode }}"}});
    let with = |key: &str, value: Json| {
        let mut read = read.clone();
        read[key] = value;
        read
    };
    for definition in [
        playbook(
            json!({"execution": {"mode": "fast"}}),
            json!([{"step": "a", "tool": read}]),
        ),
        playbook(
            json!({}),
            json!([{"step": "a", "tool": with("args", json!({"execution": {}}))}]),
        ),
        playbook(
            json!({}),
            json!([{"step": "a", "tool": read,
            "loop": {"in": [{"mode": 1}], "iterator": "execution"}}]),
        ),
        playbook(
            json!({}),
            json!([{"step": "execution", "tool": {"kind": "noop"}, "next": "b"},
            {"step": "b", "tool": read}]),
        ),
        playbook(
            json!({}),
            json!([{"step": "a", "tool": [
            {"name": "execution", "kind": "noop"}, with("name", json!("second"))]}]),
        ),
    ] {
        assert_eq!(reported(&definition), [], "{definition}");
        assert!(loaded(&definition).1.plan.is_some(), "{definition}");
    }
}

#[test]
fn no_guard_is_needed_for_what_comes_from_the_engine() {
    let command = |workload: Json| {
        let tool = json!({"kind": "shell", "cmds": ["book --fence {{ execution.fence }}"]});
        let (source, loaded) = loaded(&playbook(workload, json!([{"step": "a", "tool": tool}])));
        let plan = loaded.plan.unwrap();
        advice(&source, &plan).len()
    };
    assert_eq!(command(json!({})), 0);
    // A parameter of this name comes from outside.
    assert_eq!(command(json!({"execution": {"fence": 1}})), 1);
}
