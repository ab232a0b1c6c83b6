//! What is fed to the program: the statements with their parameters written into them, a line of
//! our own behind each so that the answers can be told apart.

use serde_json::Value as Json;

use crate::outcome::ToolError;
use crate::tools::sql::codes;
use crate::tools::sql::scan::{SqlDialect, TokenKind, scan};
use crate::tools::sql::{SqlStatement, SqlTask};

/// The text, and how its answers are told apart.
pub(super) struct Script {
    pub(super) text: String,
    /// No output has it but where we ask for it.
    pub(super) mark: String,
    /// What each part of the output belongs to.
    pub(super) parts: Vec<OutputPart>,
}

/// A part of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputPart {
    /// Nothing to see: the transaction's begin and end.
    Quiet,
    /// The columns of the statement that follows.
    Columns,
    /// The answer of a statement.
    Rows,
}

impl Script {
    pub(super) fn new(task: &SqlTask) -> Result<Script, ToolError> {
        let mark = format!("mark-{}", uuid::Uuid::now_v7().simple());
        let mut script = Script {
            text: ".changes on\n".to_owned(),
            mark,
            parts: Vec::new(),
        };
        let begin = transaction(task);
        for (at, statement) in task.statements.iter().enumerate() {
            let number = at + 1;
            let in_place = |mut error: ToolError| {
                let shown = &statement.shown;
                error.message = format!("statement {number} ({shown}): {}", error.message);
                error
            };
            refuse_commands(statement).map_err(in_place)?;
            let written = task
                .params
                .rewrite(statement, SqlDialect::Duckdb, |_, value| {
                    Ok(format!(" {} ", literal(value)))
                });
            let written = written.map_err(in_place)?.text;
            if begin == Some(at) {
                script.push("BEGIN TRANSACTION", OutputPart::Quiet);
            }
            if is_query(statement) {
                script.push(&format!("DESCRIBE {written}"), OutputPart::Columns);
            }
            script.push(&written, OutputPart::Rows);
        }
        if begin.is_some() {
            script.push("COMMIT", OutputPart::Quiet);
        }
        Ok(script)
    }

    fn push(&mut self, statement: &str, part: OutputPart) {
        let statement = statement.trim();
        let statement = statement.strip_suffix(';').unwrap_or(statement);
        // The line break ends a comment that may stand last.
        let text = format!("{statement}\n;\n.print {}\n", self.mark);
        self.text.push_str(&text);
        self.parts.push(part);
    }
}

/// Before which statement the task's transaction begins. None if the file has its own, or has a
/// statement that cannot be in one. Settings come before it.
fn transaction(task: &SqlTask) -> Option<usize> {
    let outside = [
        "vacuum",
        "checkpoint",
        "force",
        "detach",
        "export",
        "import",
    ];
    let outside = |it: &SqlStatement| outside.contains(&it.first());
    if task.has_own_transactions() || task.statements.iter().any(outside) {
        return None;
    }
    let before = ["pragma", "attach", "use", "set", "reset", "install", "load"];
    let before = |it: &SqlStatement| before.contains(&it.first());
    task.statements.iter().position(|it| !before(it))
}

/// Whether its columns can be asked for before it runs.
fn is_query(statement: &SqlStatement) -> bool {
    let writes = ["insert", "update", "delete", "merge"];
    match statement.first() {
        "select" | "from" => true,
        "with" => !writes.iter().any(|word| statement.has(word)),
        _ => false,
    }
}

/// The program's own commands begin with a dot, and can do what SQL cannot.
fn refuse_commands(statement: &SqlStatement) -> Result<(), ToolError> {
    let tokens = scan(&statement.text, SqlDialect::Duckdb);
    let first = tokens.iter().find(|token| token.kind != TokenKind::Blank);
    match first.is_some_and(|token| token.text == ".") {
        true => Err(ToolError::invalid(
            codes::SQL_UNSUPPORTED,
            "commands of the program that begin with a dot are not SQL and are not supported",
        )),
        false => Ok(()),
    }
}

/// A value as SQL has it.
pub(super) fn literal(value: &Json) -> String {
    match value {
        Json::Null => "NULL".to_owned(),
        Json::Bool(flag) => flag.to_string(),
        // Without brackets, a minus before it would begin a comment.
        Json::Number(number) => format!("({number})"),
        Json::String(text) => quote(text),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) if fields.is_empty() => "'{}'::JSON".to_owned(),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| format!("{}: {}", quote(name), literal(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A text as SQL has it, on one line: what the program reads line by line must not be led astray.
fn quote(text: &str) -> String {
    let part = |part: &str| {
        let doubled = part.replace('\'', "''");
        match doubled.contains(['\\', '\n', '\r']) {
            true => {
                let escaped = doubled.replace('\\', "\\\\");
                let escaped = escaped.replace('\n', "\\n").replace('\r', "\\r");
                format!("E'{escaped}'")
            }
            false => format!("'{doubled}'"),
        }
    };
    let parts: Vec<String> = text.split('\0').map(part).collect();
    match parts.len() {
        1 => parts.concat(),
        _ => format!("({})", parts.join(" || chr(0) || ")),
    }
}
