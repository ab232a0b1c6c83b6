//! Finds the tests that prove statements, by their names and by the comments above them.

use super::tables::Number;
use crate::source::{Function, Source};

/// A test that proves statements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proof {
    pub(super) file: String,
    pub(super) test: String,
}

/// What one file contributes.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) proofs: Vec<(Number, Proof)>,
    pub(super) problems: Vec<String>,
}

const ALSO: &str = "also proves:";

/// Whether proofs are looked for in a file: crates/*/src, crates/*/tests, xtask.
pub(super) fn is_searched(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["xtask", ..] => true,
        ["crates", _, folder, ..] => folder == "src" || folder == "tests",
        _ => false,
    }
}

/// The proofs in one file. A function that is named like a proof but would never run is a problem,
/// not a proof: inside `proptest!` too, only `#[test]` makes a test.
pub(super) fn find(path: &str, text: &str, known: impl Fn(Number) -> bool) -> Found {
    let mut found = Found::default();
    for function in Source::scan(text).functions() {
        let named = from_name(&function.name);
        if !function.is_test {
            if let Some(number) = named.filter(|number| known(*number)) {
                found.problems.push(format!(
                    "{path}:{}: {} is named after {number} but carries no #[test]",
                    function.line, function.name
                ));
            }
            continue;
        }
        let mut numbers: Vec<Number> = named.into_iter().collect();
        for item in also(&function) {
            match Number::parse(&item) {
                Some(number) => numbers.push(number),
                None => found.problems.push(format!(
                    "{path}:{}: `{item}` in \"{ALSO}\" is no number",
                    function.line
                )),
            }
        }
        for number in numbers {
            let proof = Proof {
                file: path.to_owned(),
                test: function.name.clone(),
            };
            found.proofs.push((number, proof));
        }
    }
    found
}

/// The statement that a test name begins with: `c12_cancel_is_refused` proves C12.
fn from_name(name: &str) -> Option<Number> {
    let (number, rest) = name.split_once('_')?;
    let lower = name.starts_with(|c: char| c.is_ascii_lowercase());
    (lower && !rest.is_empty())
        .then(|| Number::parse(number))
        .flatten()
}

fn also(function: &Function) -> Vec<String> {
    function
        .comments
        .iter()
        .filter_map(|comment| comment.strip_prefix(ALSO))
        .flat_map(|list| list.split(','))
        .map(|item| item.trim().trim_end_matches('.').to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proven(text: &str) -> Vec<String> {
        let found = find("f.rs", text, |_| true);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        found
            .proofs
            .iter()
            .map(|(number, proof)| format!("{number} {}", proof.test))
            .collect()
    }

    #[test]
    fn a_name_proves_its_number() {
        assert_eq!(
            proven("#[test]\nfn c12_cancel() {}\n#[test]\nfn other() {}\n"),
            ["C12 c12_cancel"]
        );
    }

    #[test]
    fn a_comment_proves_more() {
        assert_eq!(
            proven("// also proves: C15, C16\n#[test]\nfn c14_x() {}\n"),
            ["C14 c14_x", "C15 c14_x", "C16 c14_x"]
        );
        assert_eq!(
            proven("#[test]\n// also proves: A1\nfn named_after_behaviour() {}\n"),
            ["A1 named_after_behaviour"]
        );
    }

    #[test]
    fn property_tests_count() {
        assert_eq!(
            proven("proptest! {\n    #[test]\n    fn c19_law(x in 0..9) { }\n}\n"),
            ["C19 c19_law"]
        );
    }

    #[test]
    fn a_function_that_never_runs_proves_nothing() {
        let found = find("f.rs", "fn c12_cancel() {}\nfn l2_norm() {}", |number| {
            number.to_string() == "C12"
        });
        assert!(found.proofs.is_empty());
        assert_eq!(found.problems.len(), 1);
    }

    #[test]
    fn a_comment_with_a_typo_is_a_problem() {
        let found = find("f.rs", "// also proves: C1S\n#[test]\nfn x() {}\n", |_| {
            true
        });
        assert_eq!(found.problems.len(), 1);
    }

    #[test]
    fn text_in_strings_proves_nothing() {
        assert!(proven("const X: &str = \"\n#[test]\nfn c1_x() {}\n\";").is_empty());
    }

    #[test]
    fn the_search_has_a_border() {
        assert!(is_searched("crates/kernel/src/decide/claim.rs"));
        assert!(is_searched("crates/kernel/tests/it/main.rs"));
        assert!(!is_searched("crates/kernel/benches/decide.rs"));
        assert!(!is_searched("fuzz/fuzz_targets/yaml.rs"));
    }
}
