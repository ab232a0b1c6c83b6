//! What the rows of a table add up to. Rows that follow from no log (messages, events that are kept, deliveries, alerts,
//! settings, …) have nothing to be compared with; so each change of such a table changes its tally, in the same
//! transaction: the number of rows, and the sum of a number made of each row. A row that is changed, deleted, doubled or
//! moved behind the back of the program leaves the tally as it was.
//!
//! Triggers keep the tallies. They are temporary: they belong to the connections of this program, and no other program
//! fires them.

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _};
use stepwell_engine::store::RunNo;

/// A tally: its name, its table, the columns that count, and which rows do.
struct Tally {
    name: &'static str,
    table: &'static str,
    columns: &'static [&'static str],
    /// A column that must have a value. Few rows have one, and no trigger looks at the rows that are inserted: the value
    /// is set afterwards, or counted by who inserts the row.
    only: Option<&'static str>,
}

const fn of(table: &'static str, columns: &'static [&'static str]) -> Tally {
    Tally {
        name: table,
        table,
        columns,
        only: None,
    }
}

/// Not here: `log` has hashes; `heads`, `runs`, `run_labels`, `event_keys`, `unique_keys` and `view_rows` follow from it, and
/// `snapshots` are sealed. Only the key of the request that started a run, and the slots that a run holds, are in no log.
const TALLIES: [Tally; 19] = [
    of("settings", &["name", "value"]),
    of("plans", &["plan_no", "plan_id", "version", "hash", "net"]),
    Tally {
        name: "runs.request_key",
        table: "runs",
        columns: &["run_no", "request_key"],
        only: Some("request_key"),
    },
    Tally {
        name: "heads.slots",
        table: "heads",
        columns: &["run_no", "slots"],
        only: Some("slots"),
    },
    of(
        "tasks",
        &[
            "run_no",
            "target",
            "queue",
            "op",
            "priority",
            "visible_at",
            "worker",
            "until",
            "leased",
            "stopping",
            "free_from",
        ],
    ),
    of(
        "waits",
        &[
            "run_no",
            "step",
            "event_type",
            "event_key",
            "since",
            "given",
        ],
    ),
    of(
        "inbox",
        &[
            "event_no",
            "event_id",
            "event_type",
            "event_key",
            "payload",
            "mail",
            "at",
            "given",
        ],
    ),
    of("mailbox", &["mail_no", "run_no", "body", "at", "answer"]),
    of(
        "outbox",
        &[
            "sink",
            "run_no",
            "first_seq",
            "attempts",
            "due_at",
            "publisher",
            "until",
            "why",
            "since",
        ],
    ),
    of(
        "dead_letters",
        &[
            "letter_no",
            "sink",
            "run_no",
            "first_seq",
            "attempts",
            "why",
            "at",
        ],
    ),
    of("slots", &["slot_key", "taken"]),
    of(
        "sessions",
        &["session_no", "name", "opened_at", "until", "dead"],
    ),
    of(
        "alerts",
        &["alert_no", "run_no", "code", "priority", "message", "at"],
    ),
    of("projections", &["run_no", "seq", "snapshot", "at"]),
    of("event_templates", &["codec", "event_type", "template"]),
    of("quarantine", &["run_no", "why", "at"]),
    of("sinks", &["name", "address", "since"]),
    of(
        "documents",
        &["kind", "tenant", "key", "version", "body", "changed_at"],
    ),
    of(
        "audit_log",
        &[
            "audit_no", "at", "tenant", "actor", "token", "source", "action", "target", "accepted",
            "code", "reason",
        ],
    ),
];

/// The number that the next row changes, and that a tally begins with.
const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;
const FACTOR: u64 = 0x0000_0100_0000_01b3;

/// A number made of the values of a row (FNV-1a): two rows that differ in one value have different numbers, others
/// almost always. It defends against accidents and against changes by hand, not against someone who also writes tallies.
fn number<'a>(values: impl Iterator<Item = ValueRef<'a>>) -> i64 {
    let mut state = BEGIN;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            state = (state ^ u64::from(*byte)).wrapping_mul(FACTOR);
        }
    };
    for value in values {
        match value {
            ValueRef::Null => eat(&[0]),
            ValueRef::Integer(number) => {
                eat(&[1]);
                eat(&number.to_le_bytes());
            }
            ValueRef::Real(number) => {
                eat(&[2]);
                eat(&number.to_bits().to_le_bytes());
            }
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                eat(&[3]);
                eat(&(bytes.len() as u64).to_le_bytes());
                eat(bytes);
            }
        }
    }
    // Sums of numbers that differ in few bits would otherwise be alike too.
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state ^ (state >> 31)).cast_signed()
}

