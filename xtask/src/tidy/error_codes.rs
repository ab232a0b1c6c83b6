//! Each error code has a page with cause and solution, and each page has a code.
//!
//! A new place where codes are born is a row in `SOURCES`; nothing else changes.

use super::{Finding, Tree};
use crate::source::Source;
use std::collections::BTreeMap;

const PAGES: &str = "docs/errors/";

/// Headings that a page must have, with something below.
const HEADINGS: &[&str] = &["## Cause", "## What to do"];

/// Where codes are born.
const SOURCES: &[(&str, Shape)] = &[
    ("crates/kernel/src/rejection", Shape::Literals),
    // What a net that is no plan is told, and what a value that is no event.
    ("crates/kernel/src/plan/", Shape::Literals),
    ("crates/kernel/src/contract/check", Shape::Literals),
    // Errors that the kernel itself writes into events. It speaks of nothing else in capitals.
    ("crates/kernel/src/decide/", Shape::Capitals),
    // Alerts.
    ("crates/kernel/src/evolve/", Shape::Arguments(&[".alert("])),
    ("crates/kernel/src/snapshot/", Shape::Arguments(&["code:"])),
    ("crates/engine/src/", Shape::Literals),
    // `finish_as` reports fields that nobody asked for, `refuse` a file that cannot be read at all.
    (
        "crates/dialects/src/",
        Shape::Arguments(&[
            ".error(",
            ".warn(",
            ".missing(",
            ".finish_as(",
            "refuse(",
            "code:",
        ]),
    ),
    ("crates/worker/src/pipeline/", Shape::Literals),
    ("crates/worker/src/crew/", Shape::Literals),
    ("crates/worker/src/handler", Shape::Literals),
    ("crates/worker/src/tool.rs", Shape::Literals),
    ("crates/worker/src/tools/http/error", Shape::Literals),
    // Each has a function that names the code of every case.
    (
        "crates/worker/src/artifacts/error",
        Shape::Arguments(&["=>"]),
    ),
    ("crates/worker/src/secrets/error", Shape::Arguments(&["=>"])),
    // Every tool: a code is a constant that has its own name as its value.
    ("crates/worker/src/tools/", Shape::Constants),
    // What the command itself says about a file.
    ("crates/stepwell/src/files/", Shape::Arguments(&["error("])),
    // What it refuses without having asked an engine.
    (
        "crates/stepwell/src/runs/",
        Shape::Arguments(&["Refused::new("]),
    ),
];

/// How a code is recognised in a file.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Every string of the form `TWO_WORDS`.
    Literals,
    /// Every string in capitals, of one word too.
    Capitals,
    /// The value of a constant of the same name.
    Constants,
    /// The string right behind one of these.
    Arguments(&'static [&'static str]),
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut codes: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for (place, shape) in SOURCES {
        for (path, text) in tree.rust(place) {
            for (line, code) in codes_in(text, *shape) {
                codes.entry(code).or_insert((path.clone(), line));
            }
        }
    }
    let pages: BTreeMap<&str, &str> = tree
        .files
        .iter()
        .filter_map(|(path, text)| {
            let code = path.strip_prefix(PAGES)?.strip_suffix(".md")?;
            is_code(code).then_some((code, text.as_str()))
        })
        .collect();
    compare(&codes, &pages)
}

fn compare(
    codes: &BTreeMap<String, (String, usize)>,
    pages: &BTreeMap<&str, &str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if pages.is_empty() {
        let message = "no pages: every error code needs one";
        findings.push(Finding::error(PAGES, 0, message));
    }
    for (code, (path, line)) in codes {
        if !pages.contains_key(code.as_str()) {
            let message = format!("{code} has no page {PAGES}{code}.md");
            findings.push(Finding::error(path, *line, message));
        }
    }
    for (code, text) in pages {
        let path = format!("{PAGES}{code}.md");
        if !codes.contains_key(*code) {
            findings.push(Finding::error(
                &path,
                0,
                "no code gives this error any more",
            ));
        }
        for heading in HEADINGS {
            if !has_section(text, heading) {
                let message = format!("needs a section `{heading}` with something in it");
                findings.push(Finding::error(&path, 0, message));
            }
        }
    }
    findings
}

