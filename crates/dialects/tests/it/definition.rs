//! What the tests of a language share: compiling a text, and the examples and schemas on disk.

use serde_json::Value as Json;
use stepwell_dialects::problem::render;
use stepwell_dialects::{Document, Node, Problem, Problems, Source, tree};
use stepwell_kernel::plan::{Net, Plan};

/// The function that compiles a definition of one language to a net.
pub(crate) type Compile = fn(&Document<'_>, &mut Problems) -> Option<Net>;

/// The net and the problems of a text; a net comes exactly if there is no error.
pub(crate) fn compiled(compile: Compile, text: &str) -> (Option<Net>, Vec<Problem>, Source) {
    let source = crate::source(text);
    let root = crate::node(text);
    let mut p = Problems::new();
    let doc = Document {
        source: &source,
        root: &root,
    };
    let net = compile(&doc, &mut p);
    assert_eq!(net.is_none(), p.has_errors(), "a net, or an error");
    (net, p.into_vec(), source)
}

/// The plan of a text that must be free of errors and warnings.
pub(crate) fn plan(compile: Compile, text: &str) -> Plan {
    let (net, problems, source) = compiled(compile, text);
    assert!(problems.is_empty(), "{}", render(&source, &problems, false));
    Plan::new(net.expect("no problems")).expect("a sound net")
}

/// The codes of a text's problems, in source order.
pub(crate) fn codes(compile: Compile, text: &str) -> Vec<&'static str> {
    let (_, problems, _) = compiled(compile, text);
    problems.iter().map(|problem| problem.code).collect()
}

/// The problems of a text as people see them.
pub(crate) fn shown(compile: Compile, text: &str) -> String {
    let (_, problems, source) = compiled(compile, text);
    render(&source, &problems, false)
}

/// Name and text of every example of a language.
pub(crate) fn examples(language: &str) -> Vec<(String, String)> {
    let folder = format!("{}/../../examples/{language}", env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the examples") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("an example");
        found.push((path.display().to_string(), text));
    }
    assert!(found.len() >= 3, "at least three examples of {language}");
    found
}

/// A language's schema, ready to check.
pub(crate) fn validator(schema: &Json) -> jsonschema::Validator {
    jsonschema::draft202012::meta::validate(schema).expect("the schema is a schema");
    jsonschema::draft202012::new(schema).expect("the schema compiles")
}

/// Every example compiles without a warning and fits the schema.
pub(crate) fn check_examples(
    language: &str,
    compile: Compile,
    detect: fn(&Node) -> bool,
    schema: &Json,
) {
    let validator = validator(schema);
    for (name, text) in examples(language) {
        let source = Source::from_bytes(name.as_str(), text.as_bytes()).expect("UTF-8");
        let root = tree::parse(&source).expect("YAML");
        assert!(detect(&root), "{name} is not recognised");
        plan(compile, &text);
        let errors: Vec<String> = validator
            .iter_errors(&root.to_json())
            .map(|error| format!("{name}: {} at {}", error, error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

/// The schema and the reader agree on a text. Warnings do not count.
pub(crate) fn agree(compile: Compile, schema: &Json, text: &str, accepted: bool) {
    let by_schema = validator(schema).is_valid(&crate::node(text).to_json());
    let (net, problems, source) = compiled(compile, text);
    let shown = render(&source, &problems, false);
    assert_eq!(net.is_some(), accepted, "the reader on\n{text}\n{shown}");
    assert_eq!(by_schema, accepted, "the schema on\n{text}");
}

/// Puts `value` in the place of the node number `at`, counted depth first.
fn replace(json: &mut Json, at: &mut usize, value: &Json) {
    if *at == 0 {
        *json = value.clone();
    }
    *at = at.wrapping_sub(1);
    match json {
        Json::Array(items) => items.iter_mut().for_each(|item| replace(item, at, value)),
        Json::Object(fields) => fields
            .values_mut()
            .for_each(|item| replace(item, at, value)),
        _ => {}
    }
}

fn count(json: &Json) -> usize {
    1 + match json {
        Json::Array(items) => items.iter().map(count).sum(),
        Json::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Every example with any one value replaced by any of some bad ones is either refused with an error
/// or still a sound net; nothing panics.
pub(crate) fn survives_damage(language: &str, compile: Compile) {
    use serde_json::json;
    let values = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("{{ x"),
        json!("a|b#[1]"),
        json!(true),
        json!([]),
        json!([[], {}, null, "x", "x"]),
        json!({}),
        json!({"kind": [], "name": {}}),
    ];
    for (name, text) in examples(language) {
        let whole = crate::node(&text).to_json();
        for at in 0..count(&whole) {
            for value in &values {
                let mut damaged = whole.clone();
                replace(&mut damaged, &mut at.clone(), value);
                let (net, _, _) = compiled(compile, &damaged.to_string());
                if let Some(net) = net {
                    Plan::new(net).unwrap_or_else(|fault| panic!("{name} {at} {value}: {fault}"));
                }
            }
        }
    }
}