/// Lets a connection that writes keep the tallies.
pub(super) fn keep(conn: &Connection) -> rusqlite::Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let row = |values: &Context<'_>| Ok(number((0..values.len()).map(|at| values.get_raw(at))));
    conn.create_scalar_function("stepwell_row", -1, pure, row)?;
    let add = |values: &Context<'_>| Ok(values.get::<i64>(0)?.wrapping_add(values.get(1)?));
    conn.create_scalar_function("stepwell_add", 2, pure, add)?;
    let less = |values: &Context<'_>| Ok(values.get::<i64>(0)?.wrapping_sub(values.get(1)?));
    conn.create_scalar_function("stepwell_less", 2, pure, less)?;
    // A row that is replaced is deleted, which counts too.
    conn.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA recursive_triggers = ON")?;
    let mut triggers = String::new();
    for tally in &TALLIES {
        tally.write_triggers(&mut triggers);
    }
    conn.execute_batch(&triggers)
}

impl Tally {
    fn write_triggers(&self, to: &mut String) {
        let Tally { name, table, .. } = self;
        let row = |of: &str| {
            let columns: Vec<String> = self.columns.iter().map(|it| format!("{of}.{it}")).collect();
            format!("stepwell_row({})", columns.join(", "))
        };
        let (new, old) = (row("new"), row("old"));
        let has = |of: &str| self.only.map(|it| format!("{of}.{it} IS NOT NULL"));
        let mut change = |kind: &str, when: Option<String>, set: &str| {
            let when = when.map_or_else(String::new, |it| format!("WHEN {it} "));
            to.push_str(&format!(
                "CREATE TEMP TRIGGER \"tally {kind} {name}\" AFTER {kind} ON main.{table} {when}BEGIN \
                 UPDATE tallies SET {set} WHERE table_name = '{name}'; END;\n"
            ));
        };
        let added = format!("rows = rows + 1, total = stepwell_add(total, {new})");
        if self.only.is_none() {
            change("INSERT", None, &added);
        }
        let gone = format!("rows = rows - 1, total = stepwell_less(total, {old})");
        change("DELETE", has("old"), &gone);
        match self.only {
            None => {
                let moved = format!("total = stepwell_add(stepwell_less(total, {old}), {new})");
                change("UPDATE", None, &moved);
            }
            // Most changes of such a row are none of the value that counts.
            Some(only) => {
                let moved = format!(
                    "rows = rows - (old.{only} IS NOT NULL) + (new.{only} IS NOT NULL), \
                     total = stepwell_add(stepwell_less(total, iif(old.{only} IS NULL, 0, {old})), \
                     iif(new.{only} IS NULL, 0, {new}))"
                );
                let when = format!("old.{only} IS NOT new.{only}");
                change(&format!("UPDATE OF {only}"), Some(when), &moved);
            }
        }
    }

    /// The number of rows and their sum, as they are now.
    fn counted(&self, conn: &Connection) -> rusqlite::Result<(i64, i64)> {
        let only = self
            .only
            .map_or_else(String::new, |it| format!(" WHERE {it} IS NOT NULL"));
        let sql = format!(
            "SELECT {} FROM {}{only}",
            self.columns.join(", "),
            self.table
        );
        let mut statement = conn.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let (mut count, mut total) = (0, 0_i64);
        while let Some(row) = rows.next()? {
            let values = (0..self.columns.len()).map(|at| row.get_ref(at));
            let values = values.collect::<rusqlite::Result<Vec<_>>>()?;
            total = total.wrapping_add(number(values.into_iter()));
            count += 1;
        }
        Ok((count, total))
    }

