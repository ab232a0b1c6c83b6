//! A doc comment says something that the name of the item does not say: one line of three words or fewer is an error.
//!
//! Help texts of clap may be that short, and so may values (a number, or code in backticks).

use super::{Finding, Tree};
use crate::source::{Source, words};

/// A doc comment with at most this many words is short.
const SHORT: usize = 3;

/// Derives of clap, which use the doc comments of the fields and variants as help texts.
const DERIVES: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];

/// Attributes of clap on fields, variants and types.
const ATTRIBUTES: &[&str] = &["#[arg", "#[clap", "#[command", "#[group", "#[value"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust("").filter(|(path, _)| is_checked(path)) {
        for (line, doc) in short_docs(text) {
            let message = format!(
                "the doc comment `{doc}` is too short to say anything: write a sentence that says more than the \
                 name, or remove the comment"
            );
            findings.push(Finding::error(path, line, message));
        }
    }
    findings
}

/// Whether a file is a source of a crate or of xtask; tests and benches are not checked.
fn is_checked(path: &str) -> bool {
    let inside = path
        .strip_prefix("crates/")
        .and_then(|it| it.split_once('/'));
    path.starts_with("xtask/src/") || inside.is_some_and(|(_, rest)| rest.starts_with("src/"))
}

/// The doc comments that are too short, with their lines, from 1.
fn short_docs(text: &str) -> Vec<(usize, String)> {
    let source = Source::scan(text);
    let mut found = Vec::new();
    let mut offset = 0;
    let mut is_continued = false;
    let mut lines = text.split('\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let end = offset + line.len();
        if let Some(doc) = doc_of(line) {
            let continues = lines.peek().is_some_and(|(_, next)| doc_of(next).is_some());
            if !is_continued
                && !continues
                && is_short(doc)
                && !is_in_string(&source, offset)
                && !is_help(&source.code, end)
            {
                found.push((index + 1, doc.to_owned()));
            }
            is_continued = true;
        } else {
            is_continued = false;
        }
        offset = end + 1;
    }
    found
}

/// The text of a line of a doc comment.
fn doc_of(line: &str) -> Option<&str> {
    let doc = line.trim_start().strip_prefix("///")?;
    (!doc.starts_with('/')).then(|| doc.trim())
}

fn is_short(doc: &str) -> bool {
    let is_value = doc.contains(|c: char| c == '`' || c.is_ascii_digit());
    !is_value && doc.split_whitespace().count() <= SHORT
}

fn is_in_string(source: &Source, offset: usize) -> bool {
    let mut strings = source.strings.iter();
    strings.any(|it| it.offset < offset && offset <= it.offset + it.text.len())
}

/// Whether clap shows the doc comment that ends at this byte.
fn is_help(code: &str, end: usize) -> bool {
    let own = attributes_at(code, end);
    ATTRIBUTES.iter().any(|it| own.contains(it))
        || derives_clap(own)
        || headers_around(code, end).any(derives_clap)
}

/// The attributes that follow a byte, up to the item that they belong to.
fn attributes_at(code: &str, start: usize) -> &str {
    let mut end = start;
    loop {
        let rest = &code[end..];
        let attribute = rest.trim_start();
        if !attribute.starts_with("#[") {
            return &code[start..end];
        }
        let mut depth = 0;
        let close = attribute.find(|c: char| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            c == ']' && depth == 0
        });
        match close {
            Some(close) => end += rest.len() - attribute.len() + close + 1,
            None => return &code[start..],
        }
    }
}

/// For each block that is open at a byte: the attributes and the declaration before its brace.
fn headers_around(code: &str, end: usize) -> impl Iterator<Item = &str> {
    let mut open = Vec::new();
    let mut start = 0;
    for (at, c) in code[..end].char_indices() {
        match c {
            '{' => open.push(&code[start..at]),
            '}' => drop(open.pop()),
            ';' => {}
            _ => continue,
        }
        start = at + 1;
    }
    open.into_iter()
}

fn derives_clap(attributes: &str) -> bool {
    let mut derives = attributes.split("#[derive(").skip(1);
    derives.any(|it| {
        let list = it.split(')').next().unwrap_or_default();
        DERIVES.iter().any(|it| words(list, it).next().is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_short_line_is_found() {
        let text = "/// The run.\nstruct A {\n    /// Its id.\n    #[serde(default)]\n    id: u8,\n}\n///\nfn f() {}\n";
        let found = [
            (1, "The run.".into()),
            (3, "Its id.".into()),
            (7, String::new()),
        ];
        assert_eq!(short_docs(text), found);
    }

    #[test]
    fn sentences_longer_comments_and_values_are_fine() {
        for fine in [
            "/// One two three four.\nfn f() {}",
            "/// The run.\n///\n/// It has an id.\nfn f() {}",
            "/// It has an id and a name, and\n/// a plan.\nfn f() {}",
            "/// RFC 7396.\nfn f() {}",
            "/// `kill -9`.\nfn f() {}",
            "// The run.\nfn f() {}",
            "//// The run.\nfn f() {}",
            "//! The run.\n",
            "const A: &str = r#\"\n/// The run.\n\"#;",
        ] {
            assert_eq!(short_docs(fine), [], "{fine}");
        }
    }

    #[test]
    fn help_texts_are_fine() {
        for fine in [
            "struct A {\n    /// Run id\n    #[arg(value_name = \"[\")]\n    run: u8,\n}",
            "#[derive(Debug, Args)]\nstruct A {\n    /// Run id\n    run: u8,\n}",
            "#[derive(clap::Subcommand)]\nenum A {\n    B {\n        /// Run id\n        run: u8,\n    },\n}",
            "/// List alerts\n#[derive(Debug, Args)]\n#[command(after_help = \"\\\nA\n\")]\nstruct A {}",
        ] {
            assert_eq!(short_docs(fine), [], "{fine}");
        }
    }

    #[test]
    fn only_help_texts_profit_from_clap() {
        let after = "#[derive(Args)]\nstruct A {\n    b: u8,\n}\nstruct C {\n    /// Run id\n    run: u8,\n}";
        assert_eq!(short_docs(after), [(6, "Run id".into())]);
        let method = "#[derive(Args)]\nstruct A;\nimpl A {\n    /// Run id\n    fn run() {}\n}";
        assert_eq!(short_docs(method), [(4, "Run id".into())]);
        let alike = "#[derive(ArgsLike)]\nstruct A {\n    /// Run id\n    run: u8,\n}";
        assert_eq!(short_docs(alike), [(3, "Run id".into())]);
    }

    #[test]
    fn sources_of_all_crates_are_checked() {
        for checked in [
            "crates/kernel/src/a/b.rs",
            "crates/new/src/lib.rs",
            "xtask/src/main.rs",
        ] {
            assert!(is_checked(checked), "{checked}");
        }
        for other in [
            "crates/kernel/tests/it/main.rs",
            "crates/src/a.rs",
            "xtask/build.rs",
        ] {
            assert!(!is_checked(other), "{other}");
        }
    }

    #[test]
    fn unfinished_code_does_not_panic() {
        for text in [
            "/// A",
            "/// A\n#[b",
            "/// A\n#[b(\"",
            "}}{\n/// A\n",
            "/// É\n#[é",
        ] {
            short_docs(text);
        }
    }
}
