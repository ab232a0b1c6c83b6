//! Reading fields and reporting what is wrong with them.

use expect_test::expect;
use serde_json::json;
use stepwell_dialects::duration::DurationRule;
use stepwell_dialects::problem::render;
use stepwell_dialects::reader::check_name;
use stepwell_dialects::{Field, Fields, Problems};

use crate::{node, source};

/// Reads one field `v` and gives the result and the codes of the problems.
fn read<T>(
    value: &str,
    read: impl Fn(&Field<'_>, &mut Problems) -> Option<T>,
) -> (Option<T>, Vec<&'static str>) {
    let node = node(&format!("v: {value}"));
    let mut p = Problems::new();
    let mut fields = Fields::open(&node, "the test", &mut p).unwrap();
    let result = fields.req("v", &mut p).and_then(|v| read(&v, &mut p));
    fields.finish(&mut p);
    let codes = p.into_vec().iter().map(|problem| problem.code).collect();
    (result, codes)
}

#[test]
fn every_problem_of_a_mapping_is_reported_at_once() {
    let text = "nmae: x\nretries: many\non_error: stpo\ntimeout: 5\ntimeoutMs: 6\nzzz: 1\n";
    let (source, node) = (source(text), node(text));
    let mut p = Problems::new();
    let mut f = Fields::open(&node, "a step", &mut p).unwrap();
    f.req("name", &mut p).and_then(|v| v.string(&mut p));
    f.opt("retries", &mut p).and_then(|v| v.int(0..=10, &mut p));
    f.opt("on_error", &mut p)
        .and_then(|v| v.one_of(&["stop", "continue"], &mut p));
    f.opt(["timeout", "timeoutMs"], &mut p)
        .and_then(|v| v.duration(DurationRule::TEXT, &mut p));
    f.finish(&mut p);
    expect![[r#"
        error[FIELD_UNKNOWN]: a step has no field `nmae`
         --> t.yaml:1:1
          |
        1 | nmae: x
          | ^^^^
          |
          = help: did you mean `name`?

        error[FIELD_TYPE]: `retries` must be a whole number, but is the text `many`
         --> t.yaml:2:10
          |
        2 | retries: many
          |          ^^^^

        error[FIELD_VALUE]: `on_error` must be `stop` or `continue`, but is `stpo`
         --> t.yaml:3:11
          |
        3 | on_error: stpo
          |           ^^^^
          |
          = help: did you mean `stop`?

        error[FIELD_DURATION]: `timeout` needs a unit
         --> t.yaml:4:10
          |
        4 | timeout: 5
          |          ^
          |
          = help: write a number with a unit, such as "500ms", "30s", "5m" or "1h30m"

        error[FIELD_CONFLICT]: `timeout` and `timeoutMs` mean the same; only one may be given
         --> t.yaml:5:1
          |
        5 | timeoutMs: 6
          | ^^^^^^^^^
          |
          = help: keep `timeout`

        error[FIELD_UNKNOWN]: a step has no field `zzz`
         --> t.yaml:6:1
          |
        6 | zzz: 1
          | ^^^
          |
          = help: the known fields are `name`, `on_error`, `retries`, `timeout`, `timeoutMs`
    "#]]
    .assert_eq(&render(&source, &p.into_vec(), false));
}

#[test]
fn a_misspelt_required_field_is_one_mistake() {
    let node = node("nam: a\ninner: {kind: x}\n");
    let mut p = Problems::new();
    let mut f = Fields::open(&node, "a step", &mut p).unwrap();
    assert!(f.req("name", &mut p).is_none());
    assert!(f.req("kind", &mut p).is_none());
    let mut inner = f.req("inner", &mut p).unwrap().fields(&mut p).unwrap();
    inner.req("kind", &mut p).unwrap();
    assert!(inner.req("name", &mut p).is_none());
    inner.finish(&mut p);
    f.finish(&mut p);
    let messages: Vec<_> = p.into_vec().into_iter().map(|it| it.message).collect();
    assert_eq!(
        messages,
        [
            "a step has no field `nam`",
            "a step needs `kind`",
            "`inner` needs `name`"
        ]
    );
}

#[test]
fn the_code_for_unknown_keys_can_be_chosen() {
    let node = node("a: 1");
    let mut p = Problems::new();
    let fields = Fields::open(&node, "a step", &mut p).unwrap();
    fields.finish_as("INVALID_STEP_SCHEMA", &mut p);
    assert_eq!(p.into_vec()[0].code, "INVALID_STEP_SCHEMA");
}

#[test]
fn something_else_than_a_mapping_is_a_type_error() {
    let node = node("[1]");
    let mut p = Problems::new();
    assert!(Fields::open(&node, "a step", &mut p).is_none());
    let problem = &p.into_vec()[0];
    assert_eq!(problem.code, "FIELD_TYPE");
    assert_eq!(problem.message, "a step must be a mapping, but is a list");
}

#[test]
fn null_is_absent_for_optional_and_missing_for_required_fields() {
    let node = node("a: ~\nb:\n");
    let mut p = Problems::new();
    let mut f = Fields::open(&node, "it", &mut p).unwrap();
    assert!(f.opt(["a", "b"], &mut p).is_none() && !f.has("a"));
    assert!(p.is_empty());
    assert!(f.req("b", &mut p).is_none());
    f.finish(&mut p);
    let problems = p.into_vec();
    assert_eq!(problems[0].code, "FIELD_MISSING");
    assert_eq!(problems[0].message, "`b` of it has no value");
}

#[test]
fn fields_can_be_ignored_located_and_left_over() {
    let node = node("known: 1\nother: 2\n");
    let mut p = Problems::new();
    let mut f = Fields::open(&node, "it", &mut p).unwrap();
    f.ignore("known");
    let rest: Vec<_> = f.rest().map(|entry| entry.key.as_str()).collect();
    assert_eq!(rest, ["other"]);
    assert_eq!(f.span_of("other").start, 16);
    assert_eq!(f.key_span_of("other").start, 9);
    assert_eq!(f.span_of("missing"), f.span());
}

#[test]
fn texts_numbers_and_truth_values_are_not_mixed_up() {
    let string = |v: &Field<'_>, p: &mut Problems| v.string(p).map(str::to_owned);
    assert_eq!(read("hi", string), (Some("hi".to_owned()), vec![]));
    assert_eq!(read("1.0", string), (None, vec!["FIELD_TYPE"]));
    assert_eq!(read("' '", string), (None, vec!["FIELD_VALUE"]));
    assert_eq!(read("true", |v, p| v.bool(p)), (Some(true), vec![]));
    assert_eq!(read("yes", |v, p| v.bool(p)), (None, vec!["FIELD_TYPE"]));
    assert_eq!(read("2.0", |v, p| v.int(0..=5, p)), (Some(2), vec![]));
    assert_eq!(
        read("2.5", |v, p| v.int(0..=5, p)),
        (None, vec!["FIELD_TYPE"])
    );
    assert_eq!(
        read("6", |v, p| v.int(0..=5, p)),
        (None, vec!["FIELD_VALUE"])
    );
    assert_eq!(read("6", |v, p| v.number(p)), (Some(6.0), vec![]));
    assert_eq!(
        read("1.5", |v, p| v.scalar_text(p)),
        (Some("1.5".to_owned()), vec![])
    );
}

#[test]
fn lists_name_their_bad_items() {
    let node = node("needs: [a, 2, '']");
    let mut p = Problems::new();
    let mut f = Fields::open(&node, "it", &mut p).unwrap();
    let needs = f.opt("needs", &mut p).and_then(|v| v.strings(&mut p));
    assert_eq!(needs, Some(vec!["a"]));
    let messages: Vec<_> = p.into_vec().into_iter().map(|it| it.message).collect();
    assert_eq!(
        messages,
        [
            "`needs[1]` must be text, but is the number 2",
            "`needs[2]` must not be empty"
        ]
    );
    assert_eq!(
        read("x", |v, p| v.list(p).map(|l| l.len())),
        (None, vec!["FIELD_TYPE"])
    );
    assert_eq!(
        read("x", |v, _| Some(v.list_or_one().len())),
        (Some(1), vec![])
    );
}

#[test]
fn nested_mappings_and_raw_json_are_reachable() {
    let (result, codes) = read("{a: {b: [1]}, c: 2}", |v, p| {
        let mut f = v.fields(p)?;
        let json = f.req("a", p).map(|a| a.json());
        f.finish(p);
        json
    });
    assert_eq!(result, Some(json!({"b": [1]})));
    assert_eq!(codes, ["FIELD_UNKNOWN"]);
    assert_eq!(
        read("{x: 1}", |v, p| v.map(p).map(|m| m.len())),
        (Some(1), vec![])
    );
}

#[test]
fn durations_are_read_in_all_their_forms() {
    let millis = |value: &str| read(value, |v, p| v.duration(DurationRule::MILLIS, p));
    for (text, expected) in [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5s", 1_500),
        ("PT5M", 300_000),
        ("P1DT1H", 90_000_000),
        ("P1W", 604_800_000),
        ("PT0.25S", 250),
        ("250", 250),
        ("366d", 31_622_400_000),
    ] {
        assert_eq!(millis(text), (Some(expected), vec![]), "{text}");
    }
    let seconds = |value: &str| read(value, |v, p| v.duration(DurationRule::SECONDS, p));
    assert_eq!(seconds("0.5"), (Some(500), vec![]));
    assert_eq!(seconds("90"), (Some(90_000), vec![]));
    let zero = |value: &str| read(value, |v, p| v.duration(DurationRule::TEXT.or_zero(), p));
    assert_eq!(zero("0s"), (Some(0), vec![]));
    assert_eq!(zero("5"), (None, vec!["FIELD_DURATION"]));
}

#[test]
fn what_is_no_duration_is_refused() {
    for text in [
        "0",
        "-5",
        "-5s",
        "367d",
        "'30'",
        "soon",
        "5 minutes",
        "1m1h",
        "1s1s",
        "P",
        "PT",
        "P1M",
        "P1Y",
        "PT1S1M",
        "1.s",
        ".5s",
        "1..5s",
        "''",
        "[1]",
        "true",
        "1e300",
        "0.1",
        "99999999999999999999d",
    ] {
        let (result, codes) = read(text, |v, p| v.duration(DurationRule::MILLIS, p));
        assert_eq!((result, codes), (None, vec!["FIELD_DURATION"]), "{text}");
    }
}

#[test]
fn names_say_what_to_write_instead() {
    let long = "n".repeat(201);
    let text = format!("['a|b', 'x[0]', ' a', '', \"a\\tb\", {long}, 5, ok-name, 'two words']");
    let node = node(&text);
    let mut p = Problems::new();
    let good: Vec<_> = node
        .as_seq()
        .unwrap()
        .iter()
        .filter_map(|name| check_name(name, &mut p))
        .collect();
    assert_eq!(good, ["ok-name", "two words"]);
    let lines: Vec<String> = p
        .into_vec()
        .into_iter()
        .map(|it| {
            format!(
                "{}: {} ({})",
                it.code,
                it.message,
                it.help.unwrap_or_default()
            )
        })
        .collect();
    expect![[r#"
        NAME_INVALID: the name `a|b` holds `|` (write a name such as `a-b`)
        NAME_INVALID: the name `x[0]` holds `[` (write a name such as `x-0`)
        NAME_INVALID: the name ` a` begins or ends with a space (write a name such as `a`)
        NAME_INVALID: the name `` is empty (write a name such as `build-image`)
        NAME_INVALID: the name `a\tb` holds `\t` (write a name such as `a-b`)
        NAME_INVALID: the name `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…` is longer than 200 characters (write a name such as `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…`)
        FIELD_TYPE: a name must be text, but is the number 5 (put it in quotes)"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_mapping_in_the_place_of_a_list_is_told_the_dash() {
    let node = node("steps: {name: a}");
    let mut p = Problems::new();
    let mut f = Fields::open(&node, "it", &mut p).unwrap();
    assert!(f.req("steps", &mut p).unwrap().list(&mut p).is_none());
    let help = p.into_vec()[0].help.clone();
    assert_eq!(help.as_deref(), Some("begin each entry with `- `"));
}
