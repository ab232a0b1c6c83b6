//! The examples load without a warning and fit the schema, and the schema says what the reader says.

use std::path::Path;

use stepwell_dialects::problem::render;
use stepwell_dialects::{Source, load, playbook, tree};

use super::{loaded, text};

fn validator() -> jsonschema::Validator {
    let schema = playbook::schema();
    jsonschema::validator_for(&schema).expect("the schema is a schema")
}

#[test]
fn examples_load_without_a_warning_and_fit_the_schema() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/playbook");
    let validator = validator();
    let mut count = 0;
    for entry in std::fs::read_dir(place)
        .expect("there are examples")
        .flatten()
    {
        let bytes = std::fs::read(entry.path()).expect("a file");
        let name = entry.file_name().to_string_lossy().into_owned();
        let source = Source::from_bytes(name.clone(), &bytes).expect("UTF-8");
        let loaded = load(&source);
        assert!(
            loaded.problems.is_empty(),
            "{}",
            render(&source, &loaded.problems, false)
        );
        let json = tree::parse(&source).expect("valid").to_json();
        let faults: Vec<String> = validator
            .iter_errors(&json)
            .map(|it| format!("{name}{}: {it}", it.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}");
        count += 1;
    }
    assert!(count >= 4);
}

#[test]
fn schema_and_reader_agree() {
    let validator = validator();
    let cases = [
        ("workflow: [{step: a}]", true),
        ("workflow: []", false),
        ("workload: 5\nworkflow: [{step: a}]", false),
        ("workflow: [{step: 'a|b'}]", false),
        ("workflow: [{step: a, next: a}]", true),
        (
            "workflow: [{step: a, next: {arcs: [{step: a, cond: x}]}}]",
            false,
        ),
        (
            "workflow: [{step: a, next: {spec: {mode: both}, arcs: [a]}}]",
            false,
        ),
        (
            "workflow: [{step: a, loop: {in: [1], mode: parallel}}]",
            false,
        ),
        (
            "workflow: [{step: a, loop: {in: [1], spec: {max_in_flight: 0}}}]",
            false,
        ),
        ("workflow: [{step: a, tool: {kind: noop}}]", true),
        (
            "workflow: [{step: a, tool: [{kind: noop}, x: {kind: noop}]}]",
            true,
        ),
        ("workflow: [{step: a, tool: {kind: nope}}]", false),
        ("workflow: [{step: a, tool: []}]", false),
        (
            "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {do: hop}}]}}}}]",
            false,
        ),
        (
            "workflow: [{step: a, tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: fail}}}]}}}}]",
            true,
        ),
        (
            "workflow: [{step: a, spec: {policy: {admit: {rules: [{else: {allow: true}}]}}}}]",
            true,
        ),
        (
            "workflow: [{step: a, spec: {policy: {admit: {rules: [], on: x}}}}]",
            false,
        ),
        ("workflow: [{step: a, join: some}]", false),
        ("extra: 1\nworkflow: [{step: a}]", true),
    ];
    for (body, good) in cases {
        let json = crate::node(&text(body)).to_json();
        assert_eq!(validator.is_valid(&json), good, "schema: {body}");
        assert_eq!(loaded(body).plan.is_some(), good, "reader: {body}");
    }
}

#[test]
fn a_file_with_any_line_missing_or_broken_is_read_without_a_panic() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/playbook");
    for entry in std::fs::read_dir(place)
        .expect("there are examples")
        .flatten()
    {
        let text = std::fs::read_to_string(entry.path()).expect("UTF-8");
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            for instead in [None, Some("  x: [1]"), Some("- 5"), Some("    step:")] {
                let mut changed: Vec<&str> = lines.clone();
                changed.remove(at);
                if let Some(line) = instead {
                    changed.insert(at, line);
                }
                let source = crate::source(&changed.join("\n"));
                let loaded = load(&source);
                let failed = loaded
                    .problems
                    .iter()
                    .any(|it| it.severity == stepwell_dialects::Severity::Error);
                assert_eq!(loaded.plan.is_none(), failed, "{}", source.text());
            }
        }
    }
}

#[test]
fn many_unused_keys_are_still_only_warnings() {
    let extra: String = (0..300).map(|at| format!("zzz{at}: 1\n")).collect();
    assert!(
        loaded(&format!("{extra}workflow: [{{step: a}}]"))
            .plan
            .is_some()
    );
}
