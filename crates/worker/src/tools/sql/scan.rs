//! Tells apart what a text of SQL is made of: quotes, comments, words, placeholders. It knows no
//! grammar beyond that, and it takes any text: what is not closed runs to the end.

/// The database that a statement is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    Postgres,
    Sqlite,
    Duckdb,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind<'a> {
    /// White space or a comment.
    Blank,
    /// A text, a quoted name, a dollar quote.
    Quoted,
    /// A keyword, a name or a number.
    Word,
    /// The end of a statement, unless something is open around it.
    Semicolon,
    /// Where a parameter's value goes, if the task has parameters of that sort.
    Placeholder(Placeholder<'a>),
    /// Any other character, such as an operator or a bracket.
    Other,
}

/// How a placeholder refers to a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder<'a> {
    /// By number, from 1: `$1`, `?1`.
    Number(usize),
    /// The next parameter of the list: `?`.
    Next,
    /// By name: `:name`, `%(name)s`.
    Name(&'a str),
}

/// A piece of the text. All tokens after each other are the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SqlToken<'a> {
    pub(crate) kind: TokenKind<'a>,
    pub(crate) text: &'a str,
    pub(crate) start: usize,
}

/// Takes a text apart.
pub(crate) fn scan(text: &str, dialect: SqlDialect) -> Vec<SqlToken<'_>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let rest = &text[start..];
        let before = text[..start].chars().next_back();
        let (kind, len) = next(rest, before, dialect);
        tokens.push(SqlToken {
            kind,
            text: &rest[..len],
            start,
        });
        start += len;
    }
    tokens
}

fn next<'a>(rest: &'a str, before: Option<char>, dialect: SqlDialect) -> (TokenKind<'a>, usize) {
    let first = rest.chars().next().unwrap_or(' ');
    let postgres_like = dialect != SqlDialect::Sqlite;
    if first.is_whitespace() {
        let len = rest.find(|c: char| !c.is_whitespace());
        return (TokenKind::Blank, len.unwrap_or(rest.len()));
    }
    if rest.starts_with("--") {
        return (
            TokenKind::Blank,
            rest.find('\n').map_or(rest.len(), |at| at + 1),
        );
    }
    if rest.starts_with("/*") {
        return (TokenKind::Blank, block_comment(rest, postgres_like));
    }
    if postgres_like && (rest.starts_with("E'") || rest.starts_with("e'")) {
        return (TokenKind::Quoted, 1 + quoted(&rest[1..], '\'', true));
    }
    match first {
        '\'' | '"' => return (TokenKind::Quoted, quoted(rest, first, false)),
        '`' if dialect == SqlDialect::Sqlite => {
            return (TokenKind::Quoted, quoted(rest, '`', false));
        }
        '[' if dialect == SqlDialect::Sqlite => {
            return (
                TokenKind::Quoted,
                rest.find(']').map_or(rest.len(), |at| at + 1),
            );
        }
        ';' => return (TokenKind::Semicolon, 1),
        _ => {}
    }
    if let Some(len) = dollar_quote(rest).filter(|_| postgres_like) {
        return (TokenKind::Quoted, len);
    }
    if let Some((place, len)) = place(rest, before, dialect) {
        return (TokenKind::Placeholder(place), len);
    }
    if is_word(first) {
        let inside = |c: char| is_word(c) || c == '$';
        let len = rest.find(|c| !inside(c)).unwrap_or(rest.len());
        return (TokenKind::Word, len);
    }
    // A cast is one token, so that what follows its second colon is no parameter.
    let len = match rest.starts_with("::") {
        true => 2,
        false => first.len_utf8(),
    };
    (TokenKind::Other, len)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii() && !c.is_whitespace()
}

