//! `explain`, `schema`, `plan`, `--version`, and a reader that goes away.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{root, stepwell};

#[test]
fn codes_are_explained() {
    let call = stepwell(&["explain", "field-missing"]);
    assert_eq!(call.code, 0, "{}", call.err);
    assert!(call.out.contains("## What to do"), "{}", call.out);
    for code in ["SOURCE_UNREADABLE", "TOO_MANY_PROBLEMS"] {
        assert_eq!(stepwell(&["explain", code]).code, 0, "{code}");
    }
    let call = stepwell(&["explain", "FIELD_MISING"]);
    assert_eq!(call.code, 2);
    assert!(call.err.contains("FIELD_MISSING"), "{}", call.err);
}

/// The codes that a page about a tool says in its tables, and all codes that have a page or a section.
#[test]
fn every_code_of_the_documents_is_explained() {
    let is_code = |word: &str| {
        let capitals = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        // `PG_` and `PY_` begin the codes of a family.
        word.contains('_') && !word.ends_with('_') && word.chars().all(capitals)
    };
    let mut codes = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(root().join("docs/errors")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        codes.extend(name.strip_suffix(".md").map(str::to_owned));
    }
    for entry in std::fs::read_dir(root().join("docs/tools")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines() {
            codes.extend(line.strip_prefix("### ").map(str::to_owned));
            // A table of errors: code, class, meaning.
            let cell = line
                .strip_prefix("| ")
                .and_then(|it| it.split(" | ").next());
            let words = cell.into_iter().flat_map(|it| it.split('`'));
            codes.extend(words.map(str::to_owned));
        }
    }
    codes.retain(|it| is_code(it) && !it.starts_with("STEPWELL_"));
    assert!(codes.len() > 250, "{}", codes.len());
    for code in [
        "SHELL_EXIT",
        "HTTP_HOST_DENIED",
        "REDIS_WRONGTYPE",
        "WEBHOOK_UNUSABLE",
    ] {
        assert!(codes.contains(code), "{code}");
    }
    for code in codes {
        let call = stepwell(&["explain", &code]);
        assert_eq!(call.code, 0, "{code}: {}", call.err);
    }
}

#[test]
fn schemas_are_json_and_end_with_a_line_break() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemas");
    let call = stepwell(&["schema", "--all", folder.to_str().unwrap()]);
    assert_eq!(call.code, 0, "{}", call.err);
    let text = std::fs::read_to_string(folder.join("events/ext.schema.json")).unwrap();
    assert!(text.ends_with("}\n"));
    let one = stepwell(&["schema", "events/ext"]);
    assert_eq!(one.out, text);
    for name in stepwell(&["schema"]).out.lines() {
        let schema = stepwell(&["schema", name]).json();
        // The words of the languages for states are a table, not a schema.
        assert!(
            name == "languages" || jsonschema::meta::is_valid(&schema),
            "{name}"
        );
    }
    assert_eq!(stepwell(&["schema", "definitions/playbok"]).code, 2);
}

/// A definition with a tool block that has a rule.
fn with_rule(language: &str, action: &str) -> serde_json::Value {
    let rule = json!({ "when": "{{ true }}", "then": { "do": action } });
    let tool = json!({ "kind": "shell", "cmd": "true", "spec": { "policy": { "rules": [rule] } } });
    match language {
        "actions" => json!({
            "schemaVersion": "v1",
            "workflowId": "w",
            "workspaceId": "w",
            "name": "w",
            "version": 1,
            "active": true,
            "executionTier": "Auto",
            "actions": [{
                "actionId": "a",
                "order": 1,
                "portFamily": "p",
                "operation": "a:b",
                "tool": tool,
            }],
        }),
        _ => json!({
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": { "name": "p" },
            "workflow": [{ "step": "start", "tool": tool }],
        }),
    }
}

#[test]
fn a_printed_schema_is_complete_and_the_files_share_the_schema_of_tools() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("linked-schemas");
    let call = stepwell(&["schema", "--all", folder.to_str().unwrap()]);
    assert_eq!(call.code, 0, "{}", call.err);
    let read = |name: &str| -> serde_json::Value {
        let path = folder.join(format!("definitions/{name}.schema.json"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let tool = read("tool");
    let registry = jsonschema::Registry::new();
    let registry = registry.add(tool["$id"].as_str().unwrap(), &tool).unwrap();
    let registry = registry.prepare().unwrap();
    for language in ["actions", "dag", "linear", "plan", "playbook"] {
        let linked = read(language);
        assert!(tool.to_string().contains("redis://"));
        assert!(!linked.to_string().contains("redis://"), "{language}");
        let linked = jsonschema::options()
            .with_registry(&registry)
            .build(&linked);
        let linked = linked.unwrap();
        let printed = stepwell(&["schema", &format!("definitions/{language}")]).json();
        let printed = jsonschema::validator_for(&printed).unwrap();
        if ["actions", "playbook"].contains(&language) {
            for (action, fits) in [("break", true), ("brake", false)] {
                let definition = with_rule(language, action);
                let why = printed.validate(&definition).err().map(|it| it.to_string());
                assert_eq!(why.is_none(), fits, "{language}: {why:?}");
                assert_eq!(linked.is_valid(&definition), fits, "{language}");
            }
        }
    }
}

#[test]
fn the_version_names_engines_and_stores() {
    let call = stepwell(&["--version"]);
    let wanted = format!(
        "stepwell {}\nengines: native, mock\nstores:  sqlite, postgres, memory\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(call.out, wanted);
}

#[test]
fn a_plan_is_the_net_and_its_hash() {
    let json = stepwell(&["plan", "examples/playbook/nightly-load.yaml", "-o", "json"]).json();
    assert_eq!(json["hash"].as_str().unwrap().len(), 64);
    assert_eq!(json["net"]["dialect"], "playbook");
    assert_eq!(stepwell(&["plan", "/nonexistent"]).code, 1);
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["run", "examples/playbook/nightly-load.yaml"])
        .args(["--engine", "mock", "--work-ms", "50"])
        .env("STEPWELL_STORE", "memory:")
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert_eq!(err, "");
}

#[cfg(unix)]
#[test]
fn commands_that_only_print_end_quietly_without_a_reader() {
    for args in [
        &["engines"][..],
        &["engines", "-o", "json"],
        &["explain", "STEP_UNDEFINED"],
        &["plan", "examples/plan/backup.yaml"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_stepwell"));
        let end = command.args(args).current_dir(root()).stdout(writer);
        let end = end.output().unwrap();
        let said = String::from_utf8_lossy(&end.stderr);
        assert_eq!((end.status.code(), &*said), (Some(141), ""), "{args:?}");
    }
}

#[test]
fn an_interrupt_says_where_the_run_was() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["run", "examples/playbook/nightly-load.yaml"])
        .args(["--engine", "mock", "--work-ms", "60000"])
        .env("STEPWELL_STORE", "memory:")
        .current_dir(root())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    // Once it shows a running step it listens for the signal.
    while !text.contains("prepare") {
        let read = std::io::BufRead::read_line(&mut out, &mut text).unwrap();
        assert!(read > 0, "{text}");
    }
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    out.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(text.contains("was at        prepare: running"), "{text}");
}
