//! Input that was written to break the reader.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use stepwell_dialects::problem::{render, to_json};
use stepwell_dialects::{Source, tree};

use crate::{codes, node, problems, shown};

/// Generous for a debug build on a slow machine; the point is "not minutes".
const QUICK: Duration = Duration::from_secs(20);

fn nested(open: &str, inner: &str, close: &str, levels: usize) -> String {
    format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
}

#[test]
fn ten_thousand_levels_are_refused_in_every_style() {
    let mut block_maps = String::new();
    for level in 0..2_000 {
        block_maps.push_str(&" ".repeat(level));
        block_maps.push_str("a:\n");
    }
    for text in [
        nested("[", "", "]", 10_000),
        "[".repeat(10_000),
        nested("{\"a\":", "1", "}", 10_000),
        nested("[{\"a\":", "1", "}]", 10_000),
        "{a: ".repeat(10_000),
        nested("- ", "x", "", 10_000),
        nested("? ", "x", "", 10_000),
        "a: ".to_owned() + &"[".repeat(10_000),
        block_maps,
    ] {
        let start: String = text.chars().take(10).collect();
        assert_eq!(codes(&text).last(), Some(&"SOURCE_TOO_DEEP"), "{start}");
    }
}

#[test]
fn sixty_four_levels_are_read_and_one_more_is_not() {
    let tree = node(&nested("[", "1", "]", 64));
    assert_eq!(tree.clone(), tree);
    assert_eq!(codes(&nested("[", "1", "]", 65)), ["SOURCE_TOO_DEEP"]);
    assert_eq!(codes(&nested("- ", "1", "", 65)), ["SOURCE_TOO_DEEP"]);
    // Aliases add up: two anchors of forty levels, one inside of the other.
    let deep = nested("[", "1", "]", 40);
    let more = nested("[", "*a", "]", 40);
    assert_eq!(
        codes(&format!("a: &a {deep}\nb: {more}\n")),
        ["SOURCE_TOO_DEEP"]
    );
}

#[test]
fn a_billion_laughs_are_refused_quickly() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..30 {
        let item = format!("*a{}", level - 1);
        let items = [item.as_str(); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    let began = Instant::now();
    assert_eq!(codes(&text), ["SOURCE_TOO_MANY_NODES"]);
    assert!(began.elapsed() < QUICK);
}

#[test]
fn copies_of_one_long_text_are_refused() {
    let text = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(500_000),
        "*a, ".repeat(50_000)
    );
    let began = Instant::now();
    assert_eq!(codes(&text), ["SOURCE_TOO_LARGE"]);
    assert!(began.elapsed() < QUICK);
}

#[test]
fn too_many_values_are_refused() {
    let text = format!("[{}]", "1,".repeat(200_001));
    assert_eq!(codes(&text), ["SOURCE_TOO_MANY_NODES"]);
    assert!(
        node(&format!("[{}]", "1,".repeat(100_000)))
            .as_seq()
            .is_some()
    );
}

#[test]
fn a_text_of_a_megabyte_is_read_and_more_is_refused_briefly() {
    let limit = 1024 * 1024;
    let tree = node(&format!("a: \"{}\"", "x".repeat(limit)));
    assert_eq!(
        tree.get("a").and_then(|a| a.as_str()).map(str::len),
        Some(limit)
    );
    let text = format!("a: {}", "x".repeat(limit + 1));
    assert_eq!(codes(&text), ["SOURCE_SCALAR_TOO_LONG"]);
    assert!(shown(&text).len() < 1_000);
}

#[test]
fn long_keys_do_not_make_long_messages() {
    let key = "k".repeat(300_000);
    let text = format!("{{{key}: 1, {key}: 2}}");
    assert_eq!(codes(&text), ["SOURCE_DUPLICATE_KEY"]);
    assert!(shown(&text).len() < 1_000);
}

#[test]
fn many_problems_are_cut_off() {
    let text = "a: 1\n".repeat(50_000);
    let began = Instant::now();
    assert!(problems(&text).len() <= 101);
    assert!(began.elapsed() < QUICK);
}

/// Shapes on which a parser may take the square of the input's length.
#[test]
fn large_input_of_every_shape_is_read_in_linear_time() {
    let half = 1 << 19;
    let prefix = "p".repeat(half);
    let deep = "[".repeat(250);
    let shapes = [
        (
            "flow with much before its end",
            format!("{deep}{}", "a,".repeat(half / 2)),
        ),
        ("quotes", "\"".repeat(half)),
        ("anchors", "&a ".repeat(half / 3)),
        (
            "tags",
            format!("%TAG !e! {prefix}\n---\n[{}]", "!e!x 1,".repeat(half / 7)),
        ),
        ("directives", "%A b\n".repeat(half / 5)),
        (
            "indented blanks",
            format!("a: |\n{}", "        \n".repeat(half / 9)),
        ),
        (
            "one long line of blanks",
            format!("a: {}", " ".repeat(half)),
        ),
        ("comments", "#\n".repeat(half / 2)),
        ("flow keys", format!("{{{}}}", "? a ".repeat(half / 4))),
        ("colons", ":".repeat(half)),
        ("plain lines", "a\n".repeat(half / 2)),
        ("carriage returns", "\r".repeat(half)),
        ("dashes", format!("a: {}", "-".repeat(half))),
        ("many documents", "---\n".repeat(half / 4)),
    ];
    for (name, text) in shapes {
        let began = Instant::now();
        let source = Source::from_bytes("t", text.as_bytes()).expect("UTF-8");
        let result = tree::parse(&source);
        let took = began.elapsed();
        assert!(took < QUICK, "{name}: {took:?}");
        if let Err(problems) = result {
            assert!(render(&source, &problems, false).len() < 100_000, "{name}");
        }
    }
}

fn never_panics(bytes: &[u8]) {
    let (source, problems) = match Source::from_bytes("t.yaml", bytes) {
        Ok(source) => match tree::parse(&source) {
            Ok(node) => {
                let _ = node.to_json();
                return;
            }
            Err(problems) => (source, problems),
        },
        Err(problem) => (Source::unreadable("t.yaml"), vec![problem]),
    };
    assert!(!problems.is_empty());
    assert!(!render(&source, &problems, false).is_empty());
    assert!(!render(&source, &problems, true).is_empty());
    let _ = to_json(&source, &problems);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        never_panics(&bytes);
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        never_panics(text.as_bytes());
    }

    #[test]
    fn text_made_of_yaml_syntax_never_panics(words in proptest::collection::vec(
        prop::sample::select(vec![
            "a", "b: ", ": ", ":", "- ", "-", "? ", "[", "]", "{", "}", ",", "\n", "\n  ", "\n ", "\r\n",
            "\t", " ", "&a ", "*a", "&b", "*b ", "!!str ", "!x", "!", "|\n", ">-\n ", "|2\n", "\"", "'", "\\", "\\u12",
            "#", " # c\n", "---\n", "...\n", "%YAML 1.2\n", "%TAG ! x\n", "<<: ", "1e9", ".inf", "ä", "😀", "\u{feff}", "\u{85}",
        ]), 0..60)) {
        never_panics(words.concat().as_bytes());
    }
}

/// More cases for a longer hunt: `PROPTEST_CASES=100000 cargo test hostile`.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(512)
}
