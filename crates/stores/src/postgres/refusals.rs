//! Why an append lost, in the one order of reasons that all stores share: the run's place, the keys,
//! the unique key, the guards, the mail, the slots.

use std::collections::{BTreeMap, HashMap, HashSet};

use stepwell_engine::store::{Append, AppendResult, Batch, Guard, NewRun};
use tokio_postgres::Row;

use super::append_checks::{AppendChecks, Check, Found, may_win};
use super::commit::Part;
use super::connection::Connection;
use super::errors::DbError;
use super::{sql, unsigned};

type Answers = HashMap<Check, Vec<Row>>;

/// The first column of the rows that answer a question.
fn numbers(answers: &Answers, check: Check) -> HashSet<i64> {
    let rows = answers.get(&check).into_iter().flatten();
    rows.map(|row| row.get(0)).collect()
}

/// Of a task: its worker, whether its time is not over, whether it is leased.
type Hold = (Option<String>, Option<bool>, bool);

/// What the rows say, ready to be looked up.
struct Facts {
    created: HashSet<i64>,
    won: HashSet<i64>,
    new_keys: Option<HashMap<i64, usize>>,
    heads_alone: HashSet<i64>,
    /// A run that wants a key, and the run that has it.
    unique_keys: HashMap<i64, String>,
    /// A message that was taken, and whose it was.
    mail: HashMap<i64, i64>,
    /// Session: dead, and its time is not over.
    sessions: HashMap<i64, (bool, bool)>,
    tasks: HashMap<(i64, String), Hold>,
}

impl Facts {
    fn of(answers: &Answers) -> Facts {
        let chunks = || answers.get(&Check::Chunks).into_iter().flatten();
        let counting = chunks().any(|row| row.len() > 1);
        let is_key = |row: &&Row| counting && row.get::<_, bool>(1);
        let mut new_keys: HashMap<i64, usize> = HashMap::new();
        for row in chunks().filter(is_key) {
            *new_keys.entry(row.get(0)).or_default() += 1;
        }
        let sessions = answers.get(&Check::Sessions).into_iter().flatten();
        let unique_keys = answers.get(&Check::UniqueKeys).into_iter().flatten();
        let mail = answers.get(&Check::Mail).into_iter().flatten();
        let tasks = answers.get(&Check::Leases).into_iter().flatten();
        Facts {
            created: numbers(answers, Check::Created),
            won: chunks()
                .filter(|row| !is_key(row))
                .map(|row| row.get(0))
                .collect(),
            new_keys: counting.then_some(new_keys),
            heads_alone: numbers(answers, Check::HeadsAlone),
            unique_keys: unique_keys.map(|row| (row.get(0), row.get(1))).collect(),
            mail: mail.map(|row| (row.get(0), row.get(1))).collect(),
            sessions: sessions
                .map(|row| (row.get(0), (row.get(1), row.get(2))))
                .collect(),
            tasks: tasks
                .map(|row| {
                    let key = (row.get(0), row.get(1));
                    (key, (row.get(2), row.get(3), row.get(4)))
                })
                .collect(),
        }
    }

    /// Whether the run is where the sender thought.
    fn in_place(&self, append: &Append) -> bool {
        let run = append.run.0;
        may_win(append)
            && match (&append.create, &append.chunk) {
                (Some(_), _) => self.created.contains(&run) && self.won.contains(&run),
                (None, Some(_)) => self.won.contains(&run),
                (None, None) => self.heads_alone.contains(&run),
            }
    }

    /// The first reason after the run's place.
    fn reason(&self, batch: &Batch, append: &Append) -> Option<AppendResult> {
        let run = append.run.0;
        let keys = append.chunk.as_ref().map_or(0, |it| it.keys.len());
        if let Some(new) = &self.new_keys
            && new.get(&run).copied().unwrap_or(0) < keys
        {
            return Some(AppendResult::KeyExists);
        }
        if let Some(holder) = self.unique_keys.get(&run) {
            return Some(AppendResult::UniqueKeyTaken(holder.clone()));
        }
        let mut guards = append.guards.iter();
        if let Some(index) = guards.position(|it| !self.holds(batch, run, it)) {
            return Some(AppendResult::GuardFailed(index));
        }
        let there = append
            .taken
            .iter()
            .all(|it| self.mail.get(&it.0) == Some(&run));
        (!there).then_some(AppendResult::Moved)
    }

    fn holds(&self, batch: &Batch, run: i64, guard: &Guard) -> bool {
        let task = |target: &String| self.tasks.get(&(run, target.clone()));
        match guard {
            Guard::Session => {
                let session = batch.session.and_then(|no| self.sessions.get(&no.0));
                session.is_some_and(|(dead, in_time)| !dead && *in_time)
            }
            Guard::Dead(no) => self.sessions.get(&no.0).is_none_or(|(dead, _)| *dead),
            Guard::Lease { target, worker } => task(target).is_some_and(|(who, in_time, _)| {
                who.as_ref() == Some(worker) && *in_time == Some(true)
            }),
            Guard::Expired { target } => {
                task(target).is_some_and(|(_, in_time, leased)| *leased && *in_time == Some(false))
            }
        }
    }
}

