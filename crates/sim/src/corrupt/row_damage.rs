//! One change of the rows of a copy, with SQL, as a person or another program could make it.

use std::path::Path;

use anyhow::{Result, bail};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::rng::Rng;
use super::samples::Copy;

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowDamage {
    Value,
    Deleted,
    Doubled,
    /// A value of two rows of the same table.
    Swapped,
}

/// A change that the database refuses is drawn again.
const TRIES: usize = 500;

impl RowDamage {
    pub(super) fn draw(rng: &mut Rng) -> RowDamage {
        match rng.below(10) {
            0..5 => RowDamage::Value,
            5..7 => RowDamage::Deleted,
            7 => RowDamage::Doubled,
            _ => RowDamage::Swapped,
        }
    }
}

/// A table, its columns, and which of them identify a row.
struct Table {
    name: String,
    columns: Vec<String>,
    keys: Vec<usize>,
}

impl Table {
    fn r#where(&self, from: usize) -> String {
        let part = |(index, key): (usize, &usize)| {
            format!("\"{}\" IS ?{}", self.columns[*key], from + index)
        };
        let parts: Vec<String> = self.keys.iter().enumerate().map(part).collect();
        parts.join(" AND ")
    }

    fn key_of(&self, row: &[Value]) -> Vec<Value> {
        self.keys.iter().map(|key| row[*key].clone()).collect()
    }
}

fn tables(conn: &Connection) -> rusqlite::Result<Vec<Table>> {
    let names: Vec<String> = conn
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    names
        .into_iter()
        .map(|name| {
            let columns: Vec<(String, i64)> = conn
                .prepare("SELECT name, pk FROM pragma_table_info(?1)")?
                .query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let mut keys: Vec<usize> = (0..columns.len()).filter(|it| columns[*it].1 > 0).collect();
            if keys.is_empty() {
                keys = (0..columns.len()).collect();
            }
            let columns = columns.into_iter().map(|(name, _)| name).collect();
            Ok(Table {
                name,
                columns,
                keys,
            })
        })
        .collect()
}

fn row_at(conn: &Connection, table: &Table, at: u64) -> rusqlite::Result<Vec<Value>> {
    let sql = format!("SELECT * FROM \"{}\" LIMIT 1 OFFSET {at}", table.name);
    conn.query_row(&sql, [], |row| {
        (0..table.columns.len()).map(|it| row.get(it)).collect()
    })
}

/// Changes rows of a SQLite database.
pub(super) fn sqlite(kind: RowDamage, database: &Path, rng: &mut Rng) -> Result<String> {
    let conn = Connection::open(database)?;
    conn.execute_batch("PRAGMA ignore_check_constraints = ON")?;
    let tables = tables(&conn)?;
    for _ in 0..TRIES {
        let table = &tables[rng.index(tables.len())];
        let count = format!("SELECT count(*) FROM \"{}\"", table.name);
        let count: u64 = conn.query_row(&count, [], |row| row.get(0))?;
        if count == 0 {
            continue;
        }
        let row = row_at(&conn, table, rng.below(count))?;
        let other = row_at(&conn, table, rng.below(count))?;
        let done = match kind {
            RowDamage::Value => change(&conn, table, &row, &other, rng),
            RowDamage::Deleted => delete(&conn, table, &row),
            RowDamage::Doubled => double(&conn, table, &row, rng),
            RowDamage::Swapped => swap(&conn, table, &row, &other, rng),
        };
        // What a constraint forbids cannot happen in this way.
        if let Ok(Some(what)) = done {
            return Ok(format!("table {}: {what}", table.name));
        }
    }
    bail!("no row could be changed")
}

fn shown(value: &Value) -> String {
    let text = format!("{value:?}");
    text.chars().take(80).collect()
}

fn update(
    conn: &Connection,
    table: &Table,
    row: &[Value],
    column: usize,
    value: &Value,
) -> rusqlite::Result<usize> {
    let sql = format!(
        "UPDATE \"{}\" SET \"{}\" = ?1 WHERE {}",
        table.name,
        table.columns[column],
        table.r#where(2)
    );
    let values = [vec![value.clone()], table.key_of(row)].concat();
    conn.execute(&sql, params_from_iter(values))
}

fn change(
    conn: &Connection,
    table: &Table,
    row: &[Value],
    other: &[Value],
    rng: &mut Rng,
) -> rusqlite::Result<Option<String>> {
    let column = rng.index(row.len());
    let old = &row[column];
    let new = match rng.one_in(4) {
        true => other[column].clone(),
        false => changed(old, rng),
    };
    if new == *old {
        return Ok(None);
    }
    let count = update(conn, table, row, column, &new)?;
    let name = &table.columns[column];
    let what = format!(
        "{name} of {:?} was {} and is {}",
        table.key_of(row),
        shown(old),
        shown(&new)
    );
    Ok((count == 1).then_some(what))
}

