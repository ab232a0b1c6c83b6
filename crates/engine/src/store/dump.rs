//! Everything a store holds as one text, so that two stores can be compared byte for byte.
//!
//! Numbers that a store gives out itself (runs, sessions, plans, mail) differ between stores; rows are
//! shown under the ids and names they stand for. A store hands over its rows table by table and this
//! is the only place that says how they look. Rows whose order says something (mail, letters, alerts)
//! must be handed over oldest first.

use std::collections::HashMap;
use std::fmt::Debug;

use stepwell_kernel::keys::hex;
use stepwell_kernel::time::Time;

use super::{
    AlertRow, AuditRow, DeadLetter, Head, MarkerState, NewRun, OutsideEvent, Result, StateSnapshot,
    StoredChunk, StoredDocument, TaskRow, name_of_tenant,
};

/// A store that can show everything it holds.
pub trait DumpRows {
    /// All rows of all tables, for comparisons in tests.
    fn rows(&self) -> Result<StoreDump>;

    /// All rows as one text, the same for every store that holds the same.
    fn dump(&self) -> Result<String> {
        Ok(self.rows()?.text())
    }
}

/// The rows of a store, as lines.
#[derive(Clone, Debug, Default)]
pub struct StoreDump {
    lines: Vec<String>,
    places: HashMap<String, usize>,
}

impl StoreDump {
    fn row(&mut self, table: &str, key: &str, content: &dyn Debug) {
        self.lines.push(format!("{table} {key:?} {content:?}"));
    }

    /// For rows whose order matters: the how-manieth it is in its list.
    fn next(&mut self, list: String) -> usize {
        let place = self.places.entry(list).or_default();
        *place += 1;
        *place
    }

    /// A row of `runs`, with its plan's hash; `row.plan` is not looked at.
    pub fn run(&mut self, row: &NewRun, plan_hash: &str) {
        let row = NewRun {
            plan: None,
            ..row.clone()
        };
        let key = row.run_id.clone();
        self.row("run", &key, &(row, plan_hash));
    }

    /// A head with the name of its session; `head.session` is not looked at. `due_at` is when it is
    /// offered by `due`: `wake_at`, or later if it has been offered.
    pub fn head(
        &mut self,
        run_id: &str,
        head: &Head,
        version: i64,
        session: Option<&str>,
        due_at: Option<Time>,
    ) {
        let head = Head {
            session: None,
            ..head.clone()
        };
        self.row("head", run_id, &(head, version, session, due_at));
    }

    /// A chunk of the log.
    pub fn chunk(&mut self, run_id: &str, chunk: &StoredChunk) {
        let key = format!("{run_id} {:020}", chunk.first);
        let content = (
            chunk.last,
            chunk.commit,
            chunk.codec,
            &chunk.body,
            hex(&chunk.digests),
        );
        self.row("log", &key, &content);
    }

    /// The preimage of an event's key.
    pub fn key(&mut self, run_id: &str, key: &[u8]) {
        self.row("key", run_id, &hex(key));
    }

    /// A task; its run's number is not looked at.
    pub fn task(&mut self, run_id: &str, task: &TaskRow) {
        let task = TaskRow {
            run: super::RunNo(0),
            ..task.clone()
        };
        self.row("task", run_id, &task);
    }

    /// A step that waits, and whether it has been given its event.
    pub fn wait(&mut self, run_id: &str, step: &str, event_type: &str, given: bool) {
        self.row("wait", run_id, &(step, event_type, given));
    }

    /// An event from outside, and whether a run has been given it. Stores may forget the content of
    /// one that was given, so only its id is shown then.
    pub fn inbox(&mut self, event: &OutsideEvent, given: bool) {
        let content =
            (!given).then_some((&event.event_type, &event.key, &event.payload, &event.mail));
        let id = name_of_tenant(&event.tenant, &event.id);
        self.row("inbox", &id, &content);
    }

    /// A message; a run's messages oldest first.
    pub fn mail(&mut self, run_id: &str, body: &str, answer: Option<&str>) {
        let place = self.next(format!("mail {run_id}"));
        self.row("mail", run_id, &(place, body, answer));
    }

    /// A marker of the outbox.
    pub fn marker(&mut self, sink: &str, run_id: &str, first: u64, state: &MarkerState) {
        self.row("outbox", sink, &(run_id, first, state));
    }

    /// A dead letter; oldest first.
    pub fn letter(&mut self, letter: &DeadLetter) {
        let place = self.next("letter".into());
        let marker = &letter.marker;
        let what = (&marker.sink, &marker.run_id, marker.first, marker.attempts);
        self.row(
            "letter",
            &format!("{place:09}"),
            &(what, &letter.why, letter.at),
        );
    }

    /// How many slots of a key are taken; none is the same as no row.
    pub fn slots(&mut self, key: &str, taken: u32) {
        if taken > 0 {
            self.row("slots", key, &taken);
        }
    }

    /// A key that only one open run of a tenant may have, and the run that has it.
    pub fn unique_key(&mut self, tenant: &str, key: &str, run_id: &str) {
        self.row("unique", run_id, &(tenant, key));
    }

    /// A row for readers with SQL.
    pub fn view_row(&mut self, run_id: &str, view: &str, row_no: u32, body: &str) {
        self.row(view, &format!("{run_id} {row_no:09}"), &body);
    }

    /// A state that was written down.
    pub fn snapshot(&mut self, run_id: &str, snapshot: &StateSnapshot) {
        let content = (snapshot.seq, snapshot.version, hex(&snapshot.body));
        self.row("snapshot", run_id, &content);
    }

    /// An alert; oldest first.
    pub fn alert(&mut self, alert: &AlertRow) {
        let place = self.next("alert".into());
        let content = (
            &alert.run_id,
            &alert.code,
            alert.priority,
            &alert.message,
            alert.at,
        );
        self.row("alert", &format!("{place:09}"), &content);
    }

    /// The kept projection of a run.
    pub fn projection(&mut self, run_id: &str, seq: u64, snapshot: &str) {
        self.row("projection", run_id, &(seq, snapshot));
    }

    /// A document of the installation.
    pub fn document(&mut self, document: &StoredDocument) {
        let key = format!("{} {} {}", document.kind, document.tenant, document.key);
        self.row("document", &key, document);
    }

    /// A row of the audit log; oldest first.
    pub fn audit(&mut self, row: &AuditRow) {
        let place = self.next("audit".into());
        self.row("audit", &format!("{place:09}"), row);
    }

    /// A session that is not forgotten.
    pub fn session(&mut self, name: &str, until: Time, dead: bool) {
        self.row("session", name, &(until, dead));
    }

    /// All lines, sorted, because no table has an order of its own.
    #[must_use]
    pub fn text(mut self) -> String {
        self.lines.sort();
        let mut text = self.lines.join("\n");
        text.push('\n');
        text
    }
}
