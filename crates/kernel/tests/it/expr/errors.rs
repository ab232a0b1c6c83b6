//! What is refused, and that the refusal says what and where.

use serde_json::json;
use stepwell_kernel::expr::{Template, TemplateErrorKind, TemplateValue};

use super::error;

#[test]
fn unavailable_statements_are_named() {
    for source in [
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{% macro f() %}{% endmacro %}",
        "{% set x %}a{% endset %}",
        "{% for x in y recursive %}{% endfor %}",
        "{% block a %}{% endblock %}",
    ] {
        let error = error(source);
        assert_eq!(error.kind, TemplateErrorKind::Syntax);
        assert!(error.message.contains("not available"), "{error}");
    }
    error("{{ debug() }}");
    error("{{ lipsum() }}");
    error("{{ '%1000000000s' | format(1) }}");
}

#[test]
fn unknown_filters_are_found_when_parsing() {
    let error = Template::parse("{{ a if b else c | tojsn }}").unwrap_err();
    assert_eq!(error.kind, TemplateErrorKind::Syntax);
    assert_eq!(error.range, Some(19..24));
    Template::parse("{{ a is nonsense }}").unwrap_err();
}

#[test]
fn errors_point_into_the_source() {
    let error = error("line one\n{{ 1 ~ 2 }} {{ ctx.text > 5 }}");
    assert_eq!(error.line, Some(2));
    let range = error.range.clone().unwrap();
    let source = "line one\n{{ 1 ~ 2 }} {{ ctx.text > 5 }}";
    assert!(source[range.clone()].contains('5'), "{range:?}");
    expect_test::expect!["template `line one {{ 1 ~ 2 }} {{ ctx.text > 5 }}` mixes kinds of values: cannot order a Text and a Number; convert one with `| int`, `| float` or `| string` (line 2)"]
        .assert_eq(&error.to_string());
    let error = super::error(&format!("{{{{ a +/ {} }}}}", "b".repeat(300)));
    assert!(error.to_string().chars().count() < 250, "{error}");
}

#[test]
fn a_bad_template_in_a_value_is_pointed_at() {
    let error = TemplateValue::parse(&json!({"a/b": [0, "{{ 1 + }}"]})).unwrap_err();
    assert_eq!(error.pointer, "/a~1b/1");
}