fn codes_in(text: &str, shape: Shape) -> Vec<(usize, String)> {
    let source = Source::scan(text);
    let end = source.tests_start();
    source
        .strings
        .iter()
        .map(|literal| (literal, family(&literal.text)))
        .filter(|(literal, code)| literal.offset < end && is_code(code))
        .filter(|(literal, code)| match shape {
            Shape::Literals => code.contains('_'),
            Shape::Capitals => true,
            Shape::Constants => {
                let before = source.code[..literal.offset].trim_end();
                before.ends_with(&format!("const {code}: &str ="))
            }
            Shape::Arguments(heads) => {
                let before = source.code[..literal.offset].trim_end();
                heads.iter().any(|head| before.ends_with(head))
            }
        })
        .map(|(literal, code)| (source.line_of(literal.offset), code))
        .collect()
}

/// Codes that differ in one value have one page: `HTTP_{status}` is `HTTP_STATUS`.
fn family(text: &str) -> String {
    match text.strip_suffix('}').and_then(|it| it.rsplit_once("_{")) {
        Some((head, hole)) => format!("{head}_{}", hole.to_ascii_uppercase()),
        None => text.to_owned(),
    }
}

/// `RUN_TERMINAL`: capitals, digits and underscores, from a capital. `README` is a page, not a code.
fn is_code(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.len() > 2
        && text != "README"
        && text
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn has_section(text: &str, heading: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != heading);
    lines.next().is_some()
        && lines
            .take_while(|line| !line.starts_with("## "))
            .any(|line| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str, shape: Shape) -> Vec<String> {
        codes_in(text, shape)
            .into_iter()
            .map(|(_, it)| it)
            .collect()
    }

    #[test]
    fn literals_are_codes_outside_tests() {
        let text = "match x { A => \"RUN_TERMINAL\", B => \"RUN\", C => \"not_a_CODE\" }\n#[cfg(test)]\nmod tests { const X: &str = \"ONLY_HERE\"; }";
        assert_eq!(codes(text, Shape::Literals), ["RUN_TERMINAL"]);
    }

    #[test]
    fn capitals_are_codes_of_one_word_too() {
        let text = "StepError::new(Timeout, \"TIMEOUT\", \"took too long\"); \"TWO_WORDS\"";
        assert_eq!(codes(text, Shape::Capitals), ["TIMEOUT", "TWO_WORDS"]);
    }

    #[test]
    fn arguments_are_codes_across_lines() {
        let text =
            "p.error(\"CYCLE\", at);\np.warn(\n    \"UNKNOWN_KEY\",\n    at);\nother(\"NO_CODE\")";
        let shape = Shape::Arguments(&[".error(", ".warn("]);
        assert_eq!(codes(text, shape), ["CYCLE", "UNKNOWN_KEY"]);
    }

    #[test]
    fn codes_with_a_hole_are_one_family() {
        let text = "format!(\"HTTP_{status}\"); format!(\"{a}_{b}\"); format!(\"x_{y}\")";
        assert_eq!(codes(text, Shape::Literals), ["HTTP_STATUS"]);
    }

    #[test]
    fn pages_and_codes_answer_each_other() {
        let page = "# A_B\n\n## Cause\n\nx\n\n## What to do\n\ny\n";
        let code = |name: &str| (name.to_owned(), ("a.rs".to_owned(), 1));
        let codes = BTreeMap::from([code("A_B"), code("C_D")]);
        let found = compare(&codes, &BTreeMap::from([("A_B", page), ("E_F", page)]));
        let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(
            lines,
            [
                "a.rs:1: C_D has no page docs/errors/C_D.md",
                "docs/errors/E_F.md: no code gives this error any more"
            ]
        );
    }

    #[test]
    fn an_empty_section_is_none() {
        assert!(has_section("## Cause\n\nx\n", "## Cause"));
        assert!(!has_section("## Cause\n\n## What to do\ny\n", "## Cause"));
        assert!(!has_section("## Causes\nx", "## Cause"));
    }

    #[test]
    fn no_pages_at_all_is_an_error() {
        assert_eq!(compare(&BTreeMap::new(), &BTreeMap::new()).len(), 1);
    }
}
