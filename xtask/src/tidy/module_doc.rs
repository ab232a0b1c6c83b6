//! Every Rust file opens with a `//!` that says what lives there: tests, benches and fuzz targets too.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust("")
        .filter(|(_, text)| !opens_with_doc(text))
        .map(|(path, _)| {
            Finding::error(
                path,
                1,
                "open with `//!`: what lives here, and what must not",
            )
        })
        .collect()
}

fn opens_with_doc(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first
        .strip_prefix("//!")
        .is_some_and(|doc| !doc.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_a_module_doc_with_words() {
        assert!(opens_with_doc("//! Plans.\nuse x;"));
        for bad in [
            "",
            "//!\n",
            "// Plans.",
            "\n//! Plans.",
            "/// Plans.",
            "use x;",
        ] {
            assert!(!opens_with_doc(bad), "{bad:?}");
        }
    }
}
