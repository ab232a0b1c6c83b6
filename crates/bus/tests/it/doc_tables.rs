//! The tables of docs/sinks.md are written from the table of kinds.
//!
//! `STEPWELL_WRITE_DOCS=1 cargo test -p stepwell-bus --all-features --test it doc_tables` rewrites them.

use std::path::Path;

#[test]
fn the_page_has_the_tables_of_the_kinds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sinks.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once("<!-- kinds: ").unwrap();
    let (how, rest) = rest.split_once("-->\n").unwrap();
    let (_, tail) = rest.split_once("<!-- end of kinds -->").unwrap();
    let tables = stepwell_bus::tables();
    let wanted = format!("{head}<!-- kinds: {how}-->\n{tables}<!-- end of kinds -->{tail}");
    if std::env::var_os("STEPWELL_WRITE_DOCS").is_some() {
        std::fs::write(&path, wanted).unwrap();
        return;
    }
    assert!(
        text == wanted,
        "docs/sinks.md does not have the tables of the code; run `STEPWELL_WRITE_DOCS=1 cargo test -p stepwell-bus \
         --all-features --test it doc_tables`"
    );
}
