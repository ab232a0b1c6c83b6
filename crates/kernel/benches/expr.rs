//! How fast templates are parsed and evaluated: one of each shape that real definitions use.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value as Json, json};
use stepwell_kernel::expr::Template;

const SOURCES: [&str; 6] = [
    "{{ event.name == 'loop.done' }}",
    "{{ ctx.page }}",
    "{{ ctx.page | int + 1 }}",
    "{{ ctx.page < 5 }}",
    "page {{ ctx.page }} of {{ ctx.name }}",
    "{% for row in ctx.rows %}{{ row.id }}: {{ row.text }}\n{% endfor %}",
];

fn world() -> BTreeMap<&'static str, Arc<Json>> {
    let row = |id: usize| json!({"id": id, "text": "x".repeat(40)});
    let rows: Vec<Json> = (0..1000).map(row).collect();
    BTreeMap::from([
        (
            "ctx",
            Arc::new(json!({"page": 2, "name": "Ann", "rows": rows})),
        ),
        ("event", Arc::new(json!({"name": "loop.done"}))),
    ])
}

fn templates(c: &mut Criterion) {
    let world = world();
    let scope = |name: &str| world.get(name).cloned();
    let mut group = c.benchmark_group("parse");
    for source in SOURCES {
        group.bench_function(source, |b| b.iter(|| Template::parse(black_box(source))));
    }
    group.finish();
    let mut group = c.benchmark_group("evaluate");
    for source in SOURCES {
        let template = Template::parse(source).expect("the bench's template parses");
        assert!(template.evaluate(&scope).is_ok(), "{source}");
        group.bench_function(source, |b| b.iter(|| black_box(&template).evaluate(&scope)));
    }
    group.finish();
}

criterion_group!(benches, templates);
criterion_main!(benches);
