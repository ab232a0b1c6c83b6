//! The first half of a commit: everything that an append can lose by.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use stepwell_engine::store::{Append, AppendResult, Batch, Guard, UniqueKey, WaitChange};
use tokio_postgres::Row;

use super::columns::{Chunks, Heads};
use super::commit::Part;
use super::connection::Connection;
use super::errors::DbError;
use super::query::Query;
use super::{refusals, sql, unsigned};

/// Which statement a list of rows answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Check {
    Locks,
    Created,
    Sessions,
    Leases,
    Chunks,
    Heads,
    HeadsAlone,
    UniqueKeys,
    Mail,
    MakeSlots,
    Slots,
    Kept,
}

/// A step that begins to wait. `kept_events` refers to it by its position among the waiting steps of the wave.
pub(super) struct Put<'a> {
    pub(super) run: i64,
    event_key: Option<&'a str>,
    pub(super) step: &'a str,
    pub(super) event_type: &'a str,
}

/// The result of the checks of a wave.
#[derive(Default)]
pub(super) struct Found {
    /// Appends that are refused, by their position in the batch, with the reason.
    pub(super) lost: Vec<(usize, AppendResult)>,
    /// The number of taken slots after the wave, by key.
    pub(super) slots: BTreeMap<String, u32>,
    /// For steps that begin to wait, by position: the id of the event that was kept for the step, and its message.
    pub(super) kept_events: HashMap<usize, (String, String)>,
}

/// A part of a batch whose appends do not depend on each other.
pub(super) struct AppendChecks<'p, 'a> {
    batch: &'a Batch,
    given: Option<i64>,
    pub(super) wave: &'p [Part<'a>],
    counting: bool,
}

