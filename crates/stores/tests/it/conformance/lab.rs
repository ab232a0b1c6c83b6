//! Three stores under one test, coordinators driven by hand, and the tables read past the store.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;
use serde_json::Value as Json;
use stepwell_engine::coordinator::{Assignment, Config, Coordinator, Notice, Retry, Ticket};
use stepwell_engine::port::{Catalog, NoCatalog};
use stepwell_engine::read;
use stepwell_engine::store::{
    AppendResult, Batch, MemoryStore, Store, StoreError, StoreErrorKind, TaskRow,
};
use stepwell_engine::{Error, StartRequest};
use stepwell_kernel::command::{Claimed, Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;
use stepwell_stores::postgres::PostgresStore;
use stepwell_stores::sqlite::SqliteStore;

use super::START;
use crate::place::Place;
use crate::server;
use crate::sqlite::quick;

/// A store, and a way to its tables that does not go through it.
pub(crate) struct Lab {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: View,
}

pub(crate) enum View {
    Memory(Arc<MemoryStore>),
    Sqlite(Connection, Place),
    Postgres(String),
}

/// Runs a test on memory, SQLite and PostgreSQL, each new and empty.
pub(crate) fn each_store(test: impl Fn(&Lab)) {
    for open in [memory, sqlite, postgres] {
        let lab = open();
        // Shown if the test fails.
        println!("on {}", lab.store.name());
        test(&lab);
        assert_eq!(lab.store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Runs a test on SQLite and PostgreSQL, each as a program with version 2 of the schema left it:
/// `before` looks at the tables, then the store is opened, which migrates it.
pub(crate) fn each_store_of_version_2<T>(before: impl Fn(&View) -> T, test: impl Fn(&Lab, T)) {
    for (make, open) in [
        (old_sqlite as fn() -> View, open_sqlite as fn(View) -> Lab),
        (old_postgres, open_postgres),
    ] {
        let view = make();
        let seen = before(&view);
        let lab = open(view);
        println!("on {}", lab.store.name());
        test(&lab, seen);
        assert_eq!(lab.store.check().unwrap().problems, Vec::<String>::new());
    }
}

fn old_sqlite() -> View {
    let place = Place::new();
    let conn = Connection::open(place.at("s.db")).unwrap();
    let program = "PRAGMA application_id = 0x53746570; PRAGMA user_version = 2;";
    for statements in [
        include_str!("../../../migrations/sqlite/0001_start.sql"),
        include_str!("../../../migrations/sqlite/0002_views.sql"),
        program,
        include_str!("../../../../../fixtures/stores/version-2.sqlite.sql"),
    ] {
        conn.execute_batch(statements).unwrap();
    }
    View::Sqlite(conn, place)
}

fn old_postgres() -> View {
    let schema = server::schema();
    let script = [
        &format!("CREATE SCHEMA {schema}; SET search_path = {schema};"),
        "CREATE TABLE migrations (version integer PRIMARY KEY, applied_at timestamptz DEFAULT now());
         INSERT INTO migrations (version) VALUES (1), (2);",
        include_str!("../../../migrations/postgres/0001_tables.sql"),
        include_str!("../../../migrations/postgres/0002_views.sql"),
        include_str!("../../../../../fixtures/stores/version-2.postgres.sql"),
        // A view of a user must not be in the way of a migration.
        "CREATE VIEW of_a_user AS SELECT count(*) FROM workflow_instance JOIN workflow_step
         USING (instance_id);",
    ];
    server::sql(&server::url(), &script.join("\n"));
    View::Postgres(schema)
}

fn memory() -> Lab {
    let store = Arc::new(MemoryStore::default());
    Lab {
        store: store.clone(),
        view: View::Memory(store),
    }
}

fn sqlite() -> Lab {
    let place = Place::new();
    let conn = Connection::open(place.at("s.db")).unwrap();
    open_sqlite(View::Sqlite(conn, place))
}

fn open_sqlite(view: View) -> Lab {
    let View::Sqlite(_, place) = &view else {
        panic!("not a file");
    };
    let store = SqliteStore::open(place.at("s.db"), quick()).unwrap();
    Lab {
        store: Arc::new(store),
        view,
    }
}

fn postgres() -> Lab {
    open_postgres(View::Postgres(server::schema()))
}

fn open_postgres(view: View) -> Lab {
    let View::Postgres(schema) = &view else {
        panic!("not a schema");
    };
    let store = PostgresStore::connect(&server::url(), server::options(schema)).unwrap();
    Lab {
        store: Arc::new(store),
        view,
    }
}

impl Lab {
    /// What another server opens: a connection of its own where the store takes several.
    pub(crate) fn second(&self) -> Arc<dyn Store> {
        match &self.view {
            View::Memory(_) | View::Sqlite(..) => self.store.clone(),
            View::Postgres(schema) => {
                let options = server::options(schema);
                Arc::new(PostgresStore::connect(&server::url(), options).unwrap())
            }
        }
    }

    /// A coordinator of its own session, at the start of time.
    pub(crate) fn hand(&self, config: Config) -> Hand {
        self.hand_at(config, START)
    }

    pub(crate) fn hand_at(&self, config: Config, now: Time) -> Hand {
        Hand::new(self.second(), config, now)
    }

    pub(crate) fn events(&self, run_id: &str) -> Vec<Event> {
        match read::events(&*self.store, run_id, 0) {
            Err(Error::UnknownRun(_)) => Vec::new(),
            events => events.unwrap(),
        }
    }

    pub(crate) fn kinds(&self, run_id: &str) -> Vec<&'static str> {
        let events = self.events(run_id);
        events.iter().map(|event| event.body.kind()).collect()
    }

    pub(crate) fn count(&self, run_id: &str, kind: &str) -> usize {
        self.kinds(run_id).iter().filter(|it| **it == kind).count()
    }

    /// The row of a run in a list.
    pub(crate) fn status(&self, run_id: &str) -> String {
        let run = self.store.find(run_id).unwrap().unwrap();
        self.store.load(run).unwrap().unwrap().head.status
    }

    /// Both tables of a linear run, times in milliseconds since the start. Columns that are NULL are
    /// left out.
    pub(crate) fn tables(&self, run_id: &str) -> String {
        let instances = self.rows(
            "workflow_instance",
            run_id,
            &[
                "status",
                "current_step_seq",
                "current_step_type",
                "started_at",
                "completed_at",
                "failed_at",
            ],
        );
        let steps = self.rows(
            "workflow_step",
            run_id,
            &[
                "step_seq",
                "step_type",
                "status",
                "attempts",
                "max_attempts",
                "next_run_at",
                "waiting_event_type",
                "deadline_at",
                "locked_by",
                "locked_until",
                "last_error",
            ],
        );
        let Some(instance) = instances.first() else {
            assert!(steps.is_empty(), "steps without their instance");
            return String::new();
        };
        let row = Row(instance);
        let mut text = format!(
            "{} at {} {}{}{}{}\n",
            row.present(0),
            row.present(1),
            row.present(2),
            column("started", row.time(3), at),
            column("completed", row.time(4), at),
            column("failed", row.time(5), at),
        );
        for row in steps.iter().map(|row| Row(row)) {
            text += &format!(
                "  {} {} {} {}/{}{}{}{}{}{}{}\n",
                row.present(0),
                row.present(1),
                row.present(2),
                row.present(3),
                row.present(4),
                column("next_run_at", row.time(5), at),
                column("waits", row.text(6), |it| it),
                column("deadline", row.time(7), at),
                column("locked_by", row.text(8), |it| it),
                column("locked_until", row.time(9), at),
                column("last_error", row.text(10), |it| format!("{it:?}")),
            );
        }
        text
    }

    /// The rows of a run in a view, by place: from the databases with plain SQL.
    fn rows(&self, view: &str, run_id: &str, columns: &[&str]) -> Vec<Vec<Option<String>>> {
        if let View::Memory(store) = &self.view {
            let rows = store.view_rows(run_id).into_iter();
            return rows
                .filter(|row| row.view == view)
                .map(|row| texts(&row.body, columns))
                .collect();
        }
        let order = match view {
            "workflow_step" => " ORDER BY step_seq",
            _ => "",
        };
        self.view.select(
            columns,
            &format!("{view} WHERE instance_id = '{run_id}'{order}"),
        )
    }
}

impl View {
    /// Plain SQL; times come as RFC 3339 from both databases.
    pub(crate) fn select(&self, columns: &[&str], from: &str) -> Vec<Vec<Option<String>>> {
        match self {
            View::Memory(_) => Vec::new(),
            View::Sqlite(conn, _) => {
                let columns: Vec<String> = columns
                    .iter()
                    .map(|name| format!("CAST({name} AS TEXT)"))
                    .collect();
                let query = format!("SELECT {} FROM {from}", columns.join(", "));
                let mut statement = conn.prepare(&query).unwrap();
                let texts = |row: &rusqlite::Row<'_>| {
                    (0..columns.len()).map(|index| row.get(index)).collect()
                };
                let rows = statement.query_map([], texts).unwrap();
                rows.collect::<Result<_, _>>().unwrap()
            }
            View::Postgres(schema) => {
                let shown = |name: &&str| match name {
                    it if is_time(it) => format!(
                        "to_char({it} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
                    ),
                    it => (*it).to_owned(),
                };
                let columns: Vec<String> = columns.iter().map(shown).collect();
                let query = format!("SELECT {} FROM {schema}.{from}", columns.join(", "));
                server::sql(&server::url(), &query)
            }
        }
    }
}

struct Row<'a>(&'a [Option<String>]);

impl Row<'_> {
    fn text(&self, index: usize) -> Option<String> {
        self.0[index].clone()
    }

    /// A column that is never NULL.
    fn present(&self, index: usize) -> &str {
        self.0[index].as_deref().unwrap()
    }

    fn time(&self, index: usize) -> Option<Time> {
        let text = self.0[index].as_ref()?;
        Some(Time::from_rfc3339(text).unwrap())
    }
}