/// The length of a comment. PostgreSQL nests them, SQLite does not.
fn block_comment(rest: &str, nested: bool) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (2, 1);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            b"/*" if nested => {
                depth += 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of what stands in quotes: a doubled quote is one of the text, and so is one behind a
/// backslash if those escape.
fn quoted(rest: &str, quote: char, backslash: bool) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if backslash => at += 2,
            b if b == quote as u8 => {
                if bytes.get(at + 1) != Some(&b) {
                    return at + 1;
                }
                at += 2;
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of `$tag$ … $tag$`, if one begins here.
fn dollar_quote(rest: &str) -> Option<usize> {
    let tag = rest.strip_prefix('$')?;
    let len = tag.find(|c| !is_word(c))?;
    if !tag[len..].starts_with('$') || tag.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let opening = len + 2;
    let closing = &rest[..opening];
    let end = rest[opening..].find(closing);
    Some(end.map_or(rest.len(), |at| opening + at + closing.len()))
}

fn place<'a>(
    rest: &'a str,
    before: Option<char>,
    dialect: SqlDialect,
) -> Option<(Placeholder<'a>, usize)> {
    if let Some(name) = rest.strip_prefix("%(") {
        let len = name.find(")s").filter(|len| is_name(&name[..*len]))?;
        return Some((Placeholder::Name(&name[..len]), len + 4));
    }
    // SQLite finds its own.
    if dialect == SqlDialect::Sqlite {
        return None;
    }
    if let Some(name) = rest.strip_prefix(':') {
        // `1:n` and `a[1]:n` are slices, `'key':n` belongs to a mapping.
        let slice = |c: char| is_word(c) || matches!(c, ')' | ']' | '\'' | '"');
        if before.is_some_and(slice) {
            return None;
        }
        let len = name_len(name)?;
        return Some((Placeholder::Name(&name[..len]), len + 1));
    }
    let marks: &[char] = match dialect {
        SqlDialect::Duckdb => &['$', '?'],
        SqlDialect::Postgres | SqlDialect::Sqlite => &['$'],
    };
    let number = rest.strip_prefix(marks)?;
    let digits = number.find(|c: char| !c.is_ascii_digit());
    let digits = digits.unwrap_or(number.len());
    if digits > 0 {
        let number = number[..digits].parse().unwrap_or(usize::MAX);
        return Some((Placeholder::Number(number), digits + 1));
    }
    if rest.starts_with('?') {
        return Some((Placeholder::Next, 1));
    }
    let len = name_len(number).filter(|_| dialect == SqlDialect::Duckdb)?;
    Some((Placeholder::Name(&number[..len]), len + 1))
}

fn is_name(text: &str) -> bool {
    name_len(text) == Some(text.len())
}

fn name_len(text: &str) -> Option<usize> {
    let len = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let named = len > 0 && !text.starts_with(|c: char| c.is_ascii_digit());
    named.then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str, dialect: SqlDialect) -> Vec<&str> {
        let tokens = scan(text, dialect).into_iter();
        let places = tokens.filter(|token| matches!(token.kind, TokenKind::Placeholder(_)));
        places.map(|token| token.text).collect()
    }

    #[test]
    fn placeholders_are_found_outside_quotes_and_comments() {
        let text = "SELECT $1, :name, %(other)s, ':no', \":no\", $$:no $2$$, $t$:no$t$, E'\\':no' \
                    -- :no\n /* :no /* $3 */ :no */ , x::text, a[1:n], a$1, :last";
        let found = places(text, SqlDialect::Postgres);
        assert_eq!(found, ["$1", ":name", "%(other)s", ":last"]);
    }

    #[test]
    fn each_engine_has_its_own_marks() {
        assert_eq!(places("a ? b", SqlDialect::Postgres), [""; 0]);
        assert_eq!(places("? ?2 $x", SqlDialect::Duckdb), ["?", "?2", "$x"]);
        assert_eq!(places("{'a':x, b:y}", SqlDialect::Duckdb), [""; 0]);
        assert_eq!(places(":a ? %(b)s", SqlDialect::Sqlite), ["%(b)s"]);
    }
}
