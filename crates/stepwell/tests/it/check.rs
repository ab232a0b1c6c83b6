//! `stepwell check`.

use expect_test::expect;

use super::{scratch, stepwell, stepwell_with};

const BROKEN: &str = "\
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: broken
workflow:
  - step: start
    tool:
      kind: htttp
      url: https://example.test
    next: finsh
  - step: finish
";

#[test]
fn problems_stand_with_their_places() {
    let call = stepwell_with(&["check", "-"], BROKEN.as_bytes());
    assert_eq!(call.code, 1);
    expect![[r#"
        error[TOOL_UNKNOWN]: there is no tool `htttp`
         --> <stdin>:8:13
          |
        8 |       kind: htttp
          |             ^^^^^
          |
          = help: did you mean `http`?

        error[STEP_UNDEFINED]: there is no step `finsh`
          --> <stdin>:10:11
           |
        10 |     next: finsh
           |           ^^^^^
           |
           = help: did you mean `finish`?

        bad   -  playbook  2 errors
    "#]]
    .assert_eq(&call.out);
}

#[test]
fn json_has_every_field() {
    let broken = scratch("json/broken.yaml", BROKEN.as_bytes());
    let call = stepwell(&["check", &broken, "/nonexistent.yaml", "-o", "json"]);
    assert_eq!(call.code, 1);
    let json = call.json();
    let file = &json["files"][0];
    assert_eq!(file["ok"], false);
    assert_eq!(file["dialect"], "playbook");
    assert_eq!(file["sha256"].as_str().unwrap().len(), 64);
    let problem = file["problems"][0].as_object().unwrap();
    let keys: Vec<&str> = problem.keys().map(String::as_str).collect();
    let wanted = "code column endColumn endLine file help line message severity";
    assert_eq!(keys.join(" "), wanted);
    let absent = &json["files"][1];
    assert_eq!(absent["problems"][0]["code"], "SOURCE_UNREADABLE");
    assert_eq!(absent["sha256"], serde_json::Value::Null);
}

#[test]
fn one_line_per_file_at_the_end() {
    let call = stepwell(&["check", "examples/playbook/error-routing.yaml"]);
    assert_eq!(call.code, 0);
    assert_eq!(
        call.out,
        "ok    examples/playbook/error-routing.yaml  playbook  4 steps\n"
    );
}

#[test]
fn wrong_usage_is_two() {
    assert_eq!(stepwell(&["check"]).code, 2);
    assert_eq!(stepwell(&["check", "-o", "xml", "a"]).code, 2);
    assert_eq!(stepwell(&["chekc"]).code, 2);
}
