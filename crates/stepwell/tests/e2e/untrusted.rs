//! Values from outside: what `check` says of them, and what a policy forbids at run time.

use serde_json::Value as Json;

use crate::listener::{Listener, OK};
use crate::test_site::TestSite;

const OPEN: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: open}
workload: {name: world}
workflow:
  - step: greet
    tool: {kind: shell, cmds: ["echo hello {{ workload.name }}"]}
    next: [{step: store, when: "{{ event.name == 'step.done' }}"}]
  - step: store
    tool: {kind: sqlite, database: x.db, command: "SELECT '{{ workload.name }}' AS x"}
"#;

const GUARDED: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: guarded}
workload: {name: world}
workflow:
  - step: greet
    tool:
      kind: shell
      env: {NAME: "{{ workload.name }}"}
      cmds: ['echo hello "$NAME"', "echo hello {{ workload.name | quote }}"]
    next: [{step: store, when: "{{ event.name == 'step.done' }}"}]
  - step: store
    tool: {kind: sqlite, database: x.db, command: "SELECT :name AS x", params: {name: "{{ workload.name }}"}}
"#;

const EVIL: &str = "name=x; touch owned; echo y";

#[test]
fn check_warns_once_for_a_file_and_the_safe_form_is_quiet() {
    let site = TestSite::new("untrusted-check");
    let (open, guarded) = (
        site.file("open.yaml", OPEN),
        site.file("guarded.yaml", GUARDED),
    );
    let call = site.call(&["check", &open, "-o", "json"]);
    assert_eq!(call.code, 0, "{}", call.out);
    let said: Json = serde_json::from_str(&call.out).unwrap();
    let problems = said["files"][0]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{said}");
    assert_eq!(problems[0]["code"], "VALUE_UNGUARDED");
    assert_eq!(problems[0]["severity"], "warning");
    let message = problems[0]["message"].as_str().unwrap();
    for part in [
        "a command line",
        "SQL",
        "step `greet` (line 8)",
        "step `store` (line 11)",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(site.call(&["check", &open, "--deny-warnings"]).code, 1);
    site.good(&["check", &guarded, "--deny-warnings"]);
    let leaky = GUARDED.replace("echo hello {{", "echo ${secret:api} {{");
    let leaky = site.file("leaky.yaml", &leaky);
    let call = site.call(&["check", &leaky]);
    assert!(call.out.contains("SECRET_ON_COMMAND_LINE"), "{}", call.out);
    for code in ["VALUE_UNGUARDED", "SECRET_ON_COMMAND_LINE"] {
        site.good(&["explain", code]);
    }
}

#[test]
fn the_lists_of_hosts_hold_for_a_run() {
    let site = TestSite::new("untrusted-hosts");
    let listener = Listener::start(0, OK);
    let text = OPEN.split("workflow:").next().unwrap().to_owned()
        + "workflow:\n  - step: ask\n    tool: {kind: http, url: \"http://localhost:PORT/\"}\n";
    let file = site.file(
        "ask.yaml",
        &text.replace("PORT", &listener.port.to_string()),
    );
    site.file(
        "stepwell.toml",
        "[security.http]\ndeny = [\"loopback\", \"link-local\"]\n",
    );
    let call = site.run(&file, &[]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    let failed = site.log().of("StepFailed", "ask")[0].to_string();
    assert!(failed.contains("HTTP_HOST_DENIED"), "{failed}");
    assert_eq!(listener.heard().len(), 0, "nothing was sent");
    std::fs::remove_file(site.folder.join("stepwell.toml")).unwrap();
    site.good(&["run", &file]);
    assert_eq!(listener.heard().len(), 1);
}

#[test]
fn a_policy_forbids_unguarded_values_and_guards_hold_against_evil_input() {
    let site = TestSite::new("untrusted-deny");
    let (open, guarded) = (
        site.file("open.yaml", OPEN),
        site.file("guarded.yaml", GUARDED),
    );
    // Without a policy the definition runs, and the input is a command.
    let call = site.call(&["run", &open, "--input", EVIL]);
    assert!(
        site.folder.join("owned").exists(),
        "{}{}",
        call.out,
        call.err
    );
    std::fs::remove_file(site.folder.join("owned")).unwrap();
    site.file("strict.toml", "[security]\nunguarded = \"deny\"\n");
    let call = site.run(&open, &["--config", "strict.toml", "--input", EVIL]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    let failed = site.log().of("StepFailed", "greet")[0].to_string();
    assert!(
        failed.contains("VALUE_UNGUARDED") && failed.contains("quote"),
        "{failed}"
    );
    assert_eq!(
        site.times("greet").0,
        1,
        "only the run without a policy began"
    );
    site.good(&["run", &guarded, "--config", "strict.toml", "--input", EVIL]);
    assert!(!site.folder.join("owned").exists());
    // The default file counts as well, and one that is wrong stops everything.
    site.file("stepwell.toml", "[security]\nunguarded = \"deny\"\n");
    assert_eq!(site.call(&["run", &open]).code, 3);
    site.file("stepwell.toml", "[security]\nunguarded = \"maybe\"\n");
    let call = site.call(&["run", &guarded]);
    assert_eq!(call.code, 1, "{}", call.err);
    assert!(
        call.err.contains("stepwell.toml") && call.err.contains("maybe"),
        "{}",
        call.err
    );
}

/// Places where the quotes of the filter `quote` mean nothing, with an input that would be executed there.
#[test]
fn a_policy_knows_where_quotes_do_not_help() {
    let site = TestSite::new("untrusted-quotes");
    site.file("stepwell.toml", "[security]\nunguarded = \"deny\"\n");
    site.file("evil.sh", "touch owned");
    for (task, name) in [
        (
            r#"cmds: ["echo \\{{ workload.name | quote }}"]"#,
            "a; touch owned #",
        ),
        (
            r#"cmds: ["cat <<X\n{{ workload.name | quote }}\nX"]"#,
            "x$(touch owned)",
        ),
        (
            r#"cmds: ["bash -c {{ workload.name | quote }}"]"#,
            "touch owned",
        ),
        (
            r#"cmds: ["echo x"], env: {BASH_ENV: "{{ workload.name }}"}"#,
            "./evil.sh",
        ),
    ] {
        let text = format!(
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: evil}}\nworkload: {{name: x}}\nworkflow:\n  - step: a\n    tool: {{kind: shell, {task}}}\n"
        );
        let file = site.file("evil.yaml", &text);
        let check = site.call(&["check", &file]);
        assert!(
            check.out.contains("VALUE_UNGUARDED"),
            "{task}: {}",
            check.out
        );
        let call = site.call(&["run", &file, "--input", &format!("name={name}")]);
        assert_eq!(call.code, 3, "{task}: {}{}", call.out, call.err);
        assert!(call.out.contains("VALUE_UNGUARDED"), "{task}: {}", call.out);
        assert!(!site.folder.join("owned").exists(), "{task}");
    }
}
