//! What YAML and JSON mean, and where it stood.

use expect_test::expect;
use serde_json::json;

use crate::{codes, node, shown, source};

#[test]
fn plain_words_follow_the_core_schema() {
    let text = "[~, null, true, False, 12, -3, +4, 0x1F, 0o17, 007, 1.5, 1e3, .5, 1., yes, on, 1_000, 0b1, -, 1.2.3, '5', \"true\"]"
        .replace(" -,", " '-',");
    let expected = json!([
        null, null, true, false, 12, -3, 4, 31, 15, 7, 1.5, 1000.0, 0.5, 1.0, "yes", "on", "1_000",
        "0b1", "-", "1.2.3", "5", "true"
    ]);
    assert_eq!(node(&text).to_json(), expected);
}

#[test]
fn json_is_read_by_the_same_parser() {
    let text = "{\n\t\"a\": [1, 2.5, \"x\\n\\u00e4\\/\"],\n\t\"b\":{\"c\":null},\"d\":true}\n";
    let expected: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(node(text).to_json(), expected);
}

#[test]
fn json_surrogate_pairs_are_one_character_and_keep_positions() {
    let text = r#"{"a": "x\ud83d\ude00\\ud83d", "b": "end"}"#;
    let tree = node(text);
    assert_eq!(tree.to_json(), json!({"a": "x😀\\ud83d", "b": "end"}));
    let source = source(text);
    assert_eq!(source.slice(tree.get("b").unwrap().span), "\"end\"");
    assert_eq!(codes(r#"{"a": "\ud83d"}"#), ["SOURCE_SYNTAX"]);
}

#[test]
fn spans_cover_the_values_and_nothing_more() {
    let text = "ä: \"ö x\"  # \"no\"\nb: [1, {c: 'it''s' }]   # no\nd:\n  e: |\n    one\n    two\nf: &x plain text\n";
    let (source, tree) = (source(text), node(text));
    let at = |path: &[&str]| {
        let found = path.iter().fold(&tree, |node, key| node.get(key).unwrap());
        source.slice(found.span)
    };
    assert_eq!(at(&["ä"]), "\"ö x\"");
    assert_eq!(at(&["b"]), "[1, {c: 'it''s' }]");
    let inner = &tree.get("b").unwrap().as_seq().unwrap()[1];
    assert_eq!(source.slice(inner.span), "{c: 'it''s' }");
    assert_eq!(source.slice(inner.get("c").unwrap().span), "'it''s'");
    assert_eq!(at(&["d"]), "e: |\n    one\n    two");
    assert_eq!(at(&["d", "e"]), "one\n    two");
    assert_eq!(at(&["f"]), "&x plain text");
    assert_eq!(source.slice(tree.as_map().unwrap()[0].key_span), "ä");
}

#[test]
fn aliases_are_copies_that_stand_where_the_alias_stands() {
    let text = "a: &x [1, {k: v}]\nb: *x\n*y : 1\n".replace("*y", "*n");
    let text = format!("n: &n name\n{text}");
    let tree = node(&text);
    assert_eq!(
        tree.to_json(),
        json!({"n": "name", "a": [1, {"k": "v"}], "b": [1, {"k": "v"}], "name": 1})
    );
    assert_eq!(source(&text).slice(tree.get("b").unwrap().span), "*x");
}

#[test]
fn merge_keys_fill_in_what_is_not_written() {
    let text = "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\none:\n  <<: *b\n  x: 9\ntwo:\n  <<: [*b, *m]\n";
    let tree = node(text).to_json();
    assert_eq!(tree["one"], json!({"x": 9, "y": 2}));
    assert_eq!(tree["two"], json!({"x": 1, "y": 2, "z": 4}));
    assert_eq!(codes("a: {<<: 5}"), ["SOURCE_BAD_MERGE"]);
    assert_eq!(node("'<<': 5").to_json(), json!({"<<": 5}));
}

#[test]
fn keys_become_their_text() {
    let expected = json!({"1": "a", "true": "b", "1.50": "c", "null": "d", "": "e"});
    assert_eq!(
        node("1: a\ntrue: b\n1.50: c\nnull: d\n'': e\n").to_json(),
        expected
    );
    assert_eq!(codes("? [a, b]\n: 1\n"), ["SOURCE_BAD_KEY"]);
    assert_eq!(codes("{{a: 1}: 2, b: 3}"), ["SOURCE_BAD_KEY"]);
    assert_eq!(codes(": 1"), ["SOURCE_BAD_KEY"]);
}

#[test]
fn core_tags_are_honoured_and_others_refused() {
    let text = "[!!str 12, !!int '12', !!float 3, !!bool 'true', !!null '', !!seq [1], !!map {a: 1}, ! 5, !!str ]";
    assert_eq!(
        node(text).to_json(),
        json!(["12", 12, 3.0, true, null, [1], {"a": 1}, "5", ""])
    );
    assert_eq!(codes("a: !custom 1"), ["SOURCE_BAD_TAG"]);
    assert_eq!(codes("a: !!binary aGk="), ["SOURCE_BAD_TAG"]);
    assert_eq!(codes("a: !!int abc"), ["SOURCE_BAD_TAG"]);
    assert_eq!(codes("a: !!seq {b: 1}"), ["SOURCE_BAD_TAG"]);
    assert_eq!(
        codes("%TAG !e! tag:x,1:\n---\na: !e!b 1"),
        ["SOURCE_BAD_TAG"]
    );
}

#[test]
fn numbers_that_cannot_be_kept_are_refused() {
    expect![[r#"
        error[SOURCE_BAD_NUMBER]: `9223372036854775808` does not fit a 64-bit integer
         --> t.yaml:1:4
          |
        1 | a: 9223372036854775808
          |    ^^^^^^^^^^^^^^^^^^^
          |
          = help: put it in quotes if it is not for counting

        error[SOURCE_BAD_NUMBER]: `-.inf` is not a finite number
         --> t.yaml:2:4
          |
        2 | b: -.inf
          |    ^^^^^
          |
          = help: put it in quotes if it is meant as text
    "#]]
    .assert_eq(&shown("a: 9223372036854775808\nb: -.inf\n"));
    assert_eq!(codes("[.nan, 1e999]"), ["SOURCE_BAD_NUMBER"; 2]);
    assert_eq!(node("-9223372036854775808").as_int(), Some(i64::MIN));
}

#[test]
fn duplicate_keys_name_the_first_position() {
    expect![[r#"
        error[SOURCE_DUPLICATE_KEY]: the key `a` is already used at line 2, column 3
         --> t.yaml:4:3
          |
        4 |   "a": 3
          |   ^^^
          |
          = help: keep one of the two
    "#]]
    .assert_eq(&shown("steps:\n  a: 1\n  b: 2\n  \"a\": 3\n"));
}

#[test]
fn all_problems_are_reported_once_even_behind_aliases() {
    let text = "a: &a\n  k: 1\n  k: 2\n  n: .nan\nb: *a\nc: [*a, *a]\nd: 1\nd: 2\n";
    assert_eq!(
        codes(text),
        [
            "SOURCE_DUPLICATE_KEY",
            "SOURCE_BAD_NUMBER",
            "SOURCE_DUPLICATE_KEY"
        ]
    );
}

#[test]
fn aliases_without_an_anchor_or_inside_of_it_are_refused() {
    expect![[r#"
        error[SOURCE_BAD_ALIAS]: there is no anchor of this name above
         --> t.yaml:1:4
          |
        1 | a: *nope
          |    ^
          |
          = help: define it first with `&name`, or put the text in quotes if `*` is meant literally
    "#]]
    .assert_eq(&shown("a: *nope\n"));
    assert_eq!(codes("a: &x [1, *x]"), ["SOURCE_BAD_ALIAS"]);
    assert_eq!(codes("&x a: {b: &y {c: *y}}"), ["SOURCE_BAD_ALIAS"]);
    // A name may be used again; the alias means the one above it.
    assert_eq!(
        node("a: &x 1\nb: &x 2\nc: *x").to_json(),
        json!({"a": 1, "b": 2, "c": 2})
    );
}

#[test]
fn a_definition_is_one_document() {
    expect![[r#"
        error[SOURCE_MANY_DOCUMENTS]: a second document begins here; a definition is one document
         --> t.yaml:2:1
          |
        2 | ---
          | ^^^
          |
          = help: put each definition into its own file, or remove the `---`
    "#]]
    .assert_eq(&shown("a: 1\n---\nb: 2\n"));
    assert_eq!(node("---\na: 1\n...\n").to_json(), json!({"a": 1}));
}

#[test]
fn nothing_but_space_and_comments_is_empty() {
    for text in [
        "",
        " \n\t\n",
        "# only\n# comments",
        "---\n",
        "---\n# x\n...",
    ] {
        assert_eq!(codes(text), ["SOURCE_EMPTY"], "{text:?}");
    }
    assert!(node("null").is_null());
}

#[test]
fn syntax_errors_have_a_position_and_the_parsers_words() {
    expect![[r#"
        error[SOURCE_SYNTAX]: mapping values are not allowed in this context
         --> t.yaml:2:5
          |
        2 | b: c: d
          |     ^
          |
          = help: check the indentation; put a text that holds `: ` in quotes
    "#]]
    .assert_eq(&shown("a: 1\nb: c: d\n"));
    expect![[r#"
        error[SOURCE_SYNTAX]: tabs disallowed within this context (block indentation)
         --> t.yaml:2:1
          |
        2 |     - 1
          | ^^^^
          |
          = help: indent with spaces
    "#]]
    .assert_eq(&shown("a:\n\t- 1\n"));
    expect![[r#"
        error[SOURCE_SYNTAX]: while parsing a flow sequence, expected ',' or ']'
         --> t.yaml:2:1
          |
        2 |
          | ^
          |
          = help: before this a `,` or the closing `]` is missing
    "#]]
    .assert_eq(&shown("a: [1, 2\n"));
    expect![[r#"
        error[SOURCE_SYNTAX]: while scanning a plain scalar, found a tab
         --> t.yaml:2:1
          |
        2 |     b: 2
          | ^^^^
          |
          = help: indent with spaces
    "#]]
    .assert_eq(&shown("a: 1\n\tb: 2\n"));
    expect![[r#"
        error[SOURCE_SYNTAX]: while parsing a block collection, did not find expected '-' indicator
         --> t.yaml:3:3
          |
        3 |   kind: b
          |   ^
          |
          = help: check the indentation: what belongs to one list or mapping begins in the same column
    "#]].assert_eq(&shown("steps:\n - name: a\n  kind: b\n"));
}

#[test]
fn control_characters_are_refused_before_they_can_hide_text() {
    expect![[r#"
        error[SOURCE_BAD_CHARACTER]: the control character U+0000 is not allowed
         --> t.yaml:1:5
          |
        1 | a: 1␀
          |     ^
          |
          = help: remove it, or write "\x00" in double quotes
    "#]]
    .assert_eq(&shown("a: 1\0\nb: 2\n"));
}

#[test]
fn an_unknown_tag_is_named_as_it_resolves() {
    let text = shown("a: !!binary x\n");
    assert!(text.contains("`tag:yaml.org,2002:binary`"), "{text}");
    assert!(shown("a: !mine x\n").contains("`!mine`"));
}
