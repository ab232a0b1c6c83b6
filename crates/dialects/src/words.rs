//! How messages word things: quoting what the author wrote, listing what is
//! allowed, finding the word that was probably meant.
//!
//! Not here: the messages themselves. Everything that quotes the input goes
//! through [`quote`], so no message can carry control characters to a terminal
//! or grow with the input.

/// How much of the author's text a message repeats.
const QUOTE_CHARS: usize = 60;

/// Longer words are not compared: the distance costs the product of lengths,
/// and nobody misspells a known key into a page of text.
const COMPARE_BYTES: usize = 64;

/// `text` in backticks, shortened, with invisible characters escaped.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::from("`");
    for (at, c) in text.chars().enumerate() {
        if at == QUOTE_CHARS {
            out.push('…');
            break;
        }
        if is_unsafe(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push('`');
    out
}

/// Whether a character can move the cursor, hide text or reorder it.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The words in quotes, with `or` before the last: "`a`, `b` or `c`".
#[must_use]
pub fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::from("nothing"),
        [only] => quote(only),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(|word| quote(word)).collect();
            format!("{} or {}", rest.join(", "), quote(last))
        }
    }
}

/// The words in quotes, separated by commas: "`a`, `b`, `c`". A word that occurs twice is listed once.
#[must_use]
pub fn list(words: &[&str]) -> String {
    // What the author wrote twice need not be read twice.
    let fresh = |(at, word): &(usize, &&str)| !words[..*at].contains(word);
    let fresh = words.iter().enumerate().filter(fresh);
    let words: Vec<String> = fresh.map(|(_, word)| quote(word)).collect();
    words.join(", ")
}

/// The known word that `given` was probably meant to be.
///
/// ```
/// use stepwell_dialects::words::nearest;
/// assert_eq!(nearest("retires", &["retries", "timeout"]), Some("retries"));
/// assert_eq!(nearest("timeout_ms", &["timeoutMs"]), Some("timeoutMs"));
/// assert_eq!(nearest("color", &["retries", "timeout"]), None);
/// ```
#[must_use]
pub fn nearest<'w>(given: &str, known: &[&'w str]) -> Option<&'w str> {
    if given.is_empty() || given.len() > COMPARE_BYTES {
        return None;
    }
    let given_plain = plain(given);
    let mut best: Option<(f64, &'w str)> = None;
    for word in known.iter().copied() {
        if word.len() > COMPARE_BYTES {
            continue;
        }
        let word_plain = plain(word);
        let distance = strsim::damerau_levenshtein(&given_plain, &word_plain);
        let longest = given_plain.chars().count().max(word_plain.chars().count());
        let alike = strsim::jaro_winkler(&given_plain, &word_plain);
        // One slip per three letters is a slip; more is another word, unless
        // the two share a long beginning (`description` for `desc`).
        let near = distance * 3 <= longest || alike >= 0.9;
        if near && best.is_none_or(|(score, _)| alike > score) {
            best = Some((alike, word));
        }
    }
    best.map(|(_, word)| word)
}

/// Case and word separators are the commonest difference between the
/// languages (`timeout_ms`, `timeoutMs`), so they do not count as a distance.
fn plain(word: &str) -> String {
    word.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}
