//! What expressions mean, by example, and that nothing can break them.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn scope(json: Json) -> impl Fn(&str) -> Option<Arc<Json>> {
    move |name| json.get(name).cloned().map(Arc::new)
}

fn world() -> Json {
    json!({
        "ctx": {"page": 2, "items": [1, 2, 3], "name": "Ann", "none": null, "on": true,
                "price": 100.0, "text": "12", "rows": [{"id": 7, "k": "b"}, {"id": 3, "k": "a"}]},
        "event": {"name": "loop.done"},
        "empty": {},
        "quote": "it's <b> & \"q\"",
        "long": "x".repeat(100_000),
    })
}

fn eval(source: &str) -> Json {
    match Template::parse(source).and_then(|t| t.evaluate(&scope(world()))) {
        Ok(json) => json,
        Err(error) => panic!("{error}"),
    }
}

fn error(source: &str) -> TemplateError {
    Template::parse(source)
        .and_then(|t| t.evaluate(&scope(world())))
        .expect_err(source)
}

fn reads(source: &str) -> Vec<String> {
    Template::parse(source)
        .unwrap()
        .reads()
        .iter()
        .cloned()
        .collect()
}

#[track_caller]
fn all(cases: &[(&str, Json)]) {
    for (source, expected) in cases {
        assert_eq!(&eval(source), expected, "{source}");
    }
}

#[test]
fn whole_string_keeps_its_type() {
    all(&[
        ("{{ ctx.page }}", json!(2)),
        (" {{ ctx.page + 1 }}\n", json!(3)),
        ("{{ ctx.price }}", json!(100.0)),
        ("{{ ctx.items }}", json!([1, 2, 3])),
        (
            "{{ [ctx.rows[0], {'a': ctx.on}] }}",
            json!([{"id": 7, "k": "b"}, {"a": true}]),
        ),
        ("{{ 18446744073709551615 }}", json!(18446744073709551615u64)),
        ("{{ -9223372036854775807 }}", json!(-9223372036854775807i64)),
        ("{{ 4 / 2 }}", json!(2.0)),
        ("{{ 7 // 2 }}", json!(3)),
        ("{{- ctx.on -}}", json!(true)),
        ("{{ {'a': {'b': 1}} }}", json!({"a": {"b": 1}})),
        ("no tags", json!("no tags")),
    ]);
}

#[test]
fn whole_string_keeps_null() {
    all(&[
        ("{{ ctx.none }}", json!(null)),
        ("{{ None }}", json!(null)),
        ("{{ nothing }}", json!(null)),
        ("{{ ctx.page if false }}", json!(null)),
    ]);
}

#[test]
fn mixed_text_prints_like_python() {
    all(&[
        ("v={{ ctx.page }}", json!("v=2")),
        (
            "{{ ctx.on }} {{ false }} {{ None }}",
            json!("True False None"),
        ),
        ("{{ ctx.on | lower }};", json!("true;")),
        ("{{ ctx.price }};{{ 1e3 }}", json!("100.0;1000.0")),
        ("[{{ nothing.at.all }}]", json!("[]")),
        ("{{ ctx.items }}!", json!("[1,2,3]!")),
        (
            "{{ 'on: ' ~ ctx.on ~ ctx.items ~ 1 * 2 }}",
            json!("on: True[1,2,3]2"),
        ),
        ("{{ ctx.on | string }}", json!("True")),
    ]);
}

#[test]
fn undefined_chains() {
    all(&[
        ("{{ a.b.c }}", json!(null)),
        ("{{ a['b'].c[0] }}", json!(null)),
        ("{{ a.b.c is defined }}", json!(false)),
        ("{{ a.b == 'x' }}", json!(false)),
        ("{{ 'x' in a.b }}", json!(false)),
        ("{{ 'x' not in a.b }}", json!(true)),
        ("{{ a.b or 'other' }}", json!("other")),
        ("{{ not a.b }}", json!(true)),
        ("{{ a.b | default('d') }}", json!("d")),
        ("{{ a.b.get('x', 1) }}", json!(1)),
        ("{{ a.b | length }}", json!(0)),
        ("{{ a.b | list }}", json!([])),
        ("{{ a.b | int }}", json!(0)),
        ("{{ ctx.none.x }}", json!(null)),
        ("{{ ctx.page.x.y }}", json!(null)),
        ("x{% for i in a.b %}{{ i }}{% endfor %}", json!("x")),
        ("{{ a ~ 'x' }}", json!("x")),
    ]);
}

