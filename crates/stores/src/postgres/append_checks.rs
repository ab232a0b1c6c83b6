//! The first half of a commit: everything that an append can lose by.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use stepwell_engine::store::{Append, AppendResult, Batch, Guard, WaitChange};
use tokio_postgres::Row;

use super::columns::{Chunks, Heads};
use super::commit::Part;
use super::connection::Connection;
use super::errors::DbError;
use super::query::Query;
use super::{refusals, sql};

/// Which statement a list of rows answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Ask {
    Locks,
    Created,
    Sessions,
    Leases,
    Chunks,
    Heads,
    HeadsAlone,
    BizKeys,
    Mail,
    MakeSlots,
    Slots,
    Kept,
}

/// A step that begins to wait, with the place it has among those of the wave.
pub(super) struct Put<'a> {
    pub(super) run: i64,
    event_key: Option<&'a str>,
    pub(super) step: &'a str,
    pub(super) event_type: &'a str,
}

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    /// Who lost, and why.
    pub(super) lost: Vec<(usize, AppendResult)>,
    /// What the slots are afterwards.
    pub(super) slots: BTreeMap<String, u32>,
    /// For a step that begins to wait, by its place: the event that is kept for it, and its mail.
    pub(super) gifts: HashMap<usize, (String, String)>,
}

/// A part of a batch whose appends do not depend on each other.
pub(super) struct Probe<'p, 'a> {
    batch: &'a Batch,
    given: Option<i64>,
    pub(super) wave: &'p [Part<'a>],
    counting: bool,
}

impl<'p, 'a> Probe<'p, 'a> {
    pub(super) fn new(
        batch: &'a Batch,
        given: Option<i64>,
        wave: &'p [Part<'a>],
        counting: bool,
    ) -> Probe<'p, 'a> {
        Probe {
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
    pub(super) fn asks(&self) -> Vec<(Ask, Query<'a>)> {
        let mut asks = Vec::new();
        let puts = puts(self.wave);
        if !puts.is_empty() {
            asks.push((Ask::Locks, wait_step(sql::LOCK_WAITS, &puts)));
        }
        asks.extend(self.create().map(|step| (Ask::Created, step)));
        let sessions = self.sessions();
        if !sessions.is_empty() {
            let step = Query::new(sql::SESSIONS).with(sessions).with(self.given);
            asks.push((Ask::Sessions, step));
        }
        let (runs, targets): (Vec<i64>, Vec<&str>) = self.targets().into_iter().unzip();
        if !runs.is_empty() {
            let step = Query::new(sql::LEASES).with(runs).with(targets);
            asks.push((Ask::Leases, step.with(self.given)));
        }
        asks.extend(self.chunks().map(|step| (Ask::Chunks, step)));
        asks.extend(self.heads().map(|step| (Ask::Heads, step)));
        asks.extend(self.heads_alone().map(|step| (Ask::HeadsAlone, step)));
        asks.extend(self.biz_keys().map(|step| (Ask::BizKeys, step)));
        let taken = self.hopeful().flat_map(|append| {
            let run = append.run.0;
            append.taken.iter().map(move |mail| (mail.0, run))
        });
        let (mail, runs): (Vec<i64>, Vec<i64>) = taken.unzip();
        if !mail.is_empty() {
            asks.push((Ask::Mail, Query::new(sql::TAKE_MAIL).with(mail).with(runs)));
        }
        if !puts.is_empty() {
            asks.push((Ask::Kept, wait_step(sql::KEPT_EVENTS, &puts)));
        }
        let keys: BTreeSet<&str> = self
            .hopeful()
            .flat_map(|it| &it.slots)
            .map(|it| it.key.as_str())
            .collect();
        if !keys.is_empty() {
            let keys: Vec<&str> = keys.into_iter().collect();
            asks.push((
                Ask::MakeSlots,
                Query::new(sql::MAKE_SLOTS).with(keys.clone()),
            ));
            asks.push((Ask::Slots, Query::new(sql::LOCK_SLOTS).with(keys)));
        }
        asks
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
                .with(all().map(|it| it.event_key.as_str()).collect::<Vec<_>>()),
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
        for append in self.hopeful().filter(|it| it.chunk.is_some()) {
            if append.head.is_some() || append.create.is_some() {
                heads.push(append.run.0, append.head.as_ref());
            }
        }
        (!heads.run.is_empty()).then(|| self.head_step(sql::HEADS, heads))
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

    fn biz_keys(&self) -> Option<Query<'a>> {
        let (mut runs, mut types, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for append in self.hopeful() {
            let row = append.linear.as_ref().and_then(|it| it.instance.as_ref());
            let row = row.filter(|it| it.status == "RUNNING");
            if let Some((row, key)) = row.and_then(|it| Some((it, it.biz_key.as_deref()?))) {
                runs.push(append.run.0);
                types.push(row.workflow_type.as_str());
                keys.push(key);
            }
        }
        let step = Query::new(sql::BIZ_KEYS_TAKEN);
        (!runs.is_empty()).then(|| step.with(runs).with(types).with(keys))
    }

    /// Who lost by these answers, or what follows for the rest.
    pub(super) async fn judge(
        &self,
        connection: &Connection,
        answers: HashMap<Ask, Vec<Row>>,
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
            found.gifts = gifts(&answers);
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

fn wait_step<'a>(sql: &'static str, puts: &[Put<'a>]) -> Query<'a> {
    Query::new(sql)
        .with(puts.iter().map(|it| it.run).collect::<Vec<_>>())
        .with(puts.iter().map(|it| it.event_key).collect::<Vec<_>>())
        .with(puts.iter().map(|it| it.event_type).collect::<Vec<_>>())
}

/// Each kept event goes to the first that can have it.
fn gifts(answers: &HashMap<Ask, Vec<Row>>) -> HashMap<usize, (String, String)> {
    let mut gifts = HashMap::new();
    let mut given: HashSet<String> = HashSet::new();
    for row in answers.get(&Ask::Kept).into_iter().flatten() {
        let place: i64 = row.get(0);
        let place = usize::try_from(place - 1).unwrap_or(0);
        let event: String = row.get(1);
        if !gifts.contains_key(&place) && given.insert(event.clone()) {
            gifts.insert(place, (event, row.get(2)));
        }
    }
    gifts
}
