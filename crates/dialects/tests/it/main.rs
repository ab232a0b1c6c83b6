//! One binary for all tests of this crate.
#![allow(clippy::unwrap_used)]

mod corpus;
mod hostile;
mod playbook;
mod problem;
mod reader;
mod source;
mod tree;

use stepwell_dialects::{Node, Problem, Source, problem::render, tree::parse};

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
