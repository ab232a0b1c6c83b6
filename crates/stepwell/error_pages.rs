//! Where the explanations of error codes are in `docs`: one file for each code in `docs/errors`, and for a code of
//! one tool a section `### CODE` of the page of the tool. `build.rs` builds them into the binary, and
//! `cargo xtask tidy` checks them with the same functions.

/// Whether a word has the form of a code: capitals, digits and underscores, from a capital.
pub(crate) fn is_code(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.len() > 2
        && text != "README"
        && text
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// The codes that the page of a tool explains. Each explanation is a page of its own: its headings are raised by
/// two levels.
pub(crate) fn sections(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut is_inside = false;
    let mut is_program = false;
    for line in page.lines() {
        is_program ^= line.starts_with("```");
        let level = match is_program {
            true => 0,
            false => line.bytes().take_while(|byte| *byte == b'#').count(),
        };
        if (1..=3).contains(&level) {
            let code = line.strip_prefix("### ").filter(|title| is_code(title));
            is_inside = code.is_some();
            found.extend(code.map(|code| (code.to_owned(), String::new())));
        }
        if let Some((_, text)) = found.last_mut().filter(|_| is_inside) {
            text.push_str(if level > 2 { &line[2..] } else { line });
            text.push('\n');
        }
    }
    for (_, text) in &mut found {
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    found
}