#[test]
fn undefined_is_no_number() {
    for source in [
        "{{ a + 1 }}",
        "{{ a < 1 }}",
        "{{ 1 >= a.b }}",
        "{{ a * 2 }}",
        "{{ 1 < 2 < a }}",
    ] {
        let error = error(source);
        assert_eq!(
            error.kind,
            TemplateErrorKind::Undefined,
            "{source}: {error}"
        );
    }
}

#[test]
fn ordering_different_kinds_is_an_error() {
    assert_eq!(error("{{ ctx.text > 5 }}").kind, TemplateErrorKind::Type);
    assert_eq!(error("{{ ctx.none > 5 }}").kind, TemplateErrorKind::Type);
    all(&[
        ("{{ ctx.text | int > 5 }}", json!(true)),
        ("{{ ctx.items | length > 5 or ctx.page >= 2 }}", json!(true)),
        ("{{ 1 < ctx.page < 3 }}", json!(true)),
        ("{{ 'a' ~ 1 < 'b' }}", json!(true)),
        ("{{ ctx.page + 1 <= 3 and -1 < 0 }}", json!(true)),
        ("{{ 'a' < 'b' and 1 < 2.5 }}", json!(true)),
        ("{{ [1, 2, 3] | select('gt', 1) | list }}", json!([2, 3])),
    ]);
}

#[test]
fn numbers_convert_like_jinja2() {
    all(&[
        ("{{ ctx.text | int }}", json!(12)),
        ("{{ 'garbage' | int }}", json!(0)),
        ("{{ 'garbage' | int(default=5) }}", json!(5)),
        ("{{ '3.9' | int }}", json!(3)),
        ("{{ 'ff' | int(0, 16) }}", json!(255)),
        ("{{ ' 7 ' | int }}", json!(7)),
        ("{{ true | int }}", json!(1)),
        ("{{ '1.5' | float }}", json!(1.5)),
        ("{{ 'x' | float }}", json!(0.0)),
        ("{{ 2 | float }}", json!(2.0)),
        ("{{ 2.567 | round(2) }}", json!(2.57)),
        ("{{ 2.5 | round | int }}", json!(2)),
        ("{{ 2.1 | round(0, 'ceil') }}", json!(3.0)),
        ("{{ ctx.page | int + 1 }}", json!(3)),
        ("{{ 7 % 3 }}", json!(1)),
        ("{{ 2 ** 10 }}", json!(1024)),
    ]);
}

#[test]
fn numbers_out_of_range_are_errors() {
    for source in [
        "{{ 1e308 * 10 }}",
        "{{ 1e308 * 10 - 1e308 * 10 }}",
        "{{ 2 ** 100 }}",
        "a{{ 1e308 * 10 }}",
    ] {
        let error = error(source);
        assert!(
            error.kind == TemplateErrorKind::Type || source.starts_with('a'),
            "{source}: {error}"
        );
    }
    error("{{ 1 / 0 }}");
    error("{{ 9223372036854775807 ** 9 }}");
}

#[test]
fn filters_real_playbooks_use() {
    all(&[
        ("{{ '' | default('x', true) }}", json!("x")),
        ("{{ '' | d('x') }}", json!("")),
        ("{{ ctx.none | default('x') }}", json!(null)),
        ("{{ 'a-b' | replace('-', '_') | upper }}", json!("A_B")),
        ("{{ ctx.items | length + ctx.items | count }}", json!(6)),
        ("{{ ctx.items | first }}{{ ctx.items | last }}", json!("13")),
        ("{{ ctx.items | join(', ') }}", json!("1, 2, 3")),
        (
            "{{ ctx.rows | map(attribute='id') | join('-') }}",
            json!("7-3"),
        ),
        ("{{ ctx.rows | map(attribute='id') | list }}", json!([7, 3])),
        (
            "{{ ctx.rows | sort(attribute='k') | first }}",
            json!({"id": 3, "k": "a"}),
        ),
        (
            "{{ ctx.rows | selectattr('id', 'equalto', 3) | list | length }}",
            json!(1),
        ),
        ("{{ ctx.items | sum }}", json!(6)),
        ("{{ ctx.items | max - ctx.items | min }}", json!(2)),
        ("{{ [2, 1, 2] | unique | sort }}", json!([1, 2])),
        (
            "{{ [2, 1] | sort(reverse=true) | reverse | list }}",
            json!([1, 2]),
        ),
        ("{{ '  a ' | trim }}", json!("a")),
        ("{{ 'x' | bool }}", json!(true)),
        ("{{ {'a': 1} | items | list }}", json!([["a", 1]])),
        ("{{ 'a b&c' | urlencode }}", json!("a%20b%26c")),
        ("{{ '=' * 3 }}", json!("===")),
        ("{{ ctx.items[1:] }}", json!([2, 3])),
        ("{{ 'abc'[:2] ~ 'abc'[-1] }}", json!("abc")),
        ("{{ ctx.items[-1] }}", json!(3)),
        ("{{ ctx.items + [4] }}", json!([1, 2, 3, 4])),
        ("{{ range(3) | list }}", json!([0, 1, 2])),
        ("{{ range(3, 0, -1) | list }}", json!([3, 2, 1])),
        ("{{ 'a' if ctx.page == 2 else 'b' }}", json!("a")),
        ("{{ 2 in ctx.items and 9 not in ctx.items }}", json!(true)),
        (
            "{{ ctx is mapping and ctx.items is iterable and ctx.none is none }}",
            json!(true),
        ),
        (
            "{{ ctx.items == [1, 2, 3] and empty == {} and ctx.items != [1] }}",
            json!(true),
        ),
        ("{{ True and not False }}", json!(true)),
        ("{{ dict(a=1) }}", json!({"a": 1})),
    ]);
}

