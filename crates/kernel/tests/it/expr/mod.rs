//! What templates mean and that nothing can break them. Here: the world they are evaluated in
//! and the ways to ask; the examples live in the modules, one subject each.

mod bounds;
mod errors;
mod harmless;
mod meaning;
mod reads;

use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_kernel::expr::{Template, TemplateError};

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

#[track_caller]
fn all(cases: &[(&str, Json)]) {
    for (source, expected) in cases {
        assert_eq!(&eval(source), expected, "{source}");
    }
}
