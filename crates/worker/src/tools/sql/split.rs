//! Cuts a text of SQL into its statements. Each piece ends behind its semicolon; all pieces after
//! each other are the text.

use super::scan::{SqlDialect, SqlToken, TokenKind, scan};

/// The pieces of a text.
pub(crate) fn split(text: &str, dialect: SqlDialect) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut open = OpenBlocks::default();
    for token in scan(text, dialect) {
        open.see(token, dialect);
        if token.kind == TokenKind::Semicolon && open.nothing() {
            let end = token.start + token.text.len();
            pieces.push(&text[start..end]);
            start = end;
            open = OpenBlocks::default();
        }
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}

/// What is open around a semicolon and keeps it from ending the statement.
#[derive(Default)]
struct OpenBlocks {
    /// The statement is a CREATE, and so may have a body.
    creates: bool,
    begun: bool,
    /// The statement creates a trigger.
    trigger: bool,
    /// The last word was BEGIN.
    begin: bool,
    /// Bodies and CASEs that wait for their END.
    blocks: usize,
    brackets: usize,
}

impl OpenBlocks {
    fn nothing(&self) -> bool {
        self.blocks == 0 && self.brackets == 0
    }

    fn see(&mut self, token: SqlToken<'_>, dialect: SqlDialect) {
        match token.kind {
            TokenKind::Word => self.word(token.text, dialect),
            TokenKind::Other if token.text == "(" => self.brackets += 1,
            TokenKind::Other if token.text == ")" => {
                self.brackets = self.brackets.saturating_sub(1)
            }
            TokenKind::Blank
            | TokenKind::Quoted
            | TokenKind::Semicolon
            | TokenKind::Placeholder(_)
            | TokenKind::Other => {}
        }
    }

    fn word(&mut self, word: &str, dialect: SqlDialect) {
        let is = |name: &str| word.eq_ignore_ascii_case(name);
        if !self.begun {
            self.begun = true;
            self.creates = is("create");
        }
        if !self.creates {
            return;
        }
        let begin = is("begin");
        self.trigger |= is("trigger");
        if self.blocks > 0 {
            if is("case") {
                self.blocks += 1;
            } else if is("end") {
                self.blocks -= 1;
            }
        } else if match dialect {
            SqlDialect::Sqlite => begin && self.trigger,
            // The body of a function in the standard's words.
            SqlDialect::Postgres | SqlDialect::Duckdb => is("atomic") && self.begin,
        } {
            self.blocks = 1;
        }
        self.begin = begin;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(text: &str) -> usize {
        split(text, SqlDialect::Postgres).len()
    }

    #[test]
    fn semicolons_in_quotes_and_comments_end_nothing() {
        assert_eq!(pieces("SELECT 1; SELECT 2"), 2);
        assert_eq!(pieces("SELECT 'a;''b;'"), 1);
        assert_eq!(pieces(r"SELECT E'a\';b'"), 1);
        assert_eq!(pieces(r"SELECT 'a\'; SELECT 'b'"), 2);
        assert_eq!(pieces("SELECT \"a;b\""), 1);
        assert_eq!(pieces("DO $$ BEGIN a; b; END $$; SELECT 1"), 2);
        assert_eq!(pieces("DO $x$ $$ ; $$ ; $x$"), 1);
        assert_eq!(pieces("SELECT 1 -- a; b\n"), 1);
        assert_eq!(pieces("SELECT /* a; /* b; */ c; */ 1"), 1);
    }

    #[test]
    fn the_bodies_of_functions_and_rules_stay_whole() {
        let function = "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 \
                        END; SELECT 2; END; SELECT 1";
        assert_eq!(pieces(function), 2);
        assert_eq!(
            pieces("CREATE RULE r AS ON INSERT TO t DO (a; b); SELECT 1"),
            2
        );
        assert_eq!(pieces("BEGIN; SELECT 1; END;"), 3);
    }

    #[test]
    fn the_bodies_of_triggers_stay_whole() {
        let text = "CREATE TEMP TRIGGER t AFTER INSERT ON x BEGIN UPDATE y SET a = CASE WHEN 1 THEN \
                    2 ELSE 3 END; DELETE FROM z; END; SELECT [a;b], `c;d`; BEGIN; END";
        let pieces = split(text, SqlDialect::Sqlite);
        assert_eq!(pieces.len(), 4, "{pieces:?}");
    }

    /// Bits of SQL that matter to it, in any order, closed or not.
    fn soup() -> impl Strategy<Value = String> {
        let bits = [
            "'", "\"", ";", "$$", "$a$", "--", "\n", "/*", "*/", "E'", "\\", "(", ")", "BEGIN ",
            "END ", "CREATE ", "TRIGGER ", "ATOMIC ", "CASE ", ":a", "$1", "%(b)s", "é", " ", "::",
            "[", "]", "`", "x",
        ];
        let bit = prop_oneof![
            4 => proptest::sample::select(bits.to_vec()).prop_map(str::to_owned),
            1 => any::<char>().prop_map(|c| c.to_string()),
        ];
        proptest::collection::vec(bit, 0..40).prop_map(|bits| bits.concat())
    }

    proptest! {
        #[test]
        fn joining_the_pieces_gives_the_text(text in soup()) {
            for dialect in [SqlDialect::Postgres, SqlDialect::Sqlite, SqlDialect::Duckdb] {
                prop_assert_eq!(split(&text, dialect).concat(), text.as_str());
                let tokens = scan(&text, dialect);
                let joined: String = tokens.iter().map(|token| token.text).collect();
                prop_assert_eq!(joined, text.as_str());
            }
        }

        #[test]
        fn no_text_in_quotes_is_cut(values in proptest::collection::vec("[a-z;'\"$\n\\\\-]{0,12}", 1..6)) {
            let statements = values.iter().map(|value| {
                let plain = value.replace('\'', "''");
                let escaped = plain.replace('\\', "\\\\");
                let name = value.replace('"', "\"\"");
                format!("SELECT '{plain}', E'{escaped}', \"{name}\", $q1${value} $q1$;")
            });
            let statements: Vec<String> = statements.collect();
            let text = statements.concat();
            prop_assert_eq!(split(&text, SqlDialect::Postgres), statements);
        }
    }
}