    fn kept(&self, conn: &Connection) -> rusqlite::Result<Option<(i64, i64)>> {
        conn.prepare_cached("SELECT rows, total FROM tallies WHERE table_name = ?1")?
            .query_row([self.name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    }
}

/// Counts the key of the request that started a run, whose row was inserted.
pub(super) fn add_request_key(conn: &Connection, run: RunNo, key: &str) -> rusqlite::Result<()> {
    let mut add = conn.prepare_cached(
        "UPDATE tallies SET rows = rows + 1, total = stepwell_add(total, stepwell_row(?1, ?2))
         WHERE table_name = 'runs.request_key'",
    )?;
    add.execute(rusqlite::params![run.0, key]).map(drop)
}

/// The tables whose rows are not those that were written.
pub(super) fn differing(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut problems = Vec::new();
    for tally in &TALLIES {
        let (rows, total) = tally.counted(conn)?;
        let why = match tally.kept(conn)? {
            None => "the table has no tally".to_owned(),
            Some(kept) if kept == (rows, total) => continue,
            Some((kept, _)) if kept != rows => {
                format!("the table has {rows} rows, {kept} were written")
            }
            Some(_) => "the rows are not those that were written".to_owned(),
        };
        problems.push(format!("table {}: {why}", tally.name));
    }
    Ok(problems)
}

/// Counts all tables anew: what is there counts as written. Says which tables differed.
pub(super) fn count_anew(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let differed = differing(conn)?;
    for tally in &TALLIES {
        let (rows, total) = tally.counted(conn)?;
        conn.execute(
            "INSERT INTO tallies (table_name, rows, total) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET rows = ?2, total = ?3",
            rusqlite::params![tally.name, rows, total],
        )?;
    }
    Ok(differed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        for statements in super::super::open::MIGRATIONS {
            conn.execute_batch(statements).unwrap();
        }
        count_anew(&conn).unwrap();
        keep(&conn).unwrap();
        conn
    }

    #[test]
    fn changes_of_this_program_keep_the_tallies() {
        let conn = table();
        let changes = [
            "INSERT INTO mailbox (run_no, body, at) VALUES (1, 'a', 2), (1, 'b', 2), (2, 'c', 2)",
            "UPDATE mailbox SET answer = 'x' WHERE body = 'b'",
            "DELETE FROM mailbox WHERE body = 'a'",
            "INSERT OR REPLACE INTO waits VALUES (1, 's', 't', 'k', 1, 0)",
            "INSERT OR REPLACE INTO waits VALUES (1, 's', 't', 'k', 2, 0)",
            "INSERT INTO settings VALUES ('scrubbed', 4) ON CONFLICT DO UPDATE SET value = 4",
            "INSERT INTO settings VALUES ('scrubbed', 5) ON CONFLICT DO UPDATE SET value = 5",
            "INSERT INTO runs VALUES (2, 'b', NULL, 1, '', '', '', NULL, 'b', 1, 0)",
            "INSERT INTO heads VALUES (1, 1, 'RUNNING', NULL, 1, NULL, NULL, 0, NULL, NULL, 1, 1, '')",
            "UPDATE heads SET slots = '[\"a\"]'",
            "UPDATE heads SET slots = NULL",
            "UPDATE heads SET slots = '[\"b\"]'",
        ];
        for change in changes {
            conn.execute(change, []).unwrap();
            assert_eq!(differing(&conn).unwrap(), [""; 0], "{change}");
        }
        insert_run_1(&conn);
        assert_eq!(differing(&conn).unwrap(), [""; 0]);
        conn.execute("DELETE FROM runs", []).unwrap();
        assert_eq!(differing(&conn).unwrap(), [""; 0]);
    }

    fn insert_run_1(conn: &Connection) {
        let insert = "INSERT INTO runs VALUES (1, 'a', 'key', 1, '', '', '', NULL, 'a', 1, 0)";
        conn.execute(insert, []).unwrap();
        add_request_key(conn, RunNo(1), "key").unwrap();
    }

    #[test]
    fn a_change_behind_its_back_is_found() {
        let changes = [
            "DELETE FROM mailbox WHERE mail_no = 1",
            "UPDATE mailbox SET body = 'z' WHERE mail_no = 1",
            "UPDATE mailbox SET run_no = 3 - run_no",
            "INSERT INTO mailbox SELECT 9, run_no, body, at, answer FROM mailbox LIMIT 1",
            "UPDATE runs SET request_key = NULL",
            "UPDATE settings SET value = randomblob(32) WHERE name = 'secret'",
            "DELETE FROM tallies WHERE table_name = 'slots'",
        ];
        for change in changes {
            let conn = table();
            conn.execute_batch(
                "INSERT INTO mailbox (run_no, body, at) VALUES (1, 'a', 2), (2, 'b', 2);",
            )
            .unwrap();
            insert_run_1(&conn);
            let triggers: Vec<String> = conn
                .prepare("SELECT name FROM temp.sqlite_schema WHERE type = 'trigger'")
                .unwrap()
                .query_map([], |row| row.get(0))
                .unwrap()
                .map(Result::unwrap)
                .collect();
            for name in triggers {
                conn.execute_batch(&format!("DROP TRIGGER temp.\"{name}\""))
                    .unwrap();
            }
            conn.execute_batch(change).unwrap();
            assert_eq!(differing(&conn).unwrap().len(), 1, "{change}");
            assert_eq!(count_anew(&conn).unwrap().len(), 1);
            assert_eq!(differing(&conn).unwrap(), [""; 0]);
        }
    }
}