impl<'p, 'a> AppendChecks<'p, 'a> {
    pub(super) fn new(
        batch: &'a Batch,
        given: Option<i64>,
        wave: &'p [Part<'a>],
        counting: bool,
    ) -> AppendChecks<'p, 'a> {
        AppendChecks {
            batch,
            given,
            wave,
            counting,
        }
    }

    pub(super) fn batch(&self) -> &'a Batch {
        self.batch
    }

    /// Appends that are not lost before anything is asked.
    fn hopeful(&self) -> impl Iterator<Item = &'a Append> {
        self.wave.iter().map(|(_, it)| *it).filter(|it| may_win(it))
    }

    /// What is asked, in the order in which commits lock rows.
    pub(super) fn queries(&self) -> Vec<(Check, Query<'a>)> {
        let mut queries = Vec::new();
        let puts = puts(self.wave);
        if !puts.is_empty() {
            queries.push((Check::Locks, wait_step(sql::LOCK_WAITS, &puts)));
        }
        queries.extend(self.create().map(|step| (Check::Created, step)));
        let sessions = self.sessions();
        if !sessions.is_empty() {
            let step = Query::new(sql::SESSIONS).with(sessions).with(self.given);
            queries.push((Check::Sessions, step));
        }
        let (runs, targets): (Vec<i64>, Vec<&str>) = self.targets().into_iter().unzip();
        if !runs.is_empty() {
            let step = Query::new(sql::LEASES).with(runs).with(targets);
            queries.push((Check::Leases, step.with(self.given)));
        }
        queries.extend(self.chunks().map(|step| (Check::Chunks, step)));
        queries.extend(self.heads().map(|step| (Check::Heads, step)));
        queries.extend(self.heads_alone().map(|step| (Check::HeadsAlone, step)));
        queries.extend(self.unique_keys().map(|step| (Check::UniqueKeys, step)));
        let taken = self.hopeful().flat_map(|append| {
            let run = append.run.0;
            append.taken.iter().map(move |mail| (mail.0, run))
        });
        let (mail, runs): (Vec<i64>, Vec<i64>) = taken.unzip();
        if !mail.is_empty() {
            queries.push((
                Check::Mail,
                Query::new(sql::TAKE_MAIL).with(mail).with(runs),
            ));
        }
        if !puts.is_empty() {
            queries.push((Check::Kept, wait_step(sql::KEPT_EVENTS, &puts)));
        }
        let keys: BTreeSet<&str> = self
            .hopeful()
            .flat_map(|it| &it.slots)
            .map(|it| it.key.as_str())
            .collect();
        if !keys.is_empty() {
            let keys: Vec<&str> = keys.into_iter().collect();
            queries.push((
                Check::MakeSlots,
                Query::new(sql::MAKE_SLOTS).with(keys.clone()),
            ));
            queries.push((Check::Slots, Query::new(sql::LOCK_SLOTS).with(keys)));
        }
        queries
    }

    fn create(&self) -> Option<Query<'a>> {
        let new: Vec<_> = self
            .hopeful()
            .filter_map(|it| Some((it.run.0, it.create.as_deref()?)))
            .collect();
        if new.is_empty() {
            return None;
        }
        let all = || new.iter().map(|(_, it)| *it);
        Some(
            Query::new(sql::CREATE)
                .with(new.iter().map(|(run, _)| *run).collect::<Vec<_>>())
                .with(all().map(|it| it.created_at.0).collect::<Vec<_>>())
                .with(all().map(|it| it.plan.map(|it| it.0)).collect::<Vec<_>>())
                .with(all().map(|it| it.run_id.as_str()).collect::<Vec<_>>())
                .with(
                    all()
                        .map(|it| it.request_key.as_deref())
                        .collect::<Vec<_>>(),
                )
                .with(all().map(|it| it.tenant.as_str()).collect::<Vec<_>>())
                .with(all().map(|it| it.project.as_str()).collect::<Vec<_>>())
                .with(all().map(|it| it.environment.as_str()).collect::<Vec<_>>())
                .with(all().map(|it| it.parent.as_deref()).collect::<Vec<_>>())
                .with(all().map(|it| it.event_key.as_str()).collect::<Vec<_>>())
                .with(all().map(|it| it.priority).collect::<Vec<_>>()),
        )
    }

    fn sessions(&self) -> Vec<i64> {
        let guards = self.hopeful().flat_map(|it| &it.guards);
        let sessions = guards.filter_map(|guard| match guard {
            Guard::Session => self.batch.session,
            Guard::Dead(session) => Some(*session),
            Guard::Lease { .. } | Guard::Expired { .. } => None,
        });
        let sessions: BTreeSet<i64> = sessions.map(|it| it.0).collect();
        sessions.into_iter().collect()
    }

    fn targets(&self) -> BTreeSet<(i64, &'a str)> {
        let guards = self.hopeful().flat_map(|append| {
            let run = append.run.0;
            append.guards.iter().map(move |guard| (run, guard))
        });
        let targets = guards.filter_map(|(run, guard)| match guard {
            Guard::Lease { target, .. } | Guard::Expired { target } => Some((run, target.as_str())),
            Guard::Session | Guard::Dead(_) => None,
        });
        targets.collect()
    }

    fn chunks(&self) -> Option<Query<'a>> {
        let mut chunks = Chunks::with_room(self.wave.len());
        self.hopeful().for_each(|append| chunks.push(append, false));
        if chunks.run.is_empty() {
            return None;
        }
        let id = self.batch.id;
        let step = if self.counting {
            Query::new(sql::APPEND_COUNTING)
        } else {
            let nobody: Option<i64> = None;
            Query::new(sql::APPEND).with(nobody).with(self.given)
        };
        let step = step.with(id.session).with(id.number);
        let step = step.with(chunks.run).with(chunks.after).with(chunks.last);
        let step = step.with(chunks.codec).with(chunks.body);
        let mut step = step.with(chunks.digests);
        if !self.counting {
            step = step.with(chunks.guarded);
        }
        Some(step.with(chunks.key_run).with(chunks.key))
    }

    fn heads(&self) -> Option<Query<'a>> {
        let mut heads = Heads::default();
        let mut tenants = Vec::new();
        for append in self.hopeful().filter(|it| it.chunk.is_some()) {
            if append.head.is_some() || append.create.is_some() {
                heads.push(append.run.0, append.head.as_ref());
                tenants.push(append.create.as_ref().map_or("", |it| it.tenant.as_str()));
            }
        }
        (!heads.run.is_empty()).then(|| self.head_step(sql::HEADS, heads).with(tenants))
    }

    fn heads_alone(&self) -> Option<Query<'a>> {
        let mut heads = Heads::default();
        let (mut versions, mut after) = (Vec::new(), Vec::new());
        for append in self.hopeful().filter(|it| it.chunk.is_none()) {
            heads.push(append.run.0, append.head.as_ref());
            versions.push(append.head_version);
            after.push(super::seq(append.after));
        }
        let some = !heads.run.is_empty();
        some.then(|| {
            let step = self.head_step(sql::HEADS_ALONE, heads);
            step.with(versions).with(after)
        })
    }

    fn head_step(&self, sql: &'static str, heads: Heads<'a>) -> Query<'a> {
        let id = self.batch.id;
        let step = Query::new(sql).with(id.session).with(id.number);
        let step = step.with(heads.run).with(heads.session).with(heads.wake_at);
        let step = step.with(heads.ended_at).with(heads.queued);
        let step = step.with(heads.status).with(heads.substatus);
        step.with(heads.slots)
    }

    fn unique_keys(&self) -> Option<Query<'a>> {
        let wanted = self
            .hopeful()
            .filter_map(|it| Some((it.run.0, it.unique_key.as_ref()?.taken()?)));
        unique_key_step(sql::UNIQUE_KEYS_TAKEN, wanted)
    }

    /// Which appends are refused by these answers; if none is, the values that the changes need.
    pub(super) async fn judge(
        &self,
        connection: &Connection,
        answers: HashMap<Check, Vec<Row>>,
    ) -> Result<Found, DbError> {
        let lost = refusals::lost(self, connection, &answers).await?;
        if !lost.is_empty() {
            return Ok(Found {
                lost,
                ..Found::default()
            });
        }
        let mut found = refusals::slots(self.wave, &answers);
        if found.lost.is_empty() {
            found.kept_events = kept_events(&answers);
        }
        Ok(found)
    }
}

