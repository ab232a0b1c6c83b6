//! Names, functions and fields that do not exist: what `stepwell check` says, and what a run does.

use super::{scratch, stepwell};

const ACTIONS: &str = "\
workflowId: w
workspaceId: x
name: w
version: 1
active: true
schemaVersion: 1
executionTier: Auto
actions:
  - actionId: clean
    order: 1
    portFamily: p
    operation: p:do
    tool:
      kind: shell
      env: {DIR: TEMPLATE}
      cmds: ['echo \"[$DIR]\"']
";
const DAG: &str = "\
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: w}
spec:
  timeout: 1m
  steps:
    - name: clean
      timeout: 1m
      tool:
        kind: shell
        env: {DIR: TEMPLATE}
        cmds: ['echo \"[$DIR]\"']
";
const PLAN: &str = "\
metadata: {planId: w, planVersion: '1', schemaVersion: v1.2}
steps:
  - stepId: clean
    tool:
      kind: shell
      env: {DIR: TEMPLATE}
      cmds: ['echo \"[$DIR]\"']
";
const LINEAR: &str = "\
workflowType: w
workflowVersion: 1
steps:
  - stepType: clean
    tool:
      kind: shell
      env: {DIR: TEMPLATE}
      cmds: ['echo \"[$DIR]\"']
";
const PLAYBOOK: &str = "\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: w}
executor: {spec: {strict: STRICT}}
workload: {path: /srv}
workflow:
  - step: clean
    tool:
      kind: shell
      env: {DIR: TEMPLATE}
      cmds: ['echo \"[$DIR]\"']
";

const STRICT: [(&str, &str); 4] = [
    ("actions", ACTIONS),
    ("dag", DAG),
    ("plan", PLAN),
    ("linear", LINEAR),
];

fn file(name: &str, text: &str, template: &str) -> String {
    let text = text.replace("TEMPLATE", &format!("\"{template}\""));
    scratch(&format!("names/{name}.yaml"), text.as_bytes())
}

/// Severity, code and line of the problems that `check` finds.
fn problems(path: &str) -> Vec<(String, String, u64)> {
    let call = stepwell(&["check", path, "-o", "json"]);
    let json = call.json();
    let problems = json["files"][0]["problems"].as_array().cloned();
    let text = |it: &serde_json::Value| it.as_str().unwrap_or_default().to_owned();
    problems
        .unwrap_or_default()
        .iter()
        .map(|it| {
            let line = it["line"].as_u64().unwrap_or_default();
            (text(&it["severity"]), text(&it["code"]), line)
        })
        .collect()
}

fn codes(path: &str) -> Vec<String> {
    let found = problems(path).into_iter();
    found
        .map(|(severity, code, _)| format!("{severity} {code}"))
        .collect()
}

#[test]
fn unknown_names_are_errors_where_templates_are_strict() {
    for (language, text) in STRICT {
        for template in [
            "{{ nosuchstep.x }}",
            "{{ wrkload.path }}",
            "{{ args.dir }}",
            "{{ ctx.x }}",
        ] {
            let path = file(&format!("{language}-unknown"), text, template);
            assert_eq!(
                codes(&path),
                ["error NAME_UNKNOWN"],
                "{language} {template}"
            );
            assert_eq!(
                stepwell(&["run", &path, "--store", "memory:"]).code,
                1,
                "{language} {template}"
            );
        }
        for template in [
            "{{ workload.path }}",
            "{{ nosuchstep.x | default('a') }}",
            "{{ nosuchstep.x if nosuchstep is defined else 'a' }}",
            "{{ run_id }} {{ execution.fence }} {{ _task }}",
        ] {
            let path = file(&format!("{language}-known"), text, template);
            assert_eq!(codes(&path), [""; 0], "{language} {template}");
        }
    }
}

#[test]
fn a_value_that_is_not_there_fails_the_step() {
    for (language, text) in STRICT {
        for template in [
            "{{ workload.pth }}",
            "a {{ workload.pth | quote }}",
            "{{ 'a' ~ workload.a.b }}",
        ] {
            let path = file(&format!("{language}-absent"), text, template);
            let call = stepwell(&["run", &path, "--store", "memory:", "-i", "workload=1"]);
            let said = format!("{}{}", call.out, call.err);
            assert_ne!(call.code, 0, "{language} {template}: {said}");
            assert!(
                said.contains("has no value"),
                "{language} {template}: {said}"
            );
            assert!(!said.contains("[]") && !said.contains("[a ]"), "{said}");
        }
        let path = file(
            &format!("{language}-default"),
            text,
            "{{ workload.pth | default('none') }}",
        );
        let call = stepwell(&["run", &path, "--store", "memory:"]);
        assert_eq!(call.code, 0, "{language}: {}{}", call.out, call.err);
    }
}