#[test]
fn methods_of_text_and_mappings() {
    all(&[
        ("{{ ctx.get('page', 9) + ctx.get('nope', 9) }}", json!(11)),
        ("{{ ctx.get('nope') }}", json!(null)),
        ("{{ event.keys() | list }}", json!(["name"])),
        ("{{ event.values() | list }}", json!(["loop.done"])),
        (
            "{% for k, v in event.items() %}{{ k }}={{ v }}{% endfor %}",
            json!("name=loop.done"),
        ),
        ("{{ event.name.split('.')[1] }}", json!("done")),
        (
            "{{ ' a '.strip() ~ 'B'.lower() ~ 'c'.upper() }}",
            json!("abC"),
        ),
        (
            "{{ event.name.startswith('loop') and event.name.endswith('done') }}",
            json!(true),
        ),
        ("{{ 'a.b'.replace('.', '/') }}", json!("a/b")),
        ("{{ ','.join(['a', 'b']) }}", json!("a,b")),
    ]);
    assert_eq!(
        error("{{ ctx.items.append(1) }}").kind,
        TemplateErrorKind::Type
    );
}

#[test]
fn tojson_is_plain_json() {
    assert_eq!(eval("{{ quote | tojson }}"), json!(r#""it's <b> & \"q\"""#));
    assert_eq!(
        eval("x {{ {'b': 1, 'a': ctx.none} | tojson }}"),
        json!(r#"x {"a":null,"b":1}"#)
    );
    assert_eq!(eval("{{ quote }};"), json!("it's <b> & \"q\";"));
    assert_eq!(eval("{{ [1] | tojson(indent=1) }}"), json!("[\n 1\n]"));
}

#[test]
fn statements_render() {
    all(&[
        (
            "{% if ctx.page > 1 %}a{% elif x %}b{% else %}c{% endif %}",
            json!("a"),
        ),
        (
            "{% for i in ctx.items if i > 1 %}{{ loop.index }}:{{ i }} {% endfor %}",
            json!("1:2 2:3 "),
        ),
        ("{% set n = ctx.page + 1 %}{{ n }}", json!("3")),
        (
            "{% set ns = namespace(t=0) %}{% for i in ctx.items %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}",
            json!("6"),
        ),
        ("{% raw %}{{ x }}{% endraw %}{# c #}", json!("{{ x }}")),
    ]);
}

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
fn reads_are_listed() {
    assert_eq!(reads("{{ ctx.page | int + 1 }}"), ["ctx.page"]);
    assert_eq!(
        reads("{{ event.name == 'x' and workload }}"),
        ["event.name", "workload"]
    );
    assert_eq!(reads("{{ ctx['a'].b[0].c }}"), ["ctx.a.b"]);
    assert_eq!(reads("{{ ctx.get('x') }}{{ f(k=v) }}"), ["ctx", "f", "v"]);
    assert_eq!(
        reads("{% for i in ctx.rows if i.a %}{{ i.b }}{{ loop.index }}{% endfor %}{{ i }}"),
        ["ctx.rows", "i"]
    );
    assert_eq!(reads("{% set x = x.y %}{{ x.z }}"), ["x.y"]);
    assert_eq!(
        reads("{{ a[1:] }}{{ range(3) }}{{ b is not none }}"),
        ["a", "b"]
    );
    assert_eq!(
        reads("{% raw %}{{ a }}{% endraw %}{# {{ b }} #}'{{ 'c' }}"),
        Vec::<String>::new()
    );
    let template = Template::parse("{{ ctx.a ~ event.b }}").unwrap();
    assert!(template.reads_root("event") && template.reads_any_root(&["x", "ctx"]));
    assert!(!template.reads_any_root(&["workload"]));
}

#[test]
fn plain_paths_are_recognised() {
    let path = |s: &str| {
        Template::parse(s)
            .unwrap()
            .as_path()
            .map(<[String]>::to_vec)
    };
    assert_eq!(
        path("{{ ctx.items }}"),
        Some(vec!["ctx".into(), "items".into()])
    );
    assert_eq!(
        path("{{ ctx['items'] }}"),
        Some(vec!["ctx".into(), "items".into()])
    );
    for source in [
        "{{ ctx.items() }}",
        "{{ ctx.a + 1 }}",
        "x{{ ctx }}",
        "{{ true }}",
        "{{ 1 }}",
        "{{ a }}{{ b }}",
    ] {
        assert_eq!(path(source), None, "{source}");
    }
}

#[test]
fn only_names_read_are_looked_up() {
    let seen = Mutex::new(Vec::new());
    let scope = |name: &str| {
        seen.lock().unwrap().push(name.to_owned());
        Some(Arc::new(json!({"b": 1})))
    };
    Template::parse("{{ a.b + a.b + c.b }}")
        .unwrap()
        .evaluate(&scope)
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), ["a", "c"]);
}

#[test]
fn truth_follows_jinja_natively_and_words_in_text() {
    let truthy = |s: &str| Template::parse(s).unwrap().truthy(&scope(world())).unwrap();
    for yes in [
        "{{ ctx.on }}",
        "{{ 'false' }}",
        "{{ ctx.items }}",
        "a{{ 1 }}",
        "yes",
        "{{ ctx.page }}",
        "{{ 0.5 }}",
    ] {
        assert!(truthy(yes), "{yes}");
    }
    for no in [
        "",
        "False",
        " 0 ",
        "NULL",
        "{{ nothing }}",
        "{{ empty }}",
        "{{ '' }}",
        "{{ 0 }}",
        "{% if true %}none{% endif %}",
        "{{ ctx.none }}",
        "{{ [] }}",
    ] {
        assert!(!truthy(no), "{no}");
    }
}

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

#[test]
fn errors_point_into_the_source() {
    let error = error("line one\n{{ 1 ~ 2 }} {{ ctx.text > 5 }}");
    assert_eq!(error.line, Some(2));
    let range = error.range.clone().unwrap();
    let source = "line one\n{{ 1 ~ 2 }} {{ ctx.text > 5 }}";
    assert!(source[range.clone()].contains('5'), "{range:?}");
    expect_test::expect!["template `line one {{ 1 ~ 2 }} {{ ctx.text > 5 }}` mixes kinds of values: cannot order a Text and a Number; convert one with `| int`, `| float` or `| string` (line 2)"]
        .assert_eq(&error.to_string());
    let error = super::tests::error(&format!("{{{{ a +/ {} }}}}", "b".repeat(300)));
    assert!(error.to_string().chars().count() < 250, "{error}");
}

#[test]
fn values_evaluate_at_any_depth() {
    let json = json!({"a": ["{{ ctx.page }}", {"b": "p{{ ctx.page }}", "c": 1}], "s": {"x": [1]}, "n": null});
    let value = TemplateValue::parse(&json).unwrap();
    assert_eq!(
        value.evaluate(&scope(world())).unwrap(),
        json!({"a": [2, {"b": "p2", "c": 1}], "s": {"x": [1]}, "n": null})
    );
    assert!(!value.is_static());
    assert_eq!(value.reads().into_iter().collect::<Vec<_>>(), ["ctx.page"]);
    assert_eq!(serde_json::to_value(&value).unwrap(), json);
    assert_eq!(
        serde_json::from_value::<TemplateValue>(json).unwrap(),
        value
    );
    assert!(
        TemplateValue::parse(&json!({"a": [1, "x"]}))
            .unwrap()
            .is_static()
    );
    let error = TemplateValue::parse(&json!({"a/b": [0, "{{ 1 + }}"]})).unwrap_err();
    assert_eq!(error.pointer, "/a~1b/1");
}

#[test]
fn a_template_is_its_source() {
    let template: Template = serde_json::from_value(json!("{{ a }}")).unwrap();
    assert_eq!(serde_json::to_value(&template).unwrap(), json!("{{ a }}"));
    assert_eq!(template, Template::parse("{{ a }}").unwrap());
    assert!(serde_json::from_value::<Template>(json!("{{ a")).is_err());
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Template>();
    shared::<TemplateValue>();
}

#[test]
#[ignore = "prints timings; run with --release -- --ignored --nocapture"]
fn timings() {
    let world = world();
    let roots: std::collections::BTreeMap<String, Arc<Json>> = world
        .as_object()
        .unwrap()
        .iter()
        .map(|(k, v)| (k.clone(), Arc::new(v.clone())))
        .collect();
    let scope = |name: &str| roots.get(name).cloned();
    for source in [
        "{{ event.name == 'loop.done' }}",
        "{{ ctx.page }}",
        "{{ ctx.page | int + 1 }}",
        "{{ ctx.page < 5 }}",
        "page {{ ctx.page }} of {{ ctx.name }}",
    ] {
        let template = Template::parse(source).unwrap();
        let start = std::time::Instant::now();
        for _ in 0..200_000 {
            std::hint::black_box(template.evaluate(&scope).unwrap());
        }
        println!(
            "{:>8.0} ns  {source}",
            start.elapsed().as_nanos() as f64 / 200_000.0
        );
        let start = std::time::Instant::now();
        for _ in 0..20_000 {
            std::hint::black_box(Template::parse(source).unwrap());
        }
        println!(
            "{:>8.0} ns  parse",
            start.elapsed().as_nanos() as f64 / 20_000.0
        );
    }
}

fn fragment() -> impl Strategy<Value = String> {
    let words = [
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-%}",
        "{{-",
        "ctx",
        "event",
        ".",
        "page",
        "items",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "|",
        "int",
        "join",
        "replace",
        "sort",
        "tojson",
        "default",
        "split",
        "get",
        "is",
        "not",
        "in",
        "if",
        "else",
        "for",
        "endfor",
        "endif",
        "set",
        "raw",
        "endraw",
        "and",
        "or",
        "~",
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "**",
        "<",
        ">=",
        "==",
        "=",
        ",",
        ":",
        "'a'",
        "\"",
        "'",
        "\\",
        "1",
        "0",
        "2.5",
        "1e308",
        "9223372036854775807",
        "range",
        "namespace",
        "loop",
        "none",
        "é",
        "_",
        " ",
        "\n",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..24)
        .prop_map(|w| w.join(" "))
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "ctx",
        "ctx.items",
        "ctx.page",
        "ctx.name",
        "nothing.x",
        "'a'",
        "''",
        "1",
        "0",
        "-3",
        "2.5",
        "[1, 'b']",
        "{'k': none}",
        "true",
        "None",
        "quote",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let op = proptest::sample::select(vec![
            "+", "-", "*", "/", "//", "%", "**", "~", "<", ">=", "==", "in", "not in", "and", "or",
        ]);
        let filter = proptest::sample::select(vec![
            "int",
            "float",
            "length",
            "first",
            "last",
            "sort",
            "join(',')",
            "sum",
            "list",
            "unique",
            "tojson",
            "upper",
            "round",
            "string",
            "default(1)",
            "min",
            "abs",
            "items",
            "replace('a', 'b')",
            "map('int')",
            "batch(2)",
            "reverse",
            "groupby('id')",
            "bool",
            "trim",
        ]);
        prop_oneof![
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), filter).prop_map(|(a, f)| format!("({a} | {f})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a} if {b} else {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a})[{b}:{c}]")),
        ]
    })
}

