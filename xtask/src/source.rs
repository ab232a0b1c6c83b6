//! Rust source as the checks see it: code without comments and without the insides of strings, the
//! string literals on their own, and the functions with what stands above them.
//!
//! This is a scanner, not a parser. It must never mistake a comment or a string for code; beyond
//! that it may be approximate.

/// The text of one file, split into code and string literals.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text with comments and the insides of literals blanked, byte for byte.
    pub(crate) code: String,
    pub(crate) strings: Vec<Literal>,
    raw: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    /// The position of the first quote (or of the `r`), in bytes.
    pub(crate) offset: usize,
    /// The text between the quotes, escapes left as written.
    pub(crate) text: String,
}

/// A function, with what is written above it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// The function has the attribute `#[test]`, or one that ends in `::test`.
    pub(crate) is_test: bool,
    /// The comment lines between the function and whatever comes before it.
    pub(crate) comments: Vec<String>,
}

impl Source {
    pub(crate) fn scan(text: &str) -> Self {
        let mut scanner = Scanner {
            text,
            bytes: text.as_bytes(),
            code: text.as_bytes().to_vec(),
            strings: Vec::new(),
        };
        scanner.run();
        Self {
            code: String::from_utf8_lossy(&scanner.code).into_owned(),
            strings: scanner.strings,
            raw: text.to_owned(),
        }
    }

    /// The line, from 1, that holds a byte.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        let before = &self.code.as_bytes()[..offset.min(self.code.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Where the unit tests at the end of a file begin, or the end of the file. Tests in a file of their own
    /// (`mod tests;`) end nothing.
    pub(crate) fn tests_start(&self) -> usize {
        let mut from = 0;
        while let Some(found) = self.code[from..].find("#[cfg(test)]") {
            let at = from + found;
            from = at + "#[cfg(test)]".len();
            let module = self.code[from..].trim_start().strip_prefix("mod ");
            let body = module.map(|it| it[leading_word(it).len()..].trim_start());
            if body.is_some_and(|it| it.starts_with('{')) {
                return at;
            }
        }
        self.code.len()
    }

    /// Every `fn name` of the file.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let code: Vec<&str> = self.code.lines().collect();
        let raw: Vec<&str> = self.raw.lines().collect();
        let mut functions = Vec::new();
        for (index, line) in code.iter().enumerate() {
            for at in words(line, "fn") {
                let name = leading_word(line[at + 2..].trim_start());
                if name.is_empty() {
                    continue;
                }
                let mut attributes = line[..at].to_owned();
                let mut comments = Vec::new();
                for above in (0..index).rev() {
                    let shown = raw[above].trim();
                    let bare = code[above].trim();
                    if bare.is_empty() && shown.starts_with("//") {
                        comments.insert(0, shown.trim_start_matches(['/', '!']).trim().to_owned());
                    } else if bare.starts_with("#[") || bare.ends_with([']', ',', '(']) {
                        attributes.push_str(bare);
                    } else {
                        break;
                    }
                }
                functions.push(Function {
                    name: name.to_owned(),
                    line: index + 1,
                    is_test: ["#[test]", "::test]", "::test("]
                        .iter()
                        .any(|mark| attributes.contains(mark)),
                    comments,
                });
            }
        }
        functions
    }
}

/// Where `word` stands on its own in `code`.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let free = |neighbour: Option<char>| !neighbour.is_some_and(is_word);
        (free(before) && free(after)).then_some(at)
    })
}