#[test]
fn playbooks_are_lenient_unless_they_say_otherwise() {
    let of = |strict: &str, template: &str| {
        let text = PLAYBOOK.replace("STRICT", strict);
        file(&format!("playbook-{strict}"), &text, template)
    };
    for template in ["{{ workload.pth }}", "{{ nosuchstep.x }}"] {
        let path = of("false", template);
        assert_eq!(codes(&path), ["warning NAME_UNKNOWN"], "{template}");
        let run = stepwell(&["run", &path, "--store", "memory:"]);
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(run.err.contains("NAME_UNKNOWN"), "{}", run.err);
        let path = of("true", template);
        assert_eq!(codes(&path), ["error NAME_UNKNOWN"], "{template}");
        assert_eq!(stepwell(&["run", &path, "--store", "memory:"]).code, 1);
    }
    // What only the run can know.
    let path = of("true", "{{ workload.path.below }}");
    assert_eq!(codes(&path), [""; 0]);
    let run = stepwell(&["run", &path, "--store", "memory:"]);
    assert!(run.code != 0 && format!("{}{}", run.out, run.err).contains("has no value"));
}

#[test]
fn functions_methods_and_filters_must_exist() {
    for template in [
        "{{ now() }}",
        "{{ run_id.frob() }}",
        "{{ run_id | frob }}",
        "{{ run_id is frob }}",
    ] {
        let path = file("functions", &PLAYBOOK.replace("STRICT", "false"), template);
        assert_eq!(codes(&path), ["error TEMPLATE_SYNTAX"], "{template}");
    }
    let good = "{{ range(3) | join(',') }}{{ run_id.upper() }}{{ (run_id) if (true) else 1 }}";
    let path = file("functions", &PLAYBOOK.replace("STRICT", "false"), good);
    assert_eq!(codes(&path), [""; 0]);
}