/// The columns of a row that the memory store keeps, as the databases show them.
fn texts(body: &str, columns: &[&str]) -> Vec<Option<String>> {
    let row: Json = serde_json::from_str(body).unwrap();
    let text = |name: &&str| match &row[*name] {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        value if is_time(name) => Some(Time(value.as_i64().unwrap()).to_string()),
        value => Some(value.to_string()),
    };
    columns.iter().map(text).collect()
}

fn is_time(column: &str) -> bool {
    column.ends_with("_at") || column.ends_with("_until")
}

fn column<T>(name: &str, value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(String::new, |value| format!(" {name}={}", show(value)))
}

fn at(time: Time) -> String {
    format!("+{}", time.0 - START.0)
}

/// A coordinator driven by hand.
pub(crate) struct Hand {
    pub(crate) coordinator: Coordinator,
    pub(crate) now: Time,
    tickets: u64,
    answers: HashMap<Ticket, Result<Reply, Error>>,
    /// Work of this process whose claim is committed.
    pub(crate) jobs: Vec<Assignment>,
    /// Everything else that it said.
    pub(crate) said: Vec<Notice>,
}

impl Hand {
    pub(crate) fn new(store: Arc<dyn Store>, config: Config, now: Time) -> Hand {
        Hand::with_catalog(store, Box::new(NoCatalog), config, now)
    }

