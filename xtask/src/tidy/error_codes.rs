//! Each error code has one page with cause and solution, or one section of the page of its tool; each page and
//! each section has a code.
//!
//! A new place where codes are born is a row in `SOURCES`; nothing else changes.

#[path = "../../../crates/stepwell/error_pages.rs"]
mod error_pages;

use super::{Finding, Tree};
use crate::source::Source;
use error_pages::{is_code, sections};
use std::collections::BTreeMap;

const PAGES: &str = "docs/errors/";
/// Pages of tools, with a section for each code that only this tool has.
const TOOLS: &str = "docs/tools/";

/// Headings that a page must have, with something below.
const HEADINGS: &[&str] = &["## Cause", "## What to do"];

/// Where codes are born.
const SOURCES: &[(&str, Shape)] = &[
    ("crates/kernel/src/rejection", Shape::Literals),
    // The table of what happens while plans run.
    ("crates/kernel/src/codes.rs", Shape::Constants),
    // What a value that is no event is told.
    ("crates/kernel/src/contract/check", Shape::Literals),
    // Each has a function that names the code of every case.
    ("crates/engine/src/store/error.rs", Shape::Literals),
    ("crates/engine/src/error.rs", Shape::Literals),
    // The table of the problems of definitions.
    ("crates/dialects/src/codes.rs", Shape::Constants),
    ("crates/worker/src/tools/http/error", Shape::Literals),
    // Each has a function that names the code of every case.
    (
        "crates/worker/src/artifacts/error",
        Shape::Arguments(&["=>"]),
    ),
    ("crates/worker/src/secrets/error", Shape::Arguments(&["=>"])),
    ("crates/worker/src/fetch", Shape::Arguments(&["=>"])),
    // Every tool: a code is a constant that has its own name as its value.
    ("crates/worker/src/tools/", Shape::Constants),
    ("crates/bus/src/", Shape::Constants),
    ("crates/engines/src/codes.rs", Shape::Constants),
    // What the server refuses before an engine is asked.
    ("crates/server/src/codes.rs", Shape::Constants),
    // What a client says without an answer of the server.
    ("crates/client/src/error.rs", Shape::Constants),
    ("crates/views/src/answers.rs", Shape::Constants),
    // What the command itself says about a file.
    ("crates/stepwell/src/files/", Shape::Arguments(&["error("])),
    // What it refuses without having asked an engine.
    (
        "crates/stepwell/src/runs/",
        Shape::Arguments(&["Refused::new("]),
    ),
];

const RUNNING: &str = "crates/kernel/src/codes.rs";

/// Where codes are taken from a table, and how a code is used that is not: the table must have it.
const TABLES: &[(&str, &str, Shape)] = &[
    // The kernel decides in words of its own: it speaks of nothing else in capitals.
    ("crates/kernel/src/decide/", RUNNING, Shape::Capitals),
    ("crates/kernel/src/plan/", RUNNING, Shape::Literals),
    (
        "crates/kernel/src/evolve/",
        RUNNING,
        Shape::Arguments(&[".alert("]),
    ),
    (
        "crates/kernel/src/snapshot/",
        RUNNING,
        Shape::Arguments(&["code:"]),
    ),
    ("crates/engine/src/coordinator/", RUNNING, Shape::Literals),
    ("crates/engine/src/outbox/", RUNNING, Shape::Literals),
    ("crates/engine/src/projector/", RUNNING, Shape::Literals),
    ("crates/worker/src/pipeline/", RUNNING, Shape::Literals),
    ("crates/worker/src/crew/", RUNNING, Shape::Literals),
    ("crates/worker/src/handler", RUNNING, Shape::Literals),
    ("crates/worker/src/tool.rs", RUNNING, Shape::Literals),
    (
        "crates/dialects/src/",
        "crates/dialects/src/codes.rs",
        // `finish_as` reports fields that nobody asked for, `refuse` a file that cannot be read at all.
        Shape::Arguments(&[
            ".error(",
            ".warn(",
            ".missing(",
            ".finish_as(",
            "refuse(",
            "code:",
        ]),
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
        // Files of tests name codes and other words in capitals, and none is born there.
        let files = tree
            .rust(place)
            .filter(|(path, _)| !path.ends_with("tests.rs"));
        for (path, text) in files {
            for (line, code) in codes_in(text, *shape) {
                codes.entry(code).or_insert((path.clone(), line));
            }
        }
    }
    let mut pages = Vec::new();
    for (path, text) in &tree.files {
        let name = |folder: &str| path.strip_prefix(folder)?.strip_suffix(".md");
        if let Some(code) = name(PAGES).filter(|code| is_code(code)) {
            pages.push(Page::new(code, path, text.clone()));
        } else if name(TOOLS).is_some() {
            let sections = sections(text).into_iter();
            pages.extend(sections.map(|(code, text)| Page::new(&code, path, text)));
        }
    }
    let mut findings = compare(&codes, &pages);
    findings.extend(beside_tables(tree));
    findings
}

