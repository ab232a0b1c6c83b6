//! What an expression evaluates to, by example.

use serde_json::json;
use stepwell_kernel::expr::{Template, TemplateErrorKind, TemplateValue};

use super::{all, error, eval, scope, world};

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
        ("{{ 'a-b.c' | quote }}", json!("a-b.c")),
        ("{{ \"it's; rm\" | quote }}", json!(r"'it'\''s; rm'")),
        ("{{ '' | quote }}", json!("''")),
        ("{{ ['a', 'b c'] | quote }}", json!("a 'b c'")),
        ("{{ 'report 1.pdf' | filename }}", json!("report 1.pdf")),
        ("{{ 'b' | one_of(['a', 'b']) }}", json!("b")),
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
}

#[test]
fn values_that_guards_refuse_are_errors() {
    for (source, part) in [
        ("{{ '../x' | filename }}", "has a directory"),
        ("{{ '..' | filename }}", "is a directory"),
        ("{{ '' | filename }}", "is empty"),
        ("{{ '-rf' | filename }}", "begins with"),
        ("{{ 'c' | one_of(['a', 'b']) }}", "none of"),
        ("{{ 'c' | one_of('abc') }}", "as a list"),
    ] {
        let error = super::error(source).to_string();
        assert!(error.contains(part), "{source}: {error}");
    }
}
