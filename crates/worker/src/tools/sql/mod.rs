//! What the tools that run SQL share: telling statements apart, parameters, and the shape of the
//! result. Nothing here talks to a database.

pub(crate) mod codes;
pub(crate) mod params;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod split;

use serde_json::{Map, Value as Json};

use crate::outcome::ToolError;
use crate::tool::{ToolCall, kind_of, list_or_one};
use params::Params;
use scan::{SqlDialect, TokenKind};

/// How many bytes of a statement a message shows.
const SHOWN: usize = 48;

/// The statements and the parameters of a task.
#[derive(Debug)]
pub(crate) struct SqlTask {
    pub(crate) statements: Vec<SqlStatement>,
    pub(crate) params: Params,
}

/// One statement of a task.
#[derive(Debug, Clone)]
pub(crate) struct SqlStatement {
    /// The statement as written, with comments and blanks around it.
    pub(crate) text: String,
    /// The words outside quotes and comments, in lower case.
    pub(crate) words: Vec<String>,
    /// The first words, for messages. The text ends before the first value.
    pub(crate) shown: String,
    /// The line of the command that the statement begins on, from 1.
    pub(crate) line: usize,
}

impl SqlTask {
    /// Reads the fields `commands` and `params`.
    pub(crate) fn read(call: &ToolCall, dialect: SqlDialect) -> Result<SqlTask, ToolError> {
        let mut statements = Vec::new();
        for command in commands(call)? {
            statements.extend(statements_of(command, dialect));
        }
        if statements.is_empty() {
            return Err(field("`commands` holds no statement"));
        }
        Ok(SqlTask {
            statements,
            params: Params::read(call.fields.get("params"))?,
        })
    }

    /// Whether the file says itself where its transactions begin and end.
    pub(crate) fn has_own_transactions(&self) -> bool {
        let own = ["begin", "start", "commit", "end", "rollback", "abort"];
        self.statements.iter().any(|statement| {
            let partly = statement.has("to"); // ROLLBACK TO a savepoint ends nothing.
            let second = statement.words.get(1).map(String::as_str);
            let prepares = statement.first() == "prepare" && second == Some("transaction");
            prepares
                || own.contains(&statement.first()) && !(statement.first() == "rollback" && partly)
        })
    }
}

impl SqlStatement {
    /// The first word in lower case; empty if the statement has no words.
    pub(crate) fn first(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Whether the statement contains this word outside quotes and comments.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|it| it == word)
    }
}

fn field(message: impl Into<String>) -> ToolError {
    ToolError::invalid(stepwell_kernel::codes::TOOL_FIELD, message)
}

fn commands(call: &ToolCall) -> Result<Vec<&str>, ToolError> {
    let given = call.fields.get("commands").unwrap_or(&Json::Null);
    let text = |it| {
        Json::as_str(it).ok_or_else(|| {
            field(format!(
                "`commands` must be text or a list of texts, it holds {}",
                kind_of(it)
            ))
        })
    };
    list_or_one(given).iter().map(text).collect()
}

fn statements_of(command: &str, dialect: SqlDialect) -> Vec<SqlStatement> {
    let mut line = 1;
    let mut statements = Vec::new();
    for piece in split::split(command, dialect) {
        let tokens = scan::scan(piece, dialect);
        let empty = |kind: TokenKind<'_>| matches!(kind, TokenKind::Blank | TokenKind::Semicolon);
        if !tokens.iter().all(|token| empty(token.kind)) {
            statements.push(SqlStatement {
                text: piece.to_owned(),
                words: words(&tokens),
                shown: shown(&tokens),
                line,
            });
        }
        line += piece.matches('\n').count();
    }
    statements
}

fn words(tokens: &[scan::SqlToken<'_>]) -> Vec<String> {
    let words = tokens.iter().filter(|token| token.kind == TokenKind::Word);
    words.map(|token| token.text.to_ascii_lowercase()).collect()
}

/// The beginning of a statement on one line. Values written into it may be secrets, so it ends
/// before the first.
fn shown(tokens: &[scan::SqlToken<'_>]) -> String {
    let mut shown = String::new();
    let significant = tokens
        .iter()
        .skip_while(|token| token.kind == TokenKind::Blank);
    for token in significant {
        let value = match token.kind {
            TokenKind::Quoted => !token.text.starts_with(['"', '`', '[']),
            TokenKind::Word => {
                token.text.len() > 4 && token.text.starts_with(|c: char| c.is_ascii_digit())
            }
            TokenKind::Blank
            | TokenKind::Semicolon
            | TokenKind::Placeholder(_)
            | TokenKind::Other => false,
        };
        if token.kind == TokenKind::Semicolon {
            break;
        }
        if value || shown.len() + token.text.len() > SHOWN {
            shown.push('…');
            break;
        }
        match token.kind {
            TokenKind::Blank => shown.push(' '),
            TokenKind::Quoted
            | TokenKind::Word
            | TokenKind::Semicolon
            | TokenKind::Placeholder(_)
            | TokenKind::Other => shown.push_str(token.text),
        }
    }
    shown.trim().to_owned()
}

/// A file that begins a transaction and does not end it.
pub(crate) fn left_open() -> ToolError {
    ToolError::invalid(
        codes::SQL_TRANSACTION,
        "the statements begin a transaction and do not end it, so nothing of it was kept; \
         end it with COMMIT, or leave BEGIN out",
    )
}

/// Details that every kind gives: which statement it was.
pub(crate) fn details(statement: usize, shown: &str) -> Map<String, Json> {
    let mut details = Map::new();
    details.insert("statement".into(), statement.into());
    details.insert("text".into(), shown.into());
    details
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task(commands: Json) -> Result<SqlTask, ToolError> {
        let mut call = ToolCall::default();
        call.fields.insert("commands".into(), commands);
        SqlTask::read(&call, SqlDialect::Postgres)
    }

    #[test]
    fn statements_know_their_line_and_first_words() {
        let task = task(json!([
            "-- why\nSELECT 1;\n\nINSERT INTO t\n  VALUES ('secret');",
            ";"
        ]));
        let statements = task.unwrap().statements;
        assert_eq!(statements.len(), 2);
        assert_eq!((statements[0].line, &*statements[0].shown), (1, "SELECT 1"));
        assert_eq!(statements[1].line, 2);
        assert_eq!(statements[1].shown, "INSERT INTO t VALUES (…");
    }

    #[test]
    fn commands_that_are_no_text_are_refused() {
        for wrong in [json!(7), json!(["SELECT 1", {}]), json!(" ; -- nothing\n")] {
            assert_eq!(task(wrong).unwrap_err().code, "TOOL_FIELD");
        }
    }

    #[test]
    fn transactions_of_the_file_are_noticed() {
        let own = |text: &str| task(json!(text)).unwrap().has_own_transactions();
        assert!(own("begin; select 1; commit"));
        assert!(own("START TRANSACTION"));
        assert!(!own("SAVEPOINT a; ROLLBACK TO a"));
        assert!(!own("CREATE TABLE begin_here (commit int)"));
    }
}