/// Codes that are written where they are used instead of in the table of their crate.
fn beside_tables(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (place, table, shape) in TABLES {
        let files = tree.rust(place);
        for (path, text) in files.filter(|(path, _)| !path.ends_with("tests.rs") && path != table) {
            for (line, code) in codes_in(text, *shape) {
                let message = format!("{code}: add the code to {table} and use its constant");
                findings.push(Finding::error(path, line, message));
            }
        }
    }
    findings
}

/// The explanation of a code, and the file that has it.
struct Page {
    code: String,
    path: String,
    text: String,
}

impl Page {
    fn new(code: &str, path: &str, text: String) -> Page {
        Page {
            code: code.to_owned(),
            path: path.to_owned(),
            text,
        }
    }
}

fn compare(codes: &BTreeMap<String, (String, usize)>, pages: &[Page]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if pages.is_empty() {
        let message = "no pages: every error code needs one";
        findings.push(Finding::error(PAGES, 0, message));
    }
    for (code, (path, line)) in codes {
        let message = match pages.iter().filter(|page| page.code == *code).count() {
            1 => continue,
            0 if path.starts_with("crates/worker/src/tools/") => format!(
                "{code} has no section `### {code}` in the page of its tool ({TOOLS}) and no page {PAGES}{code}.md"
            ),
            0 => format!("{code} has no page {PAGES}{code}.md"),
            _ => format!("{code} is explained more than once; keep one page or section"),
        };
        findings.push(Finding::error(path, *line, message));
    }
    for Page { code, path, text } in pages {
        if !codes.contains_key(code) {
            let message = format!("no code gives the error {code} any more");
            findings.push(Finding::error(path, 0, message));
        }
        for heading in HEADINGS {
            if !has_section(text, heading) {
                let message = format!("{code} needs a section `{heading}` with something in it");
                findings.push(Finding::error(path, 0, message));
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
    fn a_code_beside_its_table_is_found() {
        let tree = |path: &str, text: &str| Tree {
            files: BTreeMap::from([(path.to_owned(), text.to_owned())]),
            metadata: serde_json::Value::Null,
        };
        let text = "p.error(\"NEW_CODE\", at);";
        let found = beside_tables(&tree("crates/dialects/src/dag/read.rs", text));
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .to_string()
                .contains("NEW_CODE: add the code to crates/dialects/src/codes.rs")
        );
        let constant = "p.error(codes::NEW_CODE, at);";
        assert!(beside_tables(&tree("crates/dialects/src/dag/read.rs", constant)).is_empty());
        assert!(beside_tables(&tree("crates/bus/src/lib.rs", text)).is_empty());
    }

    #[test]
    fn pages_and_codes_answer_each_other() {
        let page = "# A_B\n\n## Cause\n\nx\n\n## What to do\n\ny\n";
        let code = |name: &str| (name.to_owned(), ("a.rs".to_owned(), 1));
        let codes = BTreeMap::from([code("A_B"), code("C_D"), code("G_H")]);
        let page = |code: &str, path: &str| Page::new(code, path, page.to_owned());
        let pages = [
            page("A_B", "docs/errors/A_B.md"),
            page("E_F", "docs/errors/E_F.md"),
            page("G_H", "docs/errors/G_H.md"),
            page("G_H", "docs/tools/g.md"),
        ];
        let found = compare(&codes, &pages);
        let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(
            lines,
            [
                "a.rs:1: C_D has no page docs/errors/C_D.md",
                "a.rs:1: G_H is explained more than once; keep one page or section",
                "docs/errors/E_F.md: no code gives the error E_F any more",
            ]
        );
    }

    #[test]
    fn the_page_of_a_tool_has_sections_for_codes() {
        let page = "# tool\n\n## Errors\n\n### A_B\n\nIt failed.\n\n#### Cause\n\n```sh\n# x\n```\n\n\
                    ### Notes\n\ny\n\n### C_D\n\nz\n\n## Limits\n\nw\n";
        let found = sections(page);
        let wanted = [
            (
                "A_B",
                "# A_B\n\nIt failed.\n\n## Cause\n\n```sh\n# x\n```\n",
            ),
            ("C_D", "# C_D\n\nz\n"),
        ];
        assert_eq!(
            found,
            wanted.map(|(code, text)| (code.to_owned(), text.to_owned()))
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
        assert_eq!(compare(&BTreeMap::new(), &[]).len(), 1);
    }
}
