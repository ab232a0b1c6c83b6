//! No secret is left in what leaves the worker, in whatever form a program prints it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;
use stepwell_worker::secrets::Redactor;

#[test]
fn secrets_are_taken_out_in_every_form_that_programs_print() {
    let redactor = Redactor::new();
    assert!(matches!(
        redactor.text("anything"),
        std::borrow::Cow::Borrowed(_)
    ));
    let secret = "p@ss \"word\"/1";
    redactor.add(secret);
    redactor.add("größe😀");
    assert_eq!(
        redactor.text(r"\u00f6 gr\u00f6\u00dfe\ud83d\ude00"),
        r"\u00f6 ***"
    );
    for text in [
        secret.to_owned(),
        STANDARD.encode(secret),
        STANDARD.encode(format!("loader:{secret}")),
        STANDARD.encode(format!("x{secret}yy")),
        "p%40ss%20%22word%22%2F1".to_owned(),
        "p%40ss+%22word%22%2f1".to_lowercase(),
        json!({ "key": secret }).to_string(),
    ] {
        let clean = redactor.text(&text);
        assert!(clean.contains("***"), "{text} became {clean}");
        assert!(clean.len() < text.len(), "{text} became {clean}");
    }
    assert!(!format!("{redactor:?}").contains("word"));
}

#[test]
fn secrets_that_overlap_or_touch_leave_nothing() {
    let redactor = Redactor::new();
    for secret in ["abcdef", "defghi", "abcd"] {
        redactor.add(secret);
    }
    assert_eq!(redactor.text("<abcdefghi>"), "<***>");
    assert_eq!(redactor.text("abcdabcd abcd"), "*** ***");
}

#[test]
fn short_texts_and_plain_fields_are_no_secrets() {
    let redactor = Redactor::new();
    redactor.add("abc");
    redactor.add_value(&json!({
        "type": "bearer", "host": "localhost", "port": 5432, "User": "loader", "token": "t-123456",
    }));
    let text = "abc bearer localhost 5432 loader";
    assert_eq!(redactor.text(text), text);
    assert_eq!(redactor.text("t-123456"), "***");
}

#[test]
fn values_lose_secrets_wherever_they_are() {
    let redactor = Redactor::new();
    redactor.add("hunter22");
    redactor.add("123456");
    let mut value = json!({ "a": ["x hunter22"], "hunter22": 1, "n": 123456, "m": 9123456 });
    redactor.json(&mut value);
    assert_eq!(
        value,
        json!({ "a": ["x ***"], "***": 1, "n": "***", "m": 9_123_456 })
    );
}

#[test]
fn parts_of_secrets_are_taken_out_alone() {
    let redactor = Redactor::new();
    redactor.add("postgres://loader:p%40ss%2Fword@db.example/main");
    redactor.add_value(&json!(
        "{\"user\":\"loader\",\"inner\":{\"key\":\"deep-key-1\"}}"
    ));
    for text in ["p@ss/word", "p%40ss%2Fword", "cEBzcy93b3Jk", "deep-key-1"] {
        assert_eq!(redactor.text(text), "***", "{text}");
    }
    let plain = "loader at db.example, main";
    assert_eq!(redactor.text(plain), plain);
}

#[test]
fn quoted_forms_are_taken_out() {
    let redactor = Redactor::new();
    redactor.add("it's $5 & \"more\"");
    for text in [
        r#"it'\''s $5 & "more""#,
        r#"it\'s\ \$5\ \&\ \"more\""#,
        r#"it's \$5 & \"more\""#,
        r#"it''s $5 & "more""#,
        "it&#39;s $5 &amp; &quot;more&quot;",
    ] {
        let clean = redactor.text(text);
        assert_eq!(clean, "***", "{text}");
    }
}

proptest! {
    #[test]
    fn a_window_shows_no_part_of_a_secret(
        secret in "[a-m]{8,20}",
        before in "[n-z]{0,30}",
        after in "[n-z]{0,30}",
        cut in 0_usize..80,
    ) {
        let redactor = Redactor::new();
        redactor.add(&secret);
        let text = format!("{before}{secret}{after}");
        let cut = cut.min(text.len());
        let pieces = [0..cut, cut..text.len()];
        let clean: Vec<u8> = pieces
            .into_iter()
            .flat_map(|piece| redactor.window(text.as_bytes(), piece))
            .collect();
        let clean = String::from_utf8(clean).unwrap();
        prop_assert!(!clean.contains(|c: char| ('a'..='m').contains(&c)), "{}", clean);
        prop_assert_eq!(clean.replace('*', ""), format!("{before}{after}"));
    }

    #[test]
    fn no_secret_is_left_whatever_surrounds_it(
        secret in "[^\\s*]{4,20}",
        before in ".{0,20}",
        after in ".{0,20}",
    ) {
        let redactor = Redactor::new();
        redactor.add(&secret);
        let text = format!("{before}{secret}{after}");
        prop_assert!(!redactor.text(&text).contains(&secret));
        let mut value = json!({ "deep": [text] });
        redactor.json(&mut value);
        prop_assert!(!value["deep"][0].as_str().unwrap().contains(&secret));
    }
}
