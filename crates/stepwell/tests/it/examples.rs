//! Every example checks clean, draws, and runs to success.

use std::path::Path;

use super::{mock, root, stepwell};

/// What an example needs from outside to come to its end.
const NEEDS: &[(&str, &[&str])] = &[
    ("release-gate", &["--patch", "approved=true"]),
    ("order", &["-i", "orderId=7"]),
    ("payment", &["-i", "paymentId=p-1"]),
];

fn examples() -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("examples")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_definition = |end: &str| path.extension().is_some_and(|it| it == end);
            if path.is_dir() {
                folders.push(path);
            } else if ["yaml", "yml", "json"].into_iter().any(is_definition) {
                let path = path.strip_prefix(root()).unwrap().to_str().unwrap();
                files.push(path.to_owned());
            }
        }
    }
    files.sort();
    assert!(!files.is_empty());
    files
}

fn needs(file: &str) -> Vec<&'static str> {
    let stem = Path::new(file).file_stem().unwrap().to_str().unwrap();
    let mut args = vec!["--approve"];
    let extra = NEEDS.iter().find(|(name, _)| *name == stem);
    args.extend(extra.map_or(&[][..], |(_, extra)| *extra));
    args
}

#[test]
fn every_example_checks_clean() {
    let files = examples();
    let mut args = vec!["check", "--deny-warnings", "-o", "json"];
    args.extend(files.iter().map(String::as_str));
    let call = stepwell(&args);
    assert_eq!(call.code, 0, "{}", call.out);
    assert_eq!(call.json()["files"].as_array().unwrap().len(), files.len());
}

#[test]
fn every_example_runs_to_success() {
    for file in examples() {
        let call = mock(&file, &[&needs(&file)[..], &["-o", "json"]].concat());
        assert_eq!(call.code, 0, "{file}: {}{}", call.out, call.err);
        assert_eq!(call.json()["status"], "COMPLETED", "{file}");
    }
}

#[test]
fn every_example_prints_the_same_twice() {
    for file in examples() {
        let once = mock(&file, &[&needs(&file)[..], &["--events"]].concat());
        let twice = mock(&file, &[&needs(&file)[..], &["--events"]].concat());
        assert_eq!(once.out, twice.out, "{file}");
    }
}

#[test]
fn every_example_has_a_log_without_gaps() {
    for file in examples() {
        let call = mock(&file, &[&needs(&file)[..], &["--events"]].concat());
        let mut next = std::collections::HashMap::<String, u64>::new();
        for line in call.out.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let run = event["runId"].as_str().unwrap().to_owned();
            let seq = event["runSeq"].as_u64().or(event["seq"].as_u64()).unwrap();
            let last = next.entry(run).or_default();
            assert_eq!(seq, *last + 1, "{file}: {line}");
            *last = seq;
        }
    }
}

#[test]
fn every_event_of_every_example_fits_its_published_schema() {
    let schema = |name: &str| {
        let text = stepwell(&["schema", name]).out;
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    };
    let mut schemas = std::collections::HashMap::new();
    let ext = schema("events/ext");
    for file in examples() {
        let call = mock(&file, &[&needs(&file)[..], &["--events"]].concat());
        for line in call.out.lines() {
            let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = event.as_object_mut().unwrap();
            let body = fields.remove("ext").unwrap();
            fields.remove("prevHash").unwrap();
            fields.remove("hash").unwrap();
            assert!(ext.is_valid(&body), "{file}: {body}");
            let kind = event["eventType"].as_str().unwrap().to_owned();
            let validator = schemas
                .entry(kind.clone())
                .or_insert_with(|| schema(&format!("events/{kind}")));
            assert!(validator.is_valid(&event), "{file}: {event}");
        }
    }
    let snapshot = schema("snapshot/RunSnapshot");
    let mut run = mock(&examples()[0], &["--approve", "-o", "json"]).json();
    run.as_object_mut().unwrap().remove("ext").unwrap();
    assert!(snapshot.is_valid(&run), "{run}");
}

#[test]
fn every_example_can_be_drawn() {
    for file in examples() {
        for how in [&["--dot"][..], &["--mermaid"], &["-o", "json"], &[]] {
            let call = stepwell(&[&["plan", &file], how].concat());
            assert_eq!(call.code, 0, "{file}: {}", call.err);
            assert!(!call.out.is_empty(), "{file} {how:?}");
        }
    }
}
