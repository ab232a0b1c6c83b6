//! What is known of a template without evaluating it, and that a template is its source.

use std::sync::{Arc, Mutex};

use serde_json::json;
use stepwell_kernel::expr::{Template, TemplateValue};

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
fn a_template_is_its_source() {
    let template: Template = serde_json::from_value(json!("{{ a }}")).unwrap();
    assert_eq!(serde_json::to_value(&template).unwrap(), json!("{{ a }}"));
    assert_eq!(template, Template::parse("{{ a }}").unwrap());
    assert!(serde_json::from_value::<Template>(json!("{{ a")).is_err());
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Template>();
    shared::<TemplateValue>();
}
