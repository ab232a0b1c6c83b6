//! The same random calls on several stores: every answer and all rows must be the same.
//!
//! Each store has a driver of its own with the same seed. What a driver does next depends on chance and
//! on what its store answered, shown without the numbers that stores give out themselves; as long as
//! the answers are the same, so are the calls. The first answer that differs ends it, with the step.

mod administration;

use std::fmt::Debug;

use stepwell_kernel::time::Time;

use super::chance::Chance;
use super::fixture::{self, at, chunk, plan};
use crate::store::{
    Append, AppendResult, Batch, CommitId, Delivered, DumpRows, Guard, Head, Marker, MessageNo,
    NewMessage, NewRun, OutsideEvent, PlanNo, RunFilter, RunNo, SessionNo, SlotChange,
    StateSnapshot, Store, TaskChange, TaskRow, ViewRow, WaitChange,
};

/// A store that can be compared with others.
pub trait Compared: Store + DumpRows {}

impl<T: Store + DumpRows> Compared for T {}

/// How often all rows are compared, besides at the end.
const DUMP_EVERY: usize = 100;

/// Drives the stores, which must be empty, with the same random calls.
///
/// # Panics
///
/// If two stores answer differently or hold something different.
pub fn differential(seed: u64, steps: usize, stores: &[&dyn Compared]) {
    let mut drivers: Vec<Driver<'_>> = stores.iter().map(|it| Driver::new(*it, seed)).collect();
    for step in 1..=steps {
        let answers: Vec<String> = drivers.iter_mut().map(Driver::step).collect();
        same(seed, step, stores, &answers);
        if step % DUMP_EVERY == 0 || step == steps {
            let dumps: Vec<String> = stores.iter().map(|it| it.dump().unwrap()).collect();
            same(seed, step, stores, &dumps);
        }
    }
}

fn same(seed: u64, step: usize, stores: &[&dyn Compared], texts: &[String]) {
    for (store, text) in stores.iter().zip(texts).skip(1) {
        let lines = texts[0].lines().zip(text.lines());
        let differs = { lines }.find(|(a, b)| a != b);
        assert!(
            *text == texts[0],
            "seed {seed}, step {step}: {} and {} differ, first in\n{differs:#?}\nof\n{}\nand\n{text}",
            stores[0].name(),
            store.name(),
            texts[0],
        );
    }
}

struct Driver<'a> {
    store: &'a dyn Compared,
    chance: Chance,
    now: Time,
    steps: i64,
    plan: PlanNo,
    runs: Vec<(RunNo, String)>,
    sessions: Vec<SessionNo>,
    posted: Vec<MessageNo>,
    markers: Vec<Marker>,
    last: Option<Batch>,
}

