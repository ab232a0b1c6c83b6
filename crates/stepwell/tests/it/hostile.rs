//! Whatever is at the path: an answer, never a panic.

use super::{scratch, stepwell};

/// Checks a file that cannot be good and returns the codes of its problems.
fn codes(path: &str) -> Vec<String> {
    let call = stepwell(&["check", path, "-o", "json"]);
    assert_eq!(call.code, 1, "{}{}", call.out, call.err);
    assert!(call.err.is_empty(), "{}", call.err);
    let json = call.json();
    let problems = json["files"][0]["problems"].as_array().unwrap().clone();
    let code = |problem: &serde_json::Value| problem["code"].as_str().unwrap().to_owned();
    problems.iter().map(code).collect()
}

#[test]
fn unreadable_things_are_problems() {
    assert_eq!(codes("/nonexistent/file.yaml"), ["SOURCE_UNREADABLE"]);
    assert_eq!(codes("crates"), ["SOURCE_UNREADABLE"]);
    assert_eq!(codes(&scratch("empty.yaml", b"")), ["SOURCE_EMPTY"]);
    assert_eq!(
        codes(&scratch("comment.yaml", b"# none\n")),
        ["SOURCE_EMPTY"]
    );
    let binary: Vec<u8> = (0..=255).collect();
    assert_eq!(codes(&scratch("binary.yaml", &binary)), ["SOURCE_NOT_UTF8"]);
}

#[test]
fn deep_and_huge_things_are_problems() {
    let deep = "[".repeat(10_000);
    assert_eq!(
        codes(&scratch("deep.yaml", deep.as_bytes())),
        ["SOURCE_TOO_DEEP"]
    );
    let huge = vec![b'a'; 5 * 1024 * 1024];
    assert_eq!(codes(&scratch("huge.yaml", &huge)), ["SOURCE_TOO_LARGE"]);
}

#[test]
fn a_device_is_not_read_and_an_endless_input_no_further_than_needed() {
    assert_eq!(codes("/dev/zero"), ["SOURCE_UNREADABLE"]);
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let read = std::process::Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["check", "-o", "json", "-"])
        .stdin(endless)
        .output()
        .unwrap();
    let said = String::from_utf8(read.stdout).unwrap();
    assert!(said.contains("SOURCE_TOO_LARGE"), "{said}");
}

#[test]
fn damaged_examples_never_panic() {
    let path = super::root().join("examples/playbook/nightly-load.yaml");
    let text = std::fs::read(path).unwrap();
    let mut files = Vec::new();
    for (number, cut) in (0..text.len()).step_by(text.len() / 40 + 1).enumerate() {
        let mut damaged = text.clone();
        damaged[cut] = b"{}[]:-\"\0"[number % 8];
        files.push(scratch(&format!("damaged/{number}.yaml"), &damaged));
    }
    let mut args = vec!["check", "-o", "json"];
    args.extend(files.iter().map(String::as_str));
    let call = stepwell(&args);
    assert!(matches!(call.code, 0 | 1), "{}", call.err);
    assert!(call.err.is_empty(), "{}", call.err);
}
