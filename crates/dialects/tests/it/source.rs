//! Text, encodings and positions.

use stepwell_dialects::source::MAX_SOURCE_BYTES;
use stepwell_dialects::{Source, Span};

#[test]
fn bytes_that_are_not_utf8_are_refused_with_their_offset() {
    let problem = Source::from_bytes("t.yaml", b"name: \xff").unwrap_err();
    assert_eq!(problem.code, "SOURCE_NOT_UTF8");
    assert!(problem.message.contains("byte 6"), "{}", problem.message);
}

#[test]
fn a_source_over_the_limit_is_refused() {
    let problem = Source::from_bytes("t.yaml", &vec![b'a'; MAX_SOURCE_BYTES + 1]).unwrap_err();
    assert_eq!(problem.code, "SOURCE_TOO_LARGE");
    assert!(Source::from_bytes("t.yaml", &vec![b'a'; MAX_SOURCE_BYTES]).is_ok());
}

#[test]
fn a_byte_order_mark_is_dropped() {
    let source = Source::from_bytes("t.yaml", b"\xef\xbb\xbfa: 1").unwrap();
    assert_eq!(source.text(), "a: 1");
}

#[test]
fn columns_count_characters_from_one() {
    let source = crate::source("a: 1\näöü: x\r\nlast\rend");
    assert_eq!(source.line_col(0), (1, 1));
    assert_eq!(source.line_col(5), (2, 1));
    assert_eq!(source.line_col(5 + "äöü".len()), (2, 4));
    assert_eq!(source.line_col(source.text().find("last").unwrap()), (3, 1));
    assert_eq!(source.line_col(source.text().find("end").unwrap()), (4, 1));
}

#[test]
fn offsets_that_do_not_fit_are_moved_back() {
    let source = crate::source("ä");
    assert_eq!(source.line_col(1), (1, 1));
    assert_eq!(source.line_col(999), (1, 2));
    assert_eq!(source.slice(Span::new(1, 50)), "");
}