fn never_panics_and_repeats(source: &str) -> Result<(), TestCaseError> {
    // `caught` would hide a panic of the engine, so its message must not appear either.
    let hidden = |e: &TemplateError| e.message.contains("gave up");
    match Template::parse(source) {
        Err(error) => prop_assert!(!hidden(&error), "{source}"),
        Ok(template) => {
            let scope = scope(world());
            let first = template.evaluate(&scope);
            if let Err(error) = &first {
                prop_assert!(!hidden(error), "{source}");
                if let Some(range) = &error.range {
                    prop_assert!(range.end <= source.len(), "{source}");
                }
            }
            prop_assert_eq!(&first, &template.evaluate(&scope));
            prop_assert_eq!(first, Template::parse(source).unwrap().evaluate(&scope));
            let _ = template.truthy(&scope);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_text_is_harmless(source in any::<String>()) {
        never_panics_and_repeats(&source)?;
    }

    #[test]
    fn arbitrary_tags_are_harmless(source in fragment()) {
        never_panics_and_repeats(&source)?;
        never_panics_and_repeats(&format!("{{{{ {source} }}}}"))?;
        never_panics_and_repeats(&format!("{{% if {source} %}}x{{% endif %}}"))?;
    }

    #[test]
    fn arbitrary_expressions_are_harmless(source in expression()) {
        never_panics_and_repeats(&format!("{{{{ {source} }}}}"))?;
        never_panics_and_repeats(&format!("a {{{{ {source} }}}}"))?;
    }
}