impl<'a> Driver<'a> {
    fn new(store: &'a dyn Compared, seed: u64) -> Driver<'a> {
        Driver {
            store,
            chance: Chance(seed),
            now: at(0),
            steps: 0,
            plan: store.put_plan(&plan("plan_suite")).unwrap(),
            runs: Vec::new(),
            sessions: Vec::new(),
            posted: Vec::new(),
            markers: Vec::new(),
            last: None,
        }
    }

    /// One call; what it answered.
    fn step(&mut self) -> String {
        // Time moves on with each step, so that "longest" and "oldest" have one meaning.
        self.now = self.now.plus(1 + self.chance.below(4) as u64);
        self.steps += 1;
        match self.chance.below(21) {
            0..=8 => self.commit(),
            9 => self.again(),
            10..=12 => self.work(),
            13..=14 => self.see_to_sessions(),
            15..=17 => self.post(),
            18 => self.publish(),
            19 => self.administer(),
            _ => self.read(),
        }
    }

    fn soon(&mut self) -> Time {
        self.now.plus(self.chance.below(15) as u64)
    }

    fn id_of(&self, run: RunNo) -> &str {
        let known = self.runs.iter().find(|(no, _)| *no == run);
        known.map_or("?", |(_, id)| id)
    }

    fn ids(&self, runs: &[RunNo]) -> Vec<&str> {
        runs.iter().map(|run| self.id_of(*run)).collect()
    }

    fn any_run(&mut self) -> RunNo {
        let run = self.chance.of(&self.runs);
        run.map_or(RunNo(987_654), |(no, _)| no)
    }

    fn any_session(&mut self) -> SessionNo {
        let session = self.chance.of(&self.sessions);
        session.unwrap_or(SessionNo(987_654))
    }

    fn commit(&mut self) -> String {
        let session = self.chance.once_in(3).then(|| self.any_session());
        let mut appends = Vec::new();
        let runs = self.runs.clone();
        let share = 1 + runs.len() / 3;
        for (run, _) in runs {
            if self.chance.once_in(share) {
                appends.push(self.append(run, session));
            }
        }
        if self.runs.len() < 6 || self.chance.once_in(8) {
            let run = RunNo(self.store.reserve_numbers(1).unwrap().start);
            appends.push(self.create(run));
        }
        let batch = Batch {
            id: CommitId {
                session: 0,
                number: self.steps,
            },
            session,
            now: self.now,
            appends,
        };
        let answer = self.send(&batch);
        self.last = Some(batch);
        answer
    }

    /// The last batch as it was, as if its answer had been lost.
    fn again(&mut self) -> String {
        let last = self.last.take();
        let answer = last.as_ref().map(|batch| self.send(batch));
        self.last = last;
        answer.unwrap_or_default()
    }

    fn send(&mut self, batch: &Batch) -> String {
        let mut outcomes = self.store.commit(batch).unwrap();
        for (append, outcome) in batch.appends.iter().zip(&mut outcomes) {
            if let (Some(new), AppendResult::Committed) = (&append.create, &*outcome) {
                self.runs.push((append.run, new.run_id.clone()));
                // A batch is in the order of its runs, and one that lost may win the second time.
                self.runs.sort();
            }
            if let AppendResult::Refused(why) = outcome {
                // Every database has its own words.
                why.clear();
            }
        }
        shown("commit", &outcomes)
    }

    fn create(&mut self, run: RunNo) -> Append {
        let known = self.chance.once_in(10);
        let run_id = match self.chance.of(&self.runs).filter(|_| known) {
            Some((_, id)) => id,
            None => format!("run-{}", self.steps),
        };
        let request_key = self.chance.once_in(2);
        let request_key = request_key.then(|| self.chance.name("request", 20));
        let new = NewRun {
            run_id,
            request_key,
            plan: (!self.chance.once_in(20)).then_some(self.plan),
            tenant: self.chance.name("tenant", 2),
            event_key: self.chance.name("key", 3),
            created_at: self.now,
            priority: self.chance.below(3) as i32 - 1,
            labels: (0..self.chance.below(3))
                .map(|it| (format!("l{it}"), self.chance.name("v", 2)))
                .collect(),
            ..NewRun::default()
        };
        let mut append = Append::new(run, 0);
        append.chunk = Some(chunk(1, 1 + self.chance.below(3) as u64));
        append.head = Some(self.head(None));
        append.create = Some(Box::new(new));
        self.fill(&mut append);
        append
    }

    fn append(&mut self, run: RunNo, session: Option<SessionNo>) -> Append {
        let stored = self.store.load(run).unwrap().unwrap();
        let mut after = stored.chunks.last().map_or(0, |it| it.last);
        if self.chance.once_in(10) {
            after = after.saturating_sub(1);
        }
        let mut append = Append::new(run, after);
        if self.chance.once_in(4) {
            let stale = i64::from(self.chance.once_in(6));
            append.head_version = Some(stored.head_version - stale);
        } else {
            let mut events = chunk(after + 1, after + 1 + self.chance.below(3) as u64);
            if self.chance.once_in(12) {
                events.keys[0] = b"key|1".to_vec();
            }
            append.chunk = Some(events);
        }
        for _ in 0..self.chance.below(2) {
            let guard = self.guard();
            append.guards.push(guard);
        }
        if session.is_some() && self.chance.once_in(2) {
            append.guards.push(Guard::Session);
        }
        // Only a session that is seen to live may own a run.
        let owner = session.filter(|_| append.guards.contains(&Guard::Session));
        if !self.chance.once_in(4) {
            append.head = Some(self.head(owner));
        }
        if self.chance.once_in(2) {
            append.taken = stored.mail.iter().take(2).map(|it| it.no).collect();
        }
        if self.chance.once_in(12) {
            append.taken.extend(self.chance.of(&self.posted));
        }
        append.taken.dedup();
        self.fill(&mut append);
        if let Some(head) = append.head.as_mut().filter(|_| append.slots.is_empty()) {
            head.slots = stored.head.slots;
        }
        append
    }

    fn head(&mut self, session: Option<SessionNo>) -> Head {
        let wakes = self.chance.once_in(2);
        let ended = self.chance.once_in(10);
        Head {
            status: self.chance.name("STATUS", 3),
            substatus: self.chance.once_in(3).then(|| "SUB".into()),
            session,
            wake_at: wakes.then(|| self.soon()),
            queued: self.chance.once_in(6),
            ended_at: ended.then_some(self.now),
            slots: if self.chance.once_in(4) {
                vec!["all".into(), "plan/α".into()]
            } else {
                Vec::new()
            },
        }
    }

    fn guard(&mut self) -> Guard {
        let target = self.chance.name("t", 3);
        match self.chance.below(3) {
            0 => Guard::Dead(self.any_session()),
            1 => Guard::Lease {
                target,
                worker: self.chance.name("w", 2),
            },
            _ => Guard::Expired { target },
        }
    }

    /// The rows that may be in any append.
    fn fill(&mut self, append: &mut Append) {
        for _ in 0..self.chance.below(3) {
            let change = self.task_change();
            append.tasks.push(change);
        }
        if self.chance.once_in(3) {
            let step = self.chance.name("s", 2);
            append.waits.push(if self.chance.once_in(4) {
                WaitChange::Delete { step }
            } else {
                WaitChange::Put {
                    step,
                    event_type: self.chance.name("type", 2),
                }
            });
        }
        if self.chance.once_in(5) {
            let (tenant, key) = (self.chance.name("tenant", 2), self.chance.name("key", 4));
            append.unique_key = match self.chance.once_in(2) {
                true => fixture::free(&tenant, &key),
                false => fixture::take(&tenant, &key),
            };
        }
        for _ in 0..self.chance.below(3) {
            append.view_rows.push(ViewRow {
                view: self.chance.of(&["one", "another"]).unwrap_or("one"),
                row_no: self.chance.below(3) as u32,
                body: format!("{{\"step\":{}}}", self.steps),
            });
        }
        for number in 0..self.chance.below(2) {
            let to = self.chance.of(&self.runs);
            append.mail.push(NewMessage {
                to: to.map_or_else(|| "nobody".into(), |(_, id)| id),
                body: format!("{{\"step\":{},\"number\":{number}}}", self.steps),
            });
        }
        if self.chance.once_in(3) {
            append.sinks.push(self.chance.name("sink", 2));
        }
        for _ in 0..self.chance.below(2) {
            append.slots.push(SlotChange {
                key: self.chance.name("slot", 2),
                change: self.chance.below(4) as i32 - 2,
                limit: (!self.chance.once_in(5)).then_some(3),
            });
        }
        if self.chance.once_in(6) {
            append.snapshot = Some(StateSnapshot {
                seq: self.chance.below(append.after as usize + 1) as u64,
                version: 1,
                body: self.steps.to_le_bytes().to_vec(),
            });
        }
        if self.chance.once_in(10) {
            append.alerts.push(fixture::alert("ALERT"));
        }
    }

    fn task_change(&mut self) -> TaskChange {
        let target = self.chance.name("t", 3);
        match self.chance.below(7) {
            0..=2 => TaskChange::Put {
                target,
                queue: "q".into(),
                op: self.chance.name("op", 2),
                priority: self.chance.below(3) as i32,
                visible_at: self.soon(),
            },
            3..=4 => TaskChange::Lease {
                target,
                worker: self.chance.name("w", 2),
                until: self.soon(),
            },
            5 => TaskChange::Delete { target },
            _ => TaskChange::Stop { target },
        }
    }

    fn tasks(&self, rows: Vec<TaskRow>) -> String {
        let show = |mut row: TaskRow| {
            let id = self.id_of(row.run).to_owned();
            row.run = RunNo(0);
            (id, row)
        };
        shown("tasks", &rows.into_iter().map(show).collect::<Vec<_>>())
    }

    fn work(&mut self) -> String {
        let serves = [("q".to_string(), self.chance.name("op", 2))];
        let (until, limit) = (self.soon(), 1 + self.chance.below(4));
        let worker = self.chance.name("w", 2);
        match self.chance.below(5) {
            0..=1 => {
                let rows = self.store.reserve(&serves, &worker, self.now, until, limit);
                self.tasks(rows.unwrap())
            }
            2 => {
                let (run, target) = (self.any_run(), self.chance.name("t", 3));
                let beat = match self.chance.below(4) {
                    0 => self.store.revive(run, &target, &worker, self.now, until),
                    _ => self.store.heartbeat(run, &target, &worker, self.now, until),
                };
                shown("heartbeat", &beat)
            }
            3 => self.tasks(self.store.expired(self.now, limit).unwrap()),
            _ => shown("next_visible", &self.store.next_visible(&serves)),
        }
    }

    fn see_to_sessions(&mut self) -> String {
        let (now, until, limit) = (self.now, self.soon(), 1 + self.chance.below(4));
        let session = self.any_session();
        match self.chance.below(9) {
            0 => {
                let name = format!("session-{}", self.steps);
                let until = until.plus(60);
                let no = self.store.open_session(&name, now, until).unwrap();
                self.sessions.push(no);
                name
            }
            1..=2 => {
                let until = until.plus(60);
                shown("renew", &self.store.renew_session(session, now, until))
            }
            3 if self.chance.once_in(3) => shown("close", &self.store.close_session(session)),
            3..=4 => {
                let dead = self.store.dead_sessions(now).unwrap();
                let place = |it| self.sessions.iter().position(|known| *known == it);
                shown("dead", &dead.into_iter().map(place).collect::<Vec<_>>())
            }
            5 => shown(
                "runs_of",
                &self.ids(&self.store.runs_of(session, limit).unwrap()),
            ),
            6 => shown(
                "due",
                &self.ids(&self.store.due(now, until, limit).unwrap()),
            ),
            7 => shown("next_due", &self.store.next_due()),
            _ => shown("queued", &self.ids(&self.store.queued(now, limit).unwrap())),
        }
    }

    fn post(&mut self) -> String {
        let (run, mail) = (self.any_run(), self.chance.of(&self.posted));
        let mail = mail.unwrap_or(MessageNo(987_654));
        match self.chance.below(6) {
            0 if !self.runs.is_empty() => {
                let body = format!("{{\"posted\":{}}}", self.steps);
                let no = self.store.post(run, &body, self.now).unwrap();
                self.posted.push(no);
                body
            }
            1 => shown("answer", &self.store.answer(mail, "no")),
            2 => shown("take_answer", &self.store.take_answer(mail)),
            3 => {
                let session = self.any_session();
                let mail = self.store.mail(session, 1 + self.chance.below(4)).unwrap();
                let show = mail.iter().map(|it| (self.id_of(it.run), &it.body));
                shown("mail", &show.collect::<Vec<_>>())
            }
            _ => {
                let id = self.chance.name("event", self.steps as usize);
                let event = OutsideEvent {
                    tenant: self.chance.name("tenant", 2),
                    event_type: self.chance.name("type", 2),
                    ..fixture::paid(&id, &self.chance.name("key", 3))
                };
                match self.store.deliver(&event, self.now).unwrap() {
                    Delivered::ToRun(run) => shown("to", &self.id_of(run)),
                    other => shown("deliver", &other),
                }
            }
        }
    }

    fn publish(&mut self) -> String {
        let (now, until) = (self.now, self.soon());
        if self.markers.is_empty() || self.chance.once_in(2) {
            let sink = self.chance.name("sink", 2);
            let limit = 1 + self.chance.below(4);
            let taken = self.store.take(&sink, "me", now, until, limit).unwrap();
            let show = taken.iter().map(|it| (&it.run_id, it.first, it.attempts));
            let text = shown("take", &show.collect::<Vec<_>>());
            self.markers.extend(taken);
            return text;
        }
        let index = self.chance.below(self.markers.len());
        let marker = self.markers.swap_remove(index);
        match self.chance.below(5) {
            0..=1 => shown("sent", &self.store.sent(&marker)),
            2 => shown("failed", &self.store.failed(&marker, until, "why")),
            3 => {
                let alert = fixture::alert("DEAD");
                shown("bury", &self.store.bury(&marker, now, "why", &alert))
            }
            _ => {
                let letters = self.store.dead_letters(9).unwrap();
                let letter = self.chance.of(&letters).map_or(987_654, |it| it.no);
                shown("redrive", &self.store.redrive(letter))
            }
        }
    }

    fn read(&mut self) -> String {
        if self.runs.is_empty() {
            return String::new();
        }
        let run = self.any_run();
        match self.chance.below(7) {
            0 => {
                let chunks = self.store.chunks(run, self.chance.below(9) as u64, 3);
                shown("chunks", &chunks)
            }
            1 => {
                let labels = [Vec::new(), vec![("l0".into(), "v1".into())]];
                let labels = self.chance.of(&labels).unwrap_or_default();
                let filter = RunFilter {
                    open: self.chance.once_in(2),
                    statuses: (0..self.chance.below(3))
                        .map(|it| format!("STATUS{it}"))
                        .collect(),
                    tenant: self.chance.once_in(3).then(|| "tenant1".into()),
                    labels,
                    text: self.chance.once_in(3).then(|| self.chance.name("KEY", 3)),
                    created_from: self.chance.once_in(3).then(|| at(self.steps)),
                    ended_until: self.chance.once_in(5).then_some(self.now),
                    before: self.chance.once_in(2).then_some(run),
                    limit: 1 + self.chance.below(9),
                    ..RunFilter::default()
                };
                let rows = self.store.list(&filter).unwrap();
                let show = |mut it: crate::store::RunSummary| {
                    it.run = RunNo(0);
                    it.head.session = None;
                    it
                };
                let counts = self.store.count_runs(&filter).unwrap();
                let rows: Vec<_> = rows.into_iter().map(show).collect();
                shown("list", &(rows, counts))
            }
            2 => {
                let seq = self.chance.below(9) as u64;
                let text = format!("{{\"step\":{}}}", self.steps);
                let put = self.store.put_projection(run, seq, &text, self.now);
                shown("projection", &(put, self.store.projection(run)))
            }
            3 => {
                let name = self.chance.name("slot", 2);
                shown("slots", &self.store.slots_taken(&name))
            }
            4 => {
                let name = self.chance.name("sink", 2);
                let failure = self.store.delivery_failure(&name);
                shown("backlog", &(self.store.backlog(&name), failure))
            }
            5 => {
                let health = self.store.check().unwrap();
                shown("check", &(health.runs, health.open, health.problems))
            }
            _ => {
                let stored = self.store.load(run).unwrap();
                let show = stored.map(|it| {
                    let mail: Vec<String> = it.mail.into_iter().map(|it| it.body).collect();
                    (it.head_version, it.snapshot, it.chunks, mail, it.waits)
                });
                shown("load", &show)
            }
        }
    }
}

fn shown(what: &str, answer: &dyn Debug) -> String {
    format!("{what} {answer:?}")
}
