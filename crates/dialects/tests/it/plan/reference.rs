//! References to plans: nothing is fetched from elsewhere, and nothing else is taken for the plan.

use stepwell_dialects::Source;
use stepwell_dialects::plan::reference::{PlanRef, check_allowed};

const ALLOW: [&str; 3] = [
    "s3://plans/",
    "https://plans.example.com",
    "file:///srv/plans/",
];

fn reference() -> PlanRef {
    PlanRef {
        uri: "s3://plans/p.json".to_owned(),
        // Of the three bytes `abc`.
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".to_owned(),
        schema_version: "v1.2".to_owned(),
        plan_id: "p".to_owned(),
        plan_version: "1".to_owned(),
    }
}

#[test]
fn only_listed_places_are_allowed() {
    for good in [
        "s3://plans/p.json",
        "https://plans.example.com/a/b.json",
        "https://plans.example.com",
        "file:///srv/plans/x.yaml",
    ] {
        assert!(check_allowed(good, &ALLOW).is_ok(), "{good}");
    }
    for bad in [
        "s3://plans-of-others/p.json",
        "https://plans.example.com.evil.org/p.json",
        "https://plans.example.com@evil.org/p.json",
        "http://plans.example.com/p.json",
        "file:///srv/plans/../secrets",
        "file:///srv/plans/%2e%2E/secrets",
        "file:///srv/plans/..%2fsecrets",
        "s3://plans/a\nb",
        "s3://plans/a\\..\\b",
        "/srv/plans/x.yaml",
        "",
    ] {
        let problem = check_allowed(bad, &ALLOW).unwrap_err();
        assert_eq!(problem.code, "PLAN_URI_NOT_ALLOWED", "{bad}");
    }
}

#[test]
fn without_a_list_nothing_is_allowed_and_a_bare_scheme_allows_nothing() {
    assert!(check_allowed("s3://plans/p.json", &[] as &[&str]).is_err());
    for entry in ["", "s3://", "s3", "s3:", "/"] {
        assert!(
            check_allowed("s3://plans/p.json", &[entry]).is_err(),
            "{entry}"
        );
    }
}

#[test]
fn the_hash_is_over_the_raw_bytes() {
    let hash = |bytes: &[u8]| Source::from_bytes("p", bytes).unwrap().sha256();
    assert!(reference().has_hash(&hash(b"abc")));
    assert!(reference().has_hash(&hash(b"abc").to_uppercase()));
    for other in [&b"abc\n"[..], b"", b"\xef\xbb\xbfabc"] {
        assert!(!reference().has_hash(&hash(other)));
    }
}

#[test]
fn the_plan_of_a_definition_that_is_not_trusted_says_what_the_reference_says() {
    let plan = reference().without_definition().unwrap();
    assert!(reference().check_net(plan.net()).is_ok());
    assert_eq!(plan.net().source.uri, "s3://plans/p.json");
    assert_eq!(plan.net().source.sha256, reference().sha256);
}

#[test]
fn a_reference_is_checked_before_anything_is_fetched() {
    assert!(reference().check(&ALLOW).is_ok());
    let bad = PlanRef {
        uri: "https://evil.org/p".to_owned(),
        sha256: "abc".to_owned(),
        schema_version: "v2".to_owned(),
        plan_id: "a|b".to_owned(),
        plan_version: String::new(),
    };
    let mut codes: Vec<_> = bad
        .check(&ALLOW)
        .unwrap_err()
        .iter()
        .map(|it| it.code)
        .collect();
    codes.dedup();
    assert_eq!(
        codes,
        [
            "PLAN_REF_MISMATCH",
            "PLAN_SCHEMA_VERSION_UNKNOWN",
            "PLAN_URI_NOT_ALLOWED"
        ]
    );
}

#[test]
fn id_and_version_must_be_those_of_the_plan() {
    let plan = super::plan("- {stepId: s}\n");
    assert!(reference().check_net(plan.net()).is_ok());
    let other = PlanRef {
        plan_id: "q".to_owned(),
        plan_version: "2".to_owned(),
        schema_version: "v1.3".to_owned(),
        ..reference()
    };
    assert_eq!(other.check_net(plan.net()).unwrap_err().len(), 3);
}

#[test]
fn a_reference_is_read_as_the_contract_writes_it() {
    let json = r#"{"uri": "s3://plans/p.json", "sha256": "00", "schemaVersion": "v1.2", "planId": "p", "planVersion": "1"}"#;
    let read: PlanRef = serde_json::from_str(json).unwrap();
    assert_eq!(
        (read.plan_id.as_str(), read.schema_version.as_str()),
        ("p", "v1.2")
    );
}
