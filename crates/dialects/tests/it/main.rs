//! One binary for all tests of this crate.
#![allow(clippy::unwrap_used)]

#[path = "../../../kernel/tests/it/support.rs"]
mod support;

mod actions;
mod conformance;
mod corpus;
mod dag;
mod definition;
mod doc_tables;
mod evidence;
mod execution_fields;
mod hostile;
mod laws;
mod linear;
mod losses;
mod made;
mod plan;
mod playbook;
mod problem;
mod reader;
mod schema_tables;
mod source;
mod tool_tables;
mod tree;

use stepwell_dialects::{Node, Problem, Problems, Source, problem::render, tree::parse};
use stepwell_kernel::plan::Net;

/// A source called `t.yaml`.
fn source(text: &str) -> Source {
    Source::from_bytes("t.yaml", text.as_bytes()).expect("small UTF-8 text")
}

/// The tree of a text that must be valid.
fn node(text: &str) -> Node {
    let source = source(text);
    match parse(&source) {
        Ok(node) => node,
        Err(problems) => panic!("{}", render(&source, &problems, false)),
    }
}

/// The problems of a text that must be refused.
fn problems(text: &str) -> Vec<Problem> {
    parse(&source(text)).expect_err("must be refused")
}

/// The codes of those problems.
fn codes(text: &str) -> Vec<&'static str> {
    problems(text).iter().map(|problem| problem.code).collect()
}

/// Those problems as people see them.
fn shown(text: &str) -> String {
    render(&source(text), &problems(text), false)
}

/// How a language compiles.
type Compile = fn(&stepwell_dialects::Document<'_>, &mut Problems) -> Option<Net>;

/// What a language makes of a text: the net if there was no error, and everything reported.
fn compiled(text: &str, compile: Compile) -> (Option<Net>, Vec<Problem>) {
    let (source, root) = (source(text), node(text));
    let mut p = Problems::new();
    let document = stepwell_dialects::Document {
        source: &source,
        root: &root,
    };
    let net = compile(&document, &mut p);
    assert_eq!(net.is_none(), p.has_errors(), "a net or an error");
    (net, p.into_vec())
}

/// The net of a text that must load without problems.
fn net(text: &str, compile: Compile) -> Net {
    let (net, problems) = compiled(text, compile);
    assert!(
        problems.is_empty(),
        "{}",
        render(&source(text), &problems, false)
    );
    net.expect("no problem, so a net")
}

/// The codes of everything a language reports about a text.
fn reported(text: &str, compile: Compile) -> Vec<&'static str> {
    let (_, problems) = compiled(text, compile);
    problems.iter().map(|problem| problem.code).collect()
}

/// Everything a language reports about a text, as people see it.
fn diagnosed(text: &str, compile: Compile) -> String {
    let (_, problems) = compiled(text, compile);
    render(&source(text), &problems, false)
}

/// Whether a schema accepts a text.
fn accepts(schema: &serde_json::Value, text: &str) -> bool {
    let validator = jsonschema::validator_for(schema).expect("a schema is one");
    validator.is_valid(&node(text).to_json())
}

/// Every example of a language with its file name.
fn examples(language: &str) -> Vec<(String, String)> {
    let folder = format!("{}/../../examples/{language}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(folder).expect("the language has examples");
    let mut files: Vec<(String, String)> = entries
        .map(|entry| {
            let path = entry.expect("a readable folder").path();
            let text = std::fs::read_to_string(&path).expect("a readable file");
            (path.display().to_string(), text)
        })
        .collect();
    files.sort();
    files
}
