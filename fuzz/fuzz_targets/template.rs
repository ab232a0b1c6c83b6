//! Any text as a template, evaluated on a small scope: a value or an error, within its limits.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use stepwell_kernel::expr::{MAX_OUTPUT, Template};

fuzz_target!(|text: &str| {
    let Ok(template) = Template::parse(text) else { return };
    let scope = |name: &str| -> Option<Arc<Value>> {
        match name {
            "ctx" => Some(Arc::new(json!({"n": 3, "items": [1, "two", null], "deep": {"a": {"b": true}}}))),
            "event" => Some(Arc::new(json!({"name": "step.done"}))),
            "text" => Some(Arc::new(json!("some text"))),
            _ => None,
        }
    };
    if let Ok(value) = template.evaluate(&scope) {
        let size = serde_json::to_vec(&value).map_or(0, |bytes| bytes.len());
        assert!(size <= 8 * MAX_OUTPUT, "the output is bounded");
    }
    let _ = template.truthy(&scope);
});
