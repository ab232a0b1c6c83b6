//! What is known of a template without evaluating it, and that a template is its source.

use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};
use stepwell_kernel::expr::{Scope, Template, TemplateErrorKind, TemplateValue};

fn reads(source: &str) -> Vec<String> {
    Template::parse(source)
        .expect(source)
        .reads()
        .iter()
        .cloned()
        .collect()
}

#[test]
fn reads_are_listed() {
    assert_eq!(reads("{{ ctx.page | int + 1 }}"), ["ctx.page"]);
    assert_eq!(
        reads("{{ event.name == 'x' and workload }}"),
        ["event.name", "workload"]
    );
    assert_eq!(reads("{{ ctx['a'].b[0].c }}"), ["ctx.a.b"]);
    assert_eq!(reads("{{ ctx.get('x') }}{{ f(k=v) }}"), ["ctx.x", "f", "v"]);
    assert_eq!(
        reads("{{ ctx.get(k) }}{{ ctx.x.get('y', 1) }}"),
        ["ctx", "ctx.x", "k"]
    );
    assert_eq!(
        reads("{{ (a).b }}{{ ((c.d)).e['f'] }}{{ g(h).i }}"),
        ["a.b", "c.d.e.f", "g", "h"]
    );
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
fn a_template_is_its_source() {
    let template: Template = serde_json::from_value(json!("{{ a }}")).unwrap();
    assert_eq!(serde_json::to_value(&template).unwrap(), json!("{{ a }}"));
    assert_eq!(template, Template::parse("{{ a }}").unwrap());
    assert!(serde_json::from_value::<Template>(json!("{{ a")).is_err());
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Template>();
    shared::<TemplateValue>();
}

struct Strict(Json);

impl Scope for Strict {
    fn lookup(&self, name: &str) -> Option<Arc<Json>> {
        self.0.get(name).cloned().map(Arc::new)
    }

    fn is_strict(&self) -> bool {
        true
    }
}

#[test]
fn a_strict_scope_refuses_values_that_are_made_from_nothing() {
    let scope = Strict(json!({"ctx": {"a": null, "b": {"c": 1}, "list": [{"x": 1}, {}]}}));
    let evaluate = |source: &str| Template::parse(source).unwrap().evaluate(&scope);
    for bad in [
        "{{ ctx.x }}",
        "{{ x }}",
        "{{ ctx.b.x }}",
        "{{ ctx.b.c.d }}",
        "a {{ ctx.x }}",
        "{{ ctx.x | quote }}",
        "{{ 'a' ~ ctx.x }}",
        "{{ [ctx.x] }}",
        "{{ ctx.list[7] }}",
        "{{ ctx.x if true else 1 }}",
        "{{ ctx.x or ctx.y }}",
        "{% for it in ctx.list %}{{ it.x }}{% endfor %}",
        "{% if true %}{{ ctx.x }}{% endif %}",
        "{{ ctx.x | default(ctx.y) }}",
        "{{ ctx.x | default(ctx.y) | quote }}",
        "{{ [ctx.x | default(ctx.y)] }}",
        "{{ ctx.x | default(ctx.y) | tojson }}",
        "{{ 'a' ~ (ctx.x | default(ctx.y)) }}",
        "a {{ ctx.x | default(ctx.y) | upper }}",
        "a {{ ctx.a }}",
        "a {{ ctx.get('x') }}",
        "{{ ctx.get('x') | quote }}",
        "{{ ['a', ctx.a] | quote }}",
        "{{ ['a', ctx.a] | join('-') }}",
        "{{ ctx.x | default(ctx.y) | join('-') }}",
        "{{ 'a' ~ ctx.a }}",
        "{{ ctx.a | string }}",
    ] {
        let error = evaluate(bad).expect_err(bad);
        assert_eq!(error.kind, TemplateErrorKind::Undefined, "{bad}: {error}");
    }
    for good in [
        "{{ ctx.a }}",
        "{{ ctx.b.c }}",
        "{{ ctx.x | default(1) }}",
        "{{ ctx.x.y | d('') | quote }}",
        "{{ ctx.x is defined }}",
        "{{ ctx.x or 1 }}",
        "{{ ctx.x if ctx.x else 1 }}",
        "{{ ctx.get('x') }}",
        "{{ ctx.b.c | default(ctx.y) }}",
        "{% if ctx.x %}{{ ctx.x.y }}{% endif %}",
        "{{ 1 if ctx.b.c else ctx.x }}",
        "a {{ ctx.a | default('-', true) }}",
        "a {{ ctx.a | tojson }} {{ [ctx.a] }}",
        "a {{ ctx.x | default(ctx.y) | default('-') | quote }}",
    ] {
        assert!(evaluate(good).is_ok(), "{good}: {:?}", evaluate(good));
    }
    let asked = Template::parse("{{ ctx.x.y == 'z' }}").unwrap();
    assert_eq!(asked.truthy(&scope), Ok(false), "a condition may ask");
    let asked = Template::parse("{{ ctx.a | upper == ctx.x | d(ctx.y) | quote }}").unwrap();
    assert_eq!(
        asked.truthy(&scope),
        Ok(false),
        "also of null, also by filters"
    );
}

#[test]
fn sites_say_where_a_path_stands_and_whether_it_may_be_absent() {
    let source = "a {{ ctx.x }} {{ (b).c | default(d.e) }}";
    let template = Template::parse(source).unwrap();
    let sites: Vec<_> = template
        .sites()
        .into_iter()
        .map(|site| (source[site.range].to_owned(), site.path, site.tested))
        .collect();
    let site = |text: &str, path: &str, tested| (text.to_owned(), path.to_owned(), tested);
    assert_eq!(
        sites,
        [
            site("ctx.x", "ctx.x", false),
            site("b).c", "b.c", true),
            site("d.e", "d.e", false)
        ]
    );
}

#[test]
fn functions_and_methods_that_do_not_exist_are_named() {
    let unknown = |source: &str| {
        let call = Template::parse(source).unwrap().unknown_call();
        call.map(|it| format!("{} {}", it.what, it.name))
    };
    assert_eq!(unknown("{{ now() }}"), Some("function now".into()));
    assert_eq!(unknown("{{ a.frob(1) }}"), Some("method frob".into()));
    for good in [
        "{{ range(3) }}",
        "{{ not (a) and (b) or (c) in (d) }}",
        "{{ a.upper() }}{{ 'x'.join(b) }}",
        "{% if (a) %}{% elif (b) %}{% endif %}{% set x = (1) %}",
        "{% for (k, v) in a.items() %}{{ loop.cycle(1, 2) }}{% endfor %}",
        "{{ a | default(1) }}{{ a is divisibleby(3) }}",
    ] {
        assert_eq!(unknown(good), None, "{good}");
    }
}