/// Whether an append can win at all; if not, only the reason is asked for.
pub(super) fn may_win(append: &Append) -> bool {
    match &append.chunk {
        Some(chunk) => {
            chunk.first == append.after + 1 && (append.after == 0) == append.create.is_some()
        }
        None => append.create.is_none() && append.head_version.is_some(),
    }
}

/// The steps of a wave that begin to wait.
pub(super) fn puts<'a>(wave: &[Part<'a>]) -> Vec<Put<'a>> {
    let appends = wave.iter().map(|(_, it)| *it).filter(|it| may_win(it));
    let changes = appends.flat_map(|append| {
        let key = append.create.as_ref().map(|new| new.event_key.as_str());
        append.waits.iter().map(move |it| (append.run.0, key, it))
    });
    let puts = changes.filter_map(|(run, event_key, change)| match change {
        WaitChange::Put { step, event_type } => Some(Put {
            run,
            event_key,
            step,
            event_type,
        }),
        WaitChange::Delete { .. } => None,
    });
    puts.collect()
}

/// A statement about runs and keys; none if there are no keys.
pub(super) fn unique_key_step<'a>(
    sql: &'static str,
    keys: impl Iterator<Item = (i64, &'a UniqueKey)>,
) -> Option<Query<'a>> {
    let (runs, keys): (Vec<i64>, Vec<&UniqueKey>) = keys.unzip();
    let texts = |text: fn(&UniqueKey) -> &str| keys.iter().map(|it| text(it)).collect::<Vec<_>>();
    let step = || {
        Query::new(sql)
            .with(runs)
            .with(texts(|it| &it.tenant))
            .with(texts(|it| &it.key))
    };
    (!keys.is_empty()).then(step)
}

fn wait_step<'a>(sql: &'static str, puts: &[Put<'a>]) -> Query<'a> {
    Query::new(sql)
        .with(puts.iter().map(|it| it.run).collect::<Vec<_>>())
        .with(puts.iter().map(|it| it.event_key).collect::<Vec<_>>())
        .with(puts.iter().map(|it| it.event_type).collect::<Vec<_>>())
}

/// Each kept event goes to the first that can have it.
fn kept_events(answers: &HashMap<Check, Vec<Row>>) -> HashMap<usize, (String, String)> {
    let mut kept_events = HashMap::new();
    let mut given: HashSet<String> = HashSet::new();
    for row in answers.get(&Check::Kept).into_iter().flatten() {
        let place: i64 = row.get(0);
        // Places in the list of puts are counted from one.
        let place = unsigned(place - 1);
        let event: String = row.get(1);
        if !kept_events.contains_key(&place) && given.insert(event.clone()) {
            kept_events.insert(place, (event, row.get(2)));
        }
    }
    kept_events
}
