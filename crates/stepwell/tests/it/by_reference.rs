//! The engine in a program: runs that are started by reference.

use std::path::Path;

use serde_json::json;
use stepwell::files::{Definition, PlanRef};
use stepwell::{Error, StartOptions, Stepwell};

use crate::scratch;

const PLAN: &str = r#"{"metadata": {"planId": "p", "planVersion": "1", "schemaVersion": "v1.2"},
  "steps": [{"stepId": "one", "tool": {"kind": "noop"}}]}"#;

fn reference(folder: &Path) -> PlanRef {
    PlanRef {
        uri: format!("file://{}/plan.json", folder.display()),
        sha256: Definition::from_text("plan.json", PLAN).sha256().unwrap(),
        schema_version: "v1.2".to_owned(),
        plan_id: "p".to_owned(),
        plan_version: "1".to_owned(),
    }
}

#[test]
fn a_program_starts_a_run_by_reference_only_if_the_definition_is_the_one_referred_to() {
    let plan = scratch("by_reference/plan.json", PLAN.as_bytes());
    let folder = Path::new(&plan).parent().unwrap();
    let allow = format!("[plans]\nallow = ['file://{}/']", folder.display());
    let config = scratch("by_reference/stepwell.toml", allow.as_bytes());
    let stepwell = Stepwell::at("memory:").config(&config).open().unwrap();
    let reference = reference(folder);
    let start = |reference: &PlanRef| {
        let options = StartOptions::default();
        stepwell.start_by_reference(reference, &options, json!({}))
    };
    start(&reference).unwrap().wait().unwrap();

    // One byte more.
    std::fs::write(&plan, format!("{PLAN} ")).unwrap();
    let failed = start(&reference).unwrap().wait().unwrap_err();
    let Error::Run(failure) = failed else {
        panic!("{failed}");
    };
    let code = failure.ended.error.as_ref().unwrap().code.as_str();
    assert_eq!(code, "PLAN_INTEGRITY_VALIDATION_FAILED");

    let refused = |reference: &PlanRef| match start(reference).map(|run| run.id().to_owned()) {
        Err(Error::Definition(error)) => error.problems()[0].code,
        other => panic!("{other:?}"),
    };
    std::fs::write(&plan, " ".repeat((4 << 20) + 1)).unwrap();
    assert_eq!(refused(&reference), "SOURCE_TOO_LARGE");
    std::fs::remove_file(&plan).unwrap();
    assert_eq!(refused(&reference), "PLAN_NOT_FOUND");
    let elsewhere = PlanRef {
        uri: "file:///elsewhere/plan.json".to_owned(),
        ..reference
    };
    assert_eq!(refused(&elsewhere), "PLAN_URI_NOT_ALLOWED");
    stepwell.stop().unwrap();
}
