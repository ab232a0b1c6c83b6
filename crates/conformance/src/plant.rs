//! Events that another version of the program could have written: appended to the log of a run behind the program's
//! back, with the hashes that fit, so that only what they say is new.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::time::Time;
use stepwell_kernel::{chain, keys};

use crate::world::Place;

/// How a database writes what it calls by other names.
struct SqlWords {
    /// The columns that name the commit of a chunk.
    commit: &'static str,
    /// What bytes are written between.
    bytes: (&'static str, &'static str),
    /// The column with the text of a template.
    template: &'static str,
}

fn sql_words(place: &Place) -> Result<SqlWords, String> {
    match place {
        Place::File(_) => Ok(SqlWords {
            commit: "session, number",
            bytes: ("X'", "'"),
            template: "template",
        }),
        Place::Schema { .. } => Ok(SqlWords {
            commit: "commit_session, commit_number",
            bytes: ("'\\x", "'::bytea"),
            template: "json",
        }),
        Place::Memory | Place::Other(_) => {
            Err("this store has no SQL; add `needs: [sql]`".to_owned())
        }
    }
}

/// What most events of a type have in common, by type. The log has only what differs from it, and the hash of an event
/// is that of both.
#[derive(Debug, Default)]
pub(crate) struct Templates(BTreeMap<String, Map<String, Json>>);

impl Templates {
    /// How a database is asked for them.
    pub(crate) fn sql(place: &Place) -> Result<String, String> {
        let column = sql_words(place)?.template;
        Ok(format!(
            "SELECT event_type, {column} AS template FROM event_templates WHERE codec = 1"
        ))
    }

    /// From the rows of the database.
    pub(crate) fn read(rows: &[Json]) -> Templates {
        let read = |row: &Json| {
            let template = serde_json::from_str(row["template"].as_str()?).ok()?;
            Some((row["event_type"].as_str()?.to_owned(), template))
        };
        Templates(rows.iter().filter_map(read).collect())
    }

    /// The common part of an event. A type that the program does not know has the fields of every event.
    fn fill(&self, event_type: &str, at: &str, run_id: &str, version: &str) -> Map<String, Json> {
        let envelope = [
            ("emittedAt", "$at"),
            ("emittedBy", "engine"),
            ("runId", "$runId"),
        ];
        let envelope = envelope.map(|(name, value)| (name.to_owned(), value.into()));
        let template = self.0.get(event_type).cloned();
        let mut fields = template.unwrap_or_else(|| envelope.into_iter().collect());
        for value in fields.values_mut() {
            match value.as_str() {
                Some("$at") => *value = at.into(),
                Some("$runId") => *value = run_id.into(),
                Some("$planVersion") => *value = version.into(),
                _ => {}
            }
        }
        fields
    }
}

/// The SQL that appends events to a run with this log: events as `runs events --ext` prints them. Fields of an event
/// that are not those of every event of its type are its own; `ext` is what the program's own readers decode. Two
/// events with the same `idempotencyKey` are one event that is there twice.
pub(crate) fn statement(
    place: &Place,
    templates: &Templates,
    log: &[Json],
    events: &[Json],
) -> Result<String, String> {
    let words = sql_words(place)?;
    let last = log.last().ok_or("the run has no events")?;
    let text = |name: &str| last[name].as_str().unwrap_or_default().to_owned();
    let (run_id, mut hash, ends_at) = (text("runId"), text("hash"), text("emittedAt"));
    let version = log.iter().find_map(|it| it["planVersion"].as_str());
    let version = version.unwrap_or_default();
    let before = last["runSeq"].as_u64().unwrap_or_default();
    let (mut digests, mut entries, mut keys_of) = (String::new(), Vec::new(), Vec::new());
    for (seq, event) in (before + 1..).zip(events) {
        let mut own = event.as_object().cloned().unwrap_or_default();
        let event_type = own.remove("eventType").unwrap_or_default();
        let at = own.remove("emittedAt");
        let at = at.as_ref().and_then(Json::as_str).unwrap_or(&ends_at);
        let at = Time::from_rfc3339(at).ok_or_else(|| format!("{at} is no time"))?;
        let mut ext = own.remove("ext").unwrap_or_else(|| json!({}));
        ext["type"] = event_type.clone();
        let event_id = keys::event_id(&run_id, seq);
        let key = match own.remove("idempotencyKey") {
            Some(Json::String(given)) => given,
            _ => keys::sha256_hex(&format!("planted|{run_id}|{seq}")),
        };
        let name = event_type.as_str().unwrap_or_default();
        let mut contract = templates.fill(name, &at.to_rfc3339(), &run_id, version);
        contract.extend(own.clone());
        for (name, value) in [
            ("eventId", event_id.as_str().into()),
            ("idempotencyKey", key.as_str().into()),
            ("runSeq", seq.into()),
            ("eventType", event_type),
        ] {
            contract.insert(name.to_owned(), value);
        }
        hash = chain::link(&Json::Object(contract), &ext, &hash);
        digests += &format!("{}{key}{hash}", event_id.replace('-', ""));
        entries.push(json!([at.0, own, ext]));
        // A key of a type that has no number yet.
        keys_of.push(format!("00ffc801{seq:04x}"));
    }
    let (begin, end) = words.bytes;
    let body = Json::Array(entries).to_string().replace('\'', "''");
    let (first, until) = (before + 1, before + events.len() as u64);
    let run = format!("FROM runs WHERE run_id = '{run_id}'");
    let mut sql = format!(
        "INSERT INTO log (run_no, first_seq, last_seq, {}, codec, body, digests) \
         SELECT run_no, {first}, {until}, 0, 7, 1, '{body}', {begin}{digests}{end} {run};\n",
        words.commit
    );
    for key in keys_of {
        sql += &format!(
            "INSERT INTO event_keys (run_no, key) SELECT run_no, {begin}{key}{end} {run};\n"
        );
    }
    Ok(sql)
}
