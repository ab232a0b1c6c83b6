//! Tests are named after behaviour, and every test runs.

use super::{Finding, Tree};
use crate::source::Source;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust("") {
        findings.extend(judge(path, text));
    }
    findings
}

fn judge(path: &str, text: &str) -> Vec<Finding> {
    let source = Source::scan(text);
    let mut findings = Vec::new();
    for function in source.functions() {
        if function.is_test && function.name.starts_with("test_") {
            let message = format!("name `{}` after the behaviour it shows", function.name);
            findings.push(Finding::error(path, function.line, message));
        }
    }
    for (index, line) in source.code.lines().enumerate() {
        let bare: String = line.split_whitespace().collect();
        if bare.contains("#[ignore]") || bare.contains("#[ignore=") {
            let message = "no ignored tests: fix it, or delete it";
            findings.push(Finding::error(path, index + 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixed_and_ignored_tests_are_found() {
        let text = "#[test]\nfn test_x() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn y() {}\n";
        let lines: Vec<usize> = judge("a.rs", text).iter().map(|it| it.line).collect();
        assert_eq!(lines, [2, 5]);
    }

    #[test]
    fn helpers_and_words_are_fine() {
        assert!(
            judge(
                "a.rs",
                "fn test_plan() {}\n// #[ignore]\n#[test]\nfn ends() {}"
            )
            .is_empty()
        );
    }
}
