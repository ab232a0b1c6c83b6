//! What templates mean and that nothing can break them. Here: the world they are evaluated in
//! and the ways to ask; the examples live in the modules, one subject each.

mod bounds;
mod errors;
mod harmless;
mod meaning;
mod reads;

use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_kernel::expr::{Scope, Template, TemplateError};

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

/// The same world for a template that is given nothing but what it says it reads.
struct OnlyKeys(Json);

impl Scope for OnlyKeys {
    fn lookup(&self, name: &str) -> Option<Arc<Json>> {
        scope(self.0.clone())(name)
    }

    fn lookup_keys(&self, name: &str, keys: &[String]) -> Option<Arc<Json>> {
        let mut value = self.0.get(name)?.clone();
        if let Json::Object(map) = &mut value {
            map.retain(|key, _| keys.contains(key));
        }
        Some(Arc::new(value))
    }
}

fn eval(source: &str) -> Json {
    let template = Template::parse(source).unwrap_or_else(|error| panic!("{error}"));
    let [whole, keys] = [
        template.evaluate(&scope(world())),
        template.evaluate(&OnlyKeys(world())),
    ];
    let json = whole.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        keys.ok().as_ref(),
        Some(&json),
        "{source}: what is not read is not needed"
    );
    json
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