    /// One that knows definitions of children.
    pub(crate) fn with_catalog(
        store: Arc<dyn Store>,
        catalog: Box<dyn Catalog + Send>,
        config: Config,
        now: Time,
    ) -> Hand {
        Hand {
            coordinator: Coordinator::open(store, catalog, config, now).unwrap(),
            now,
            tickets: 0,
            answers: HashMap::new(),
            jobs: Vec::new(),
            said: Vec::new(),
        }
    }

    pub(crate) fn advance(&mut self, millis: u64) -> &mut Hand {
        self.now = self.now.plus(millis);
        self
    }

    /// Hands a command over and commits nothing.
    pub(crate) fn hand_in(&mut self, run_id: &str, command: Command) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.coordinator.submit(run_id, command, ticket, self.now);
        ticket
    }

    /// Hands a start over and commits nothing.
    pub(crate) fn hand_in_start(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.coordinator
            .start(plan, request, true, ticket, self.now);
        ticket
    }

    /// The answer to a command, if it has come.
    pub(crate) fn answer(&mut self, ticket: Ticket) -> Option<Result<Reply, Error>> {
        self.listen();
        self.answers.remove(&ticket)
    }

    #[track_caller]
    pub(crate) fn submit(&mut self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let ticket = self.hand_in(run_id, command);
        self.drive();
        self.answer(ticket).expect("an answer has come")
    }

    #[track_caller]
    pub(crate) fn trigger(
        &mut self,
        plan: &Arc<Plan>,
        request: StartRequest,
    ) -> Result<String, Error> {
        let ticket = self.hand_in_start(plan, request);
        self.drive();
        match self.answer(ticket).expect("an answer has come")? {
            Reply::Created { run_id } => Ok(run_id),
            other => panic!("{other:?}"),
        }
    }

    /// Why a command is refused.
    #[track_caller]
    pub(crate) fn code(&mut self, run_id: &str, command: Command) -> Code {
        match self.submit(run_id, command) {
            Err(Error::Rejected(rejection)) => rejection.code,
            other => panic!("{other:?}"),
        }
    }

    /// The next batch, not sent yet.
    pub(crate) fn batch(&mut self) -> Option<Batch> {
        self.coordinator.next_batch(self.now)
    }

    /// Takes a batch to the store and brings the answer back.
    pub(crate) fn send(&mut self, batch: &Batch) -> Vec<AppendResult> {
        let outcomes = self.coordinator.store().commit(batch).unwrap();
        self.coordinator
            .committed(batch, outcomes.clone(), self.now);
        self.listen();
        outcomes
    }

    /// The store could not take a batch.
    pub(crate) fn lose(&mut self, batch: &Batch, kind: StoreErrorKind) -> Retry {
        let error = StoreError::new(kind, "for the test");
        let retry = self.coordinator.failed(batch, &error, self.now);
        self.listen();
        retry
    }

    /// Does what is due, and everything that follows.
    pub(crate) fn tick(&mut self) {
        self.coordinator.tick(self.now).unwrap();
        self.drive();
    }

    /// Commits until nothing follows any more.
    pub(crate) fn drive(&mut self) {
        for _ in 0..10_000 {
            while let Some(batch) = self.batch() {
                self.send(&batch);
            }
            self.listen();
            if !self.coordinator.is_pressed() {
                return;
            }
            self.coordinator.tick(self.now).unwrap();
        }
        panic!("it never becomes idle");
    }

    fn listen(&mut self) {
        for notice in self.coordinator.notices() {
            match notice {
                Notice::Answer(ticket, answer) => {
                    assert!(
                        self.answers.insert(ticket, answer).is_none(),
                        "one answer for each"
                    );
                }
                Notice::Start(job) => self.jobs.push(*job),
                other => self.said.push(other),
            }
        }
    }

    pub(crate) fn target(&mut self, run_id: &str, step: &str) -> Target {
        let plan = &self.state_of(run_id).1;
        Target::Step(plan.parse_step_id(step).unwrap())
    }

    /// The state of a run as this coordinator has it in memory.
    pub(crate) fn state_of(&mut self, run_id: &str) -> (&State, Arc<Plan>) {
        if !self
            .coordinator
            .all_hot()
            .any(|hot| **hot.run_id() == *run_id)
        {
            self.coordinator.recover(run_id, self.now).unwrap();
        }
        let found = self
            .coordinator
            .all_hot()
            .find(|hot| **hot.run_id() == *run_id);
        let hot = found.expect("it is in memory");
        (hot.state(), hot.plan().clone())
    }

    /// A worker outside claims a step.
    pub(crate) fn claim_as(
        &mut self,
        run_id: &str,
        step: &str,
        worker: &str,
    ) -> Result<Claimed, Error> {
        let claim = Command::ClaimStep {
            target: self.target(run_id, step),
            worker: worker.into(),
            lease_until: self.now.plus(super::linear::LEASE_MS),
        };
        match self.submit(run_id, claim)? {
            Reply::Claimed(claimed) => Ok(*claimed),
            other => panic!("{other:?}"),
        }
    }

    /// Visible tasks of the only queue that tests have, reserved for a worker.
    pub(crate) fn reserve(&mut self, plan: &Plan, worker: &str, limit: usize) -> Vec<TaskRow> {
        let pairs: Vec<(String, String)> = plan
            .numbers()
            .map(|no| {
                let at = stepwell_kernel::plan::StepRef::first(no);
                let (queue, op) = stepwell_engine::rows::served_by(plan, Target::Step(at));
                (queue.to_owned(), op.to_owned())
            })
            .collect();
        let until = self.now.plus(1_000);
        let store = self.coordinator.store();
        store
            .reserve(&pairs, worker, self.now, until, limit)
            .unwrap()
    }

    /// Ends the oldest work of this process well.
    #[track_caller]
    pub(crate) fn finish_next(&mut self) {
        let job = self.jobs.remove(0);
        self.finish(&job, super::completed(&job.claimed.claim));
    }

    pub(crate) fn finish(&mut self, job: &Assignment, command: Command) {
        self.finish_later(job, command);
        self.drive();
    }

    /// Reports the result of work and commits nothing.
    pub(crate) fn finish_later(&mut self, job: &Assignment, command: Command) {
        let claim = &job.claimed.claim;
        self.coordinator
            .finished(job.run, claim.target, claim.execution, command, self.now);
    }

    /// Does all work well until there is none.
    pub(crate) fn work(&mut self) {
        self.drive();
        while !self.jobs.is_empty() {
            self.finish_next();
        }
    }
}