/// Another value of the same type, mostly.
fn changed(old: &Value, rng: &mut Rng) -> Value {
    match old {
        Value::Null => match rng.one_in(2) {
            true => Value::Integer(1),
            false => Value::Text("x".to_owned()),
        },
        _ if rng.one_in(8) => Value::Null,
        Value::Integer(number) => match rng.below(4) {
            0 => Value::Integer(number + 1),
            1 => Value::Integer(0),
            _ => Value::Integer(number ^ (1 << rng.below(42))),
        },
        Value::Real(number) => Value::Real(number + 1.0),
        Value::Text(text) => {
            let at = rng.index(text.chars().count());
            let letter = char::from(b'a' + rng.below(26) as u8);
            match rng.below(3) {
                0 => Value::Text(text.chars().take(at).collect()),
                _ => {
                    let put = |(index, it): (usize, char)| if index == at { letter } else { it };
                    Value::Text(text.chars().enumerate().map(put).collect())
                }
            }
        }
        Value::Blob(bytes) => {
            let mut bytes = bytes.clone();
            let at = rng.index(bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
            Value::Blob(bytes)
        }
    }
}

fn delete(conn: &Connection, table: &Table, row: &[Value]) -> rusqlite::Result<Option<String>> {
    let sql = format!("DELETE FROM \"{}\" WHERE {}", table.name, table.r#where(1));
    let count = conn.execute(&sql, params_from_iter(table.key_of(row)))?;
    Ok((count == 1).then(|| format!("{:?}", row.iter().map(shown).collect::<Vec<_>>())))
}

fn double(
    conn: &Connection,
    table: &Table,
    row: &[Value],
    rng: &mut Rng,
) -> rusqlite::Result<Option<String>> {
    let mut twin = row.to_vec();
    let column = table.keys[rng.index(table.keys.len())];
    twin[column] = match &row[column] {
        Value::Integer(number) => Value::Integer(number + 1),
        Value::Text(text) => Value::Text(format!("{text}x")),
        other => changed(other, rng),
    };
    let places: Vec<String> = (1..=twin.len()).map(|it| format!("?{it}")).collect();
    let sql = format!(
        "INSERT INTO \"{}\" VALUES ({})",
        table.name,
        places.join(", ")
    );
    conn.execute(&sql, params_from_iter(twin.clone()))?;
    Ok(Some(format!(
        "{:?} again as {:?}",
        table.key_of(row),
        table.key_of(&twin)
    )))
}

fn swap(
    conn: &Connection,
    table: &Table,
    one: &[Value],
    other: &[Value],
    rng: &mut Rng,
) -> rusqlite::Result<Option<String>> {
    let column = rng.index(one.len());
    if one[column] == other[column] || table.keys.contains(&column) {
        return Ok(None);
    }
    conn.execute_batch("SAVEPOINT swap")?;
    // A value that nobody has is in between, for columns that are unique.
    let between = match &one[column] {
        Value::Integer(_) => Value::Integer(-77),
        _ => Value::Text("between".to_owned()),
    };
    let done = update(conn, table, one, column, &between)
        .and_then(|_| update(conn, table, other, column, &one[column]))
        .and_then(|_| update(conn, table, one, column, &other[column]));
    if let Err(error) = done {
        conn.execute_batch("ROLLBACK TO swap; RELEASE swap")?;
        return Err(error);
    }
    conn.execute_batch("RELEASE swap")?;
    let name = &table.columns[column];
    Ok(Some(format!(
        "{name} of {:?} and {:?}",
        table.key_of(one),
        table.key_of(other)
    )))
}

/// The tables of PostgreSQL whose rows follow from the logs, or have a hash. A change of the others by hand cannot be
/// told from a change by the program; against broken disks the server has checksums of its own.
const POSTGRES: [&str; 8] = [
    "plans",
    "runs",
    "heads",
    "log",
    "event_keys",
    "waits",
    "unique_keys",
    "view_rows",
];

/// Changes rows of a PostgreSQL database.
pub(super) fn postgres(kind: RowDamage, copy: &Copy, rng: &mut Rng) -> Result<String> {
    for _ in 0..TRIES {
        let table = POSTGRES[rng.index(POSTGRES.len())];
        let ask = |sql: &str| copy.psql(sql);
        let columns = ask(&format!(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
             WHERE attrelid = '{table}'::regclass AND attnum > 0 AND attidentity = ''"
        ))?;
        let columns = columns.map_err(anyhow::Error::msg)?;
        let columns: Vec<(&str, &str)> = columns
            .lines()
            .filter_map(|it| it.split_once('|'))
            .collect();
        let rows = ask(&format!("SELECT ctid FROM {table}"))?.map_err(anyhow::Error::msg)?;
        let rows: Vec<&str> = rows.lines().collect();
        let (Some(row), Some(other)) = (rng.pick(&rows), rng.pick(&rows)) else {
            continue;
        };
        let (column, of) = columns[rng.index(columns.len())];
        let sql = match kind {
            RowDamage::Value => {
                let new = match of {
                    "boolean" => format!("NOT {column}"),
                    "bytea" => format!("set_bit({column}, 3, 1 - get_bit({column}, 3))"),
                    "text" => format!(
                        "overlay({column} placing 'q' from 1 + length({column}) * {} / 100)",
                        rng.below(99)
                    ),
                    _ => format!("{column} # {}", 1 << rng.below(14)),
                };
                format!(
                    "UPDATE {table} SET {column} = {new} WHERE ctid = '{row}' AND {column} IS DISTINCT FROM {new} RETURNING 1"
                )
            }
            RowDamage::Deleted => format!("DELETE FROM {table} WHERE ctid = '{row}' RETURNING 1"),
            RowDamage::Doubled | RowDamage::Swapped => format!(
                "UPDATE {table} t SET {column} = o.{column} FROM {table} o
                 WHERE (t.ctid, o.ctid) IN (('{row}', '{other}'), ('{other}', '{row}'))
                   AND t.{column} IS DISTINCT FROM o.{column} RETURNING 1"
            ),
        };
        if let Ok(changed) = ask(&sql)?
            && !changed.trim().is_empty()
        {
            return Ok(format!("table {table}: {sql}"));
        }
    }
    bail!("no row could be changed")
}