#[test]
fn every_wrong_read_of_execution_is_reported_at_its_line() {
    let text = "\
workflowType: w
workflowVersion: 1
steps:
  - stepType: a
    tool:
      kind: shell
      env:
        A: \"{{ (execution).fnce }}\"
        B: \"{{ execution.get('x') }}\"
      cmds:
        - |
          echo one
          echo {{ execution.fnce | quote }}
          echo {{ nosuch.x | quote }}
  - stepType: b
    tool: {kind: shell, env: {A: \"{{ (execution).fnce }}\"}, cmds: [\"true\"]}
";
    let path = scratch("names/execution.yaml", text.as_bytes());
    let found = problems(&path);
    let lines: Vec<(&str, u64)> = found.iter().map(|it| (it.1.as_str(), it.2)).collect();
    let wrong = "TEMPLATE_EXECUTION";
    assert_eq!(
        lines,
        [
            (wrong, 8),
            (wrong, 9),
            (wrong, 13),
            ("NAME_UNKNOWN", 14),
            (wrong, 16)
        ]
    );
}

#[test]
fn a_syntax_error_in_a_block_points_at_its_line() {
    let text = PLAYBOOK.replace("STRICT", "false").replace(
        "cmds: ['echo \"[$DIR]\"']",
        "cmds:\n        - |\n          echo one\n          echo {{ run_id | nofilter }}\n",
    );
    let path = file("block", &text, "x");
    assert_eq!(
        problems(&path),
        [("error".to_owned(), "TEMPLATE_SYNTAX".to_owned(), 14)]
    );
}

#[test]
fn inputs_that_nothing_reads_are_named() {
    let path = file(
        "inputs",
        &PLAYBOOK.replace("STRICT", "false"),
        "{{ workload.path }}",
    );
    let check = |input: &str| stepwell(&["check", &path, "-i", input, "--deny-warnings"]);
    assert_eq!(check("path=/x").code, 0);
    let wrong = check("pth=/x");
    assert_eq!(wrong.code, 1);
    assert!(wrong.out.contains("INPUT_UNUSED") && wrong.out.contains("did you mean `path`?"));
    let run = stepwell(&["run", &path, "--store", "memory:", "-i", "pth=/x"]);
    assert_eq!(run.code, 0);
    assert!(run.err.contains("INPUT_UNUSED"), "{}", run.err);
    let whole = file(
        "whole",
        &PLAYBOOK.replace("STRICT", "false"),
        "{{ workload | tojson }}",
    );
    assert_eq!(
        stepwell(&["check", &whole, "-i", "any=1", "--deny-warnings"]).code,
        0
    );
}

#[test]
fn fields_that_a_tool_needs_are_missed_by_check() {
    for (tool, wanted) in [
        ("{kind: postgres, command: SELECT 1}", "error FIELD_MISSING"),
        ("{kind: redis, command: PING}", "error FIELD_MISSING"),
        ("{kind: file, action: read}", "error FIELD_MISSING"),
        (
            "{kind: file, action: write, path: a}",
            "error FIELD_MISSING",
        ),
        (
            "{kind: postgres, auth: {dsn: \"postgres://u@{{ workload.h }}/d\"}, command: SELECT 1}",
            "warning VALUE_UNGUARDED",
        ),
    ] {
        let text = format!(
            "metadata: {{planId: w, planVersion: '1', schemaVersion: v1.2}}\nsteps:\n  - stepId: a\n    tool: {tool}\n"
        );
        let path = scratch("names/needed.yaml", text.as_bytes());
        assert_eq!(codes(&path), [wanted], "{tool}");
    }
}

#[test]
fn children_secrets_and_arcs_are_looked_at() {
    let head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: w}\n";
    let of = |rest: &str| {
        let path = scratch("names/other.yaml", format!("{head}{rest}").as_bytes());
        codes(&path)
    };
    assert_eq!(
        of("workflow: [{step: a, tool: {kind: playbook, path: ./nowhere.yaml}}]\n"),
        ["warning CHILD_UNKNOWN"]
    );
    assert_eq!(
        of(
            "executor: {spec: {strict: true}}\nworkflow: [{step: a, tool: {kind: playbook, path: ./nowhere.yaml}}]\n"
        ),
        ["error CHILD_UNKNOWN"]
    );
    assert_eq!(
        of(
            "keychain: [{name: k, kind: oauth9, provider: nowhere}, {name: l, kind: bearer}]\nworkflow: [{step: a}]\n"
        ),
        ["warning KEYCHAIN_UNKNOWN", "warning KEYCHAIN_UNKNOWN"]
    );
    let arcs = "workflow:\n- {step: a, tool: {kind: shell, cmds: ['true']}, next: b}\n- {step: b, tool: {kind: shell, cmds: ['true']}, next: c}\n- {step: c}\n";
    assert_eq!(of(arcs), ["warning ARC_AFTER_FAILURE"], "one for the file");
    let fast = "executor: {spec: {policy: {failure: {mode: fail_fast}}}}\n";
    assert_eq!(of(&format!("{fast}{arcs}")), [""; 0]);
    let guard = "next: {arcs: [{step: b, when: \"{{ event.name == 'step.done' }}\"}]}";
    let guarded = arcs
        .replacen("next: b", guard, 1)
        .replace("next: c", "next: []");
    assert!(!of(&guarded).contains(&"warning ARC_AFTER_FAILURE".to_owned()));
}

#[test]
fn triggers_and_duties_that_cannot_be_meant_are_refused() {
    let dag = |trigger: &str| {
        let text = DAG
            .replace("  steps:", &format!("  trigger: {trigger}\n  steps:"))
            .replace("TEMPLATE", "x");
        codes(&scratch("names/trigger.yaml", text.as_bytes()))
    };
    let has =
        |found: Vec<String>, wanted: &str| assert!(found.contains(&wanted.to_owned()), "{found:?}");
    has(dag("{schedule: '99 25 * * *'}"), "error FIELD_VALUE");
    has(dag("{schedule: '0 0 31 2 *'}"), "error FIELD_VALUE");
    has(
        dag("{schedule: '@daily', event: order.paid}"),
        "error FIELD_CONFLICT",
    );
    let duties = "    separationOfDuties: [{incompatibleDuties: [clean]}]\n    executionTierOverride: HumanApprove\n    tool:";
    let text = ACTIONS
        .replace("    tool:", duties)
        .replace("TEMPLATE", "x");
    let path = scratch("names/duty.yaml", text.as_bytes());
    assert_eq!(codes(&path), ["error DUTY_SELF"]);
}