/// The identifier a text begins with; empty if it begins with something else.
pub(crate) fn leading_word(text: &str) -> &str {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    &text[..end]
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    code: Vec<u8>,
    strings: Vec<Literal>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        let mut at = 0;
        while at < self.bytes.len() {
            at = match self.bytes[at] {
                b'/' if self.byte(at + 1) == Some(b'/') => self.line_comment(at),
                b'/' if self.byte(at + 1) == Some(b'*') => self.block_comment(at),
                b'"' => self.string(at),
                b'r' if self.raw_hashes(at).is_some() => self.raw_string(at),
                b'\'' => self.quote(at),
                _ => at + 1,
            };
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    fn blank(&mut self, from: usize, to: usize) {
        for byte in &mut self.code[from..to] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }

    fn line_comment(&mut self, from: usize) -> usize {
        let to = self.text[from..]
            .find('\n')
            .map_or(self.bytes.len(), |length| from + length);
        self.blank(from, to);
        to
    }

    fn block_comment(&mut self, from: usize) -> usize {
        let mut depth = 0;
        let mut at = from;
        while at < self.bytes.len() {
            match (self.bytes[at], self.byte(at + 1)) {
                (b'/', Some(b'*')) => {
                    depth += 1;
                    at += 2;
                }
                (b'*', Some(b'/')) => {
                    depth -= 1;
                    at += 2;
                    if depth == 0 {
                        break;
                    }
                }
                _ => at += 1,
            }
        }
        self.blank(from, at);
        at
    }

    fn string(&mut self, from: usize) -> usize {
        let mut at = from + 1;
        while at < self.bytes.len() && self.bytes[at] != b'"' {
            at += if self.bytes[at] == b'\\' { 2 } else { 1 };
        }
        let end = at.min(self.bytes.len());
        self.literal(from, from + 1, end);
        end + 1
    }

    /// How many `#` a raw string that begins at an `r` has, if one begins there.
    fn raw_hashes(&self, at: usize) -> Option<usize> {
        let before = |back: usize| at.checked_sub(back).and_then(|at| self.byte(at));
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        let prefixed = matches!(before(1), Some(b'b' | b'c')) && !before(2).is_some_and(is_word);
        if before(1).is_some_and(is_word) && !prefixed {
            return None;
        }
        let hashes = self.bytes[at + 1..]
            .iter()
            .take_while(|byte| **byte == b'#')
            .count();
        (self.byte(at + 1 + hashes) == Some(b'"')).then_some(hashes)
    }

    fn raw_string(&mut self, from: usize) -> usize {
        let hashes = self.raw_hashes(from).unwrap_or(0);
        let start = from + 1 + hashes + 1;
        let close = format!("\"{}", "#".repeat(hashes));
        let end = self.text[start..]
            .find(&close)
            .map_or(self.bytes.len(), |length| start + length);
        self.literal(from, start, end);
        end + close.len()
    }

    fn literal(&mut self, offset: usize, start: usize, end: usize) {
        self.strings.push(Literal {
            offset,
            text: self.text.get(start..end).unwrap_or_default().to_owned(),
        });
        self.blank(start, end);
    }

    /// A character literal is blanked; a lifetime is code.
    fn quote(&mut self, from: usize) -> usize {
        if self.byte(from + 1) == Some(b'\\') {
            let mut at = from + 3;
            while at < self.bytes.len() && self.bytes[at] != b'\'' {
                at += 1;
            }
            self.blank(from + 1, at.min(self.bytes.len()));
            return at + 1;
        }
        let Some(inside) = self.text[from + 1..].chars().next() else {
            return from + 1;
        };
        let close = from + 1 + inside.len_utf8();
        if self.byte(close) == Some(b'\'') {
            self.blank(from + 1, close);
            return close + 1;
        }
        from + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(text: &str) -> Vec<String> {
        let source = Source::scan(text);
        source.strings.into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "a /* x /* y */ z */ b // c\n\"d\" r#\"e \"q\" \"# 'f' '\\'' g";
        let source = Source::scan(text);
        assert_eq!(source.code.len(), text.len());
        let left: Vec<&str> = source.code.split_whitespace().collect();
        assert_eq!(left.first(), Some(&"a"));
        assert_eq!(left.get(1), Some(&"b"));
        assert_eq!(left.last(), Some(&"g"));
        for gone in ['x', 'y', 'z', 'c', 'd', 'e', 'q', 'f'] {
            assert!(!source.code.contains(gone), "{gone} in {}", source.code);
        }
        assert_eq!(strings(text), ["d", "e \"q\" "]);
    }

    #[test]
    fn lifetimes_and_raw_identifiers_stay_code() {
        let source = Source::scan("fn f<'a>(r#type: &'a str, c: char) { c == 'é' || c == '\"' }");
        assert!(source.code.contains("<'a>(r#type: &'a str"));
        assert!(source.strings.is_empty());
    }

    #[test]
    fn escapes_do_not_end_a_string() {
        assert_eq!(
            strings(r#"x("a\"b", b"c", br"d\", "")"#),
            ["a\\\"b", "c", "d\\", ""]
        );
    }

    #[test]
    fn unfinished_literals_do_not_panic() {
        for text in ["\"abc", "\"abc\\", "r#\"abc", "'\\", "'", "/* a", "r", "//"] {
            Source::scan(text);
        }
    }

    #[test]
    fn functions_know_their_attributes_and_comments() {
        let text = "\nfn plain() {}\n\n// also proves: C2\n#[test]\n#[should_panic]\nfn c1_x() {}\n#[tokio::test] async fn y() {}\n";
        let functions = Source::scan(text).functions();
        let seen: Vec<_> = functions
            .iter()
            .map(|it| (it.name.as_str(), it.line, it.is_test))
            .collect();
        assert_eq!(
            seen,
            [("plain", 2, false), ("c1_x", 7, true), ("y", 8, true)]
        );
        assert_eq!(functions[1].comments, ["also proves: C2"]);
    }

    #[test]
    fn tests_begin_at_the_test_module() {
        let text = "#[cfg(test)]\nmod tests;\nfn a() {}\n#[cfg(test)]\nuse x;\n#[cfg(test)]\nmod tests {}\n";
        let source = Source::scan(text);
        assert_eq!(source.line_of(source.tests_start()), 6);
    }
}
