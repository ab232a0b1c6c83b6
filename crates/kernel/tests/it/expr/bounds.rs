//! That time, memory and stack are bounded whatever a template says.

use serde_json::json;
use stepwell_kernel::expr::{MAX_OUTPUT, Template, TemplateErrorKind};

use super::{all, error, eval, scope};

#[test]
fn endless_work_is_stopped() {
    let kind = |s: &str| error(s).kind;
    assert_eq!(
        kind("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
        TemplateErrorKind::Fuel
    );
    assert_eq!(kind("{{ range(10**9) }}"), TemplateErrorKind::TooLarge);
    assert_eq!(kind("{{ 'a' * 10**9 }}"), TemplateErrorKind::Type);
    assert_eq!(kind("{{ 1000000000 * 'a' }}"), TemplateErrorKind::Type);
    assert_eq!(kind("{{ [1] * 100000000 }}"), TemplateErrorKind::Type);
    assert_eq!(
        kind("{% for i in range(9999) %}{{ long }}{% endfor %}"),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        kind(&format!(
            "{{% for i in range(9999) %}}{}{{% endfor %}}",
            "x".repeat(60_000)
        )),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        kind(&format!(
            "{{% set a = long %}}{}{{{{ a | length }}}}",
            "{% set a = a ~ a %}".repeat(100)
        )),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        kind(&format!(
            "{{% set a = [1, 2] %}}{}{{{{ a | length }}}}",
            "{% set a = a + a %}".repeat(100)
        )),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        kind(&format!(
            "{{% set a = long %}}{}",
            "{% set a = a | replace('x', a) %}".repeat(9)
        )),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        kind(&format!("{{{{ [{}] | length }}}}", "long[:],".repeat(2000))),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        kind(&format!(
            "{{% set a = [1] %}}{}{{{{ a }}}}",
            "{% set a = [a, a] %}".repeat(60)
        )),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        kind(&format!("{{{{ '{}' }}}}", "x".repeat(70_000))),
        TemplateErrorKind::TooLarge
    );
    assert_eq!(
        eval(&format!("{{{{ [{}] | length }}}}", "long,".repeat(9000))),
        json!(9000)
    );
}

#[test]
fn rendered_text_may_be_as_long_as_any_result() {
    for source in [
        "{{ text }}.",
        "{% for c in [text, '.'] %}{{ c }}{% endfor %}",
    ] {
        let template = Template::parse(source).unwrap();
        for length in [0, 1, 4095, 4096, 4097, 100_000, MAX_OUTPUT - 1] {
            let text = "é".repeat(length / 2) + &"x".repeat(length % 2);
            let rendered = template.evaluate(&scope(json!({"text": text}))).unwrap();
            assert_eq!(rendered, json!(text + "."), "{source} with {length} bytes");
        }
        let long = json!({"text": "x".repeat(MAX_OUTPUT)});
        let error = template.evaluate(&scope(long)).unwrap_err();
        assert_eq!(error.kind, TemplateErrorKind::TooLarge);
        assert_eq!(error.message, "the result is over 1024 KiB");
    }
}

#[test]
fn deep_sources_are_errors() {
    for source in [
        format!("{{{{ {}", "(".repeat(10_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(10_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(10_000)),
        format!("{{{{ a{} }}}}", ".a".repeat(10_000)),
        format!("{{{{ a{} }}}}", "[0]".repeat(10_000)),
        format!("{{{{ a{} }}}}", "()".repeat(10_000)),
        format!("{{{{ a{} }}}}", "|int".repeat(10_000)),
        format!("{{{{ a{} }}}}", " is none".repeat(5_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(10_000)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(4_000)),
        format!(
            "{}{}",
            "{% if a %}".repeat(3_000),
            "{% endif %}".repeat(3_000)
        ),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(3_000)),
        "{% for a in b %}".repeat(3_000),
    ] {
        assert_eq!(
            Template::parse(&source).unwrap_err().kind,
            TemplateErrorKind::Syntax,
            "{}",
            &source[..20]
        );
    }
    // As much as is let through must fit the smallest stack a test thread gets.
    for source in [
        format!("{{{{ {}1{} }}}}", "(".repeat(46), ")".repeat(46)),
        format!("{{{{ 1{} }}}}", "+1".repeat(150)),
        format!("{{{{ 1{} }}}}", "~1".repeat(150)),
        format!("{{{{ {}1 }}}}", "not ".repeat(150)),
        format!("{{{{ 1{} }}}}", " or 1".repeat(150)),
        format!("{}x{}", "{% if 1 %}".repeat(30), "{% endif %}".repeat(30)),
    ] {
        eval(&source);
    }
}

#[test]
fn what_is_kept_stays_shallow() {
    let grow = |what: &str, then: &str| {
        format!(
            "{{% set ns = namespace(a=[[1]]) %}}{{% for i in range(9000) %}}\
             {{% set ns.a = {what} %}}{{% endfor %}}{then}"
        )
    };
    for what in [
        "[ns.a]",
        "[ns.a, ns.a]",
        "(ns.a, ns.a)",
        "ns.a, 1",
        "{'a': ns.a}",
        "dict(a=ns.a)",
        "ns.a | batch(1) | list",
        "ns.a + ns.a",
        "[ns.a | first] + ns.a",
    ] {
        let error = error(&grow(what, ""));
        assert_eq!(error.kind, TemplateErrorKind::TooLarge, "{what}: {error}");
    }
    assert_eq!(error(&grow("ns", "")).kind, TemplateErrorKind::Type);
    assert_eq!(error(&grow("[ns]", "")).kind, TemplateErrorKind::Type);
    for what in ["ns.a[0:]", "[ns.a[0][0:]]", "ns.a | reverse", "[ns.a[0]]"] {
        eval(&grow(what, "x"));
    }
    let views = "{% set n = namespace(a=n.a[0:]) %}".repeat(1500);
    assert_eq!(
        error(&format!("{{% set n = {{'a': [1]}} %}}{views}")).kind,
        TemplateErrorKind::Type
    );
    all(&[
        ("{% set a, b = 1, 2 %}{{ a + b }}", json!("3")),
        ("{% set a = ctx.items[1:] %}{{ a }}", json!("[2,3]")),
        (
            "{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l | length }}",
            json!("500"),
        ),
    ]);
}

#[test]
fn slices_never_panic() {
    error("{{ ''[::-1] }}");
    error("{{ 'abc'[0:2:-1] }}");
    eval("{{ 'abc'[5:2] ~ ''[1:] ~ 'abc'[-9:9] }}");
}
