//! Whether tables, indexes and views are those that the migrations make, and the rows that the program fills in itself.
//! A view with another text would show wrong events to SQL clients.

use rusqlite::{Connection, OptionalExtension as _, params};
use stepwell_engine::chunk;

use super::open::MIGRATIONS;

/// What differs from a store that was just made. What others have added is left alone.
pub(super) fn differing(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let fresh = Connection::open_in_memory()?;
    for statements in MIGRATIONS {
        fresh.execute_batch(statements)?;
    }
    let mut problems = Vec::new();
    let mut made = fresh.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let mut made = made.query([])?;
    while let Some(row) = made.next()? {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        let wanted: (String, Option<String>) = (row.get(2)?, row.get(3)?);
        let there: Option<(String, Option<String>)> = conn
            .prepare_cached(
                "SELECT tbl_name, sql FROM sqlite_schema WHERE type = ?1 AND name = ?2",
            )?
            .query_row([&kind, &name], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if there.as_ref() != Some(&wanted) {
            problems.push(format!(
                "the {kind} {name} is missing or not as it was made"
            ));
        }
    }
    for template in chunk::templates() {
        let same = conn
            .prepare_cached(
                "SELECT 1 FROM event_templates WHERE codec = ?1 AND event_type = ?2 AND template = ?3",
            )?
            .exists(params![template.codec, template.event_type, template.json])?;
        if !same {
            problems.push(format!(
                "the template of events {} is missing or not as it was made",
                template.event_type
            ));
        }
    }
    Ok(problems)
}