/// Everyone who lost by anything but slots.
pub(super) async fn lost(
    checks: &AppendChecks<'_, '_>,
    connection: &Connection,
    answers: &Answers,
) -> Result<Vec<(usize, AppendResult)>, DbError> {
    let facts = Facts::of(answers);
    let batch = checks.batch();
    let mut lost = Vec::new();
    let (mut starts, mut others) = (Vec::new(), Vec::new());
    for part in checks.wave {
        let (place, append) = *part;
        if facts.in_place(append) {
            let reason = facts.reason(batch, append);
            lost.extend(reason.map(|it| (place, it)));
        } else if let Some(new) = &append.create {
            starts.push((place, append, &**new));
        } else {
            others.push((place, append));
        }
    }
    if !starts.is_empty() {
        lost.extend(not_created(connection, batch, &starts).await?);
    }
    if !others.is_empty() {
        lost.extend(not_there(connection, batch, &others).await?);
    }
    Ok(lost)
}

async fn not_created(
    connection: &Connection,
    batch: &Batch,
    starts: &[(usize, &Append, &NewRun)],
) -> Result<Vec<(usize, AppendResult)>, DbError> {
    let all = || starts.iter().map(|(_, _, new)| *new);
    let runs: Vec<i64> = starts.iter().map(|(_, it, _)| it.run.0).collect();
    let ids: Vec<&str> = all().map(|it| it.run_id.as_str()).collect();
    let keys: Vec<Option<&str>> = all().map(|it| it.request_key.as_deref()).collect();
    let plans: Vec<Option<i64>> = all().map(|it| it.plan.map(|it| it.0)).collect();
    let rows = connection
        .query(sql::WHY_NOT_CREATED, &[&runs, &ids, &keys, &plans])
        .await?;
    let rows: HashMap<i64, &Row> = rows.iter().map(|row| (row.get(0), row)).collect();
    let why = |append: &Append, new: &NewRun| {
        let Some(row) = rows.get(&append.run.0) else {
            return AppendResult::Moved;
        };
        // What this very commit has written is no reason.
        let there: Option<String> = row.get(1);
        let commit: (Option<i64>, Option<i64>) = (row.get(2), row.get(3));
        if let Some(id) = there {
            let ours = commit == (Some(batch.id.session), Some(batch.id.number));
            // Another append of the same batch may have created a run with this id.
            let no: Option<i64> = row.get(6);
            return if ours && no == Some(append.run.0) && id == new.run_id {
                AppendResult::Again
            } else {
                AppendResult::RunExists
            };
        }
        let taken: Option<String> = row.get(4);
        if let Some(id) = taken {
            return AppendResult::RequestTaken(id);
        }
        let planned: bool = row.get(5);
        if !planned {
            return AppendResult::Refused("the run's plan is not kept".into());
        }
        match append.chunk {
            None => AppendResult::Refused("a run begins with a chunk".into()),
            Some(_) => AppendResult::Moved,
        }
    };
    let lost = starts.iter();
    Ok(lost
        .map(|(place, append, new)| (*place, why(append, new)))
        .collect())
}

async fn not_there(
    connection: &Connection,
    batch: &Batch,
    others: &[Part<'_>],
) -> Result<Vec<(usize, AppendResult)>, DbError> {
    let runs: Vec<i64> = others.iter().map(|(_, it)| it.run.0).collect();
    let first = |it: &Append| it.chunk.as_ref().map(|it| super::seq(it.first));
    let firsts: Vec<Option<i32>> = others.iter().map(|(_, it)| first(it)).collect();
    let rows = connection
        .query(sql::WHO_WAS_THERE, &[&runs, &firsts])
        .await?;
    let ours = rows.iter().filter(|row| {
        let commit: (Option<i64>, Option<i64>) = (row.get(1), row.get(2));
        commit == (Some(batch.id.session), Some(batch.id.number))
    });
    let ours: HashSet<i64> = ours.map(|row| row.get(0)).collect();
    let why = |append: &Append| {
        if ours.contains(&append.run.0) {
            AppendResult::Again
        } else {
            AppendResult::Moved
        }
    };
    let lost = others.iter();
    Ok(lost.map(|(place, append)| (*place, why(append))).collect())
}

/// Goes through the slots in the order of the batch: who comes first has them.
pub(super) fn slots(wave: &[Part<'_>], answers: &Answers) -> Found {
    let rows = answers.get(&Check::Slots).into_iter().flatten();
    let mut taken: BTreeMap<String, u32> = rows
        .map(|row| {
            let taken: i32 = row.get(1);
            (row.get(0), unsigned(taken))
        })
        .collect();
    let mut found = Found::default();
    'appends: for (place, append) in wave {
        let mut after: BTreeMap<&str, u32> = BTreeMap::new();
        for slot in &append.slots {
            let key = slot.key.as_str();
            let known = after.get(key).or_else(|| taken.get(key));
            let now = known.copied().unwrap_or(0);
            let now = now.saturating_add_signed(slot.change);
            if slot.change > 0 && slot.limit.is_some_and(|limit| now > limit) {
                let full = AppendResult::SlotsFull(slot.key.clone());
                found.lost.push((*place, full));
                continue 'appends;
            }
            after.insert(key, now);
        }
        for (key, now) in after {
            taken.insert(key.to_owned(), now);
        }
    }
    found.slots = taken;
    found
}
