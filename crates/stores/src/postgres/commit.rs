//! Commits. Chunks of a run's owner, which are nearly all, go in one statement that is a transaction
//! by itself. Everything else is tried as one transaction in which every append must win; if some
//! lose it is rolled back and done again without them, which is rare and keeps the statements plain.

use std::collections::HashSet;

use stepwell_engine::store::{
    Append, AppendResult, Batch, Guard, Result, StoreError, StoreErrorKind,
};

use super::PostgresStore;
use super::append_checks::AppendChecks;
use super::columns::{Chunks, out_of_range};
use super::connections::{PooledConnection, may_try, pause};
use super::errors::DbError;
use super::query::Query;
use super::{row_changes, sql};

/// An append and its place in the batch.
pub(super) type Part<'a> = (usize, &'a Append);

/// The result of a try.
enum Tried {
    /// All of it is committed.
    Won,
    /// These lost, and nothing was done.
    Lost(Vec<(usize, AppendResult)>),
}

/// Why a try broke, and whether its COMMIT was on its way.
struct Broke {
    fault: DbError,
    committing: bool,
}

impl From<DbError> for Broke {
    fn from(fault: DbError) -> Broke {
        Broke {
            fault,
            committing: false,
        }
    }
}

impl PostgresStore {
    pub(super) fn commit_batch(&self, batch: &Batch) -> Result<Vec<AppendResult>> {
        let mut parts: Vec<Part<'_>> = batch.appends.iter().enumerate().collect();
        parts.sort_by_key(|(_, append)| append.run);
        let mut outcomes: Vec<Option<AppendResult>> = vec![None; parts.len()];
        parts.retain(|(place, append)| {
            let refused = out_of_range(append);
            outcomes[*place] = refused.map(AppendResult::Refused);
            outcomes[*place].is_none()
        });
        let mut done_before = false;
        let plain = !parts.is_empty() && parts.iter().all(|(_, append)| is_plain(append));
        if plain && let Some(won) = self.append_plain(batch, &parts)? {
            for (place, append) in &parts {
                if won.contains(&append.run.0) {
                    outcomes[*place] = Some(AppendResult::Committed);
                    done_before = true;
                }
            }
            parts.retain(|(place, _)| outcomes[*place].is_none());
        }
        let rest = self.commit_parts(batch, parts).map_err(|error| {
            // What is committed cannot be unsaid; sent again, it is recognised.
            if done_before {
                StoreError::new(StoreErrorKind::AnswerLost, error.message)
            } else {
                error
            }
        })?;
        for (place, outcome) in rest {
            outcomes[place] = Some(outcome);
        }
        let answers = outcomes
            .into_iter()
            .map(|it| it.unwrap_or(AppendResult::Moved));
        Ok(answers.collect())
    }

    /// Chunks and keys alone, in one statement. `None` if it must be done with more care.
    fn append_plain(&self, batch: &Batch, parts: &[Part<'_>]) -> Result<Option<HashSet<i64>>> {
        let mut chunks = Chunks::with_room(parts.len());
        for (_, append) in parts {
            chunks.push(append, !append.guards.is_empty());
        }
        let session = batch.session.map(|it| it.0);
        let given = self.given(batch.now);
        let mut tries = 0;
        loop {
            let answer = self.connections.get()?.wait(async |connection| {
                connection
                    .query_alone(
                        sql::APPEND,
                        &[
                            &session,
                            &given,
                            &batch.id.session,
                            &batch.id.number,
                            &chunks.run,
                            &chunks.after,
                            &chunks.last,
                            &chunks.codec,
                            &chunks.body,
                            &chunks.digests,
                            &chunks.guarded,
                            &chunks.key_run,
                            &chunks.key,
                        ],
                    )
                    .await
            });
            tries += 1;
            match answer {
                Ok(rows) => return Ok(Some(rows.iter().map(|row| row.get(0)).collect())),
                Err(DbError::Duplicate(_) | DbError::InvalidValue(_)) => return Ok(None),
                Err(DbError::Conflict(_)) if may_try(tries) => pause(tries),
                Err(fault) => return Err(fault.of_write()),
            }
        }
    }

    fn commit_parts<'a>(
        &self,
        batch: &'a Batch,
        mut parts: Vec<Part<'a>>,
    ) -> Result<Vec<(usize, AppendResult)>> {
        let mut outcomes = Vec::new();
        let mut counting = false;
        let mut tries = 0;
        while !parts.is_empty() {
            let tried = self.try_all(batch, &parts, counting, true);
            let lost = match tried {
                Ok(Tried::Won) => {
                    outcomes.extend(
                        parts
                            .iter()
                            .map(|(place, _)| (*place, AppendResult::Committed)),
                    );
                    return Ok(outcomes);
                }
                Ok(Tried::Lost(lost)) => lost,
                Err(broke) => {
                    tries += 1;
                    match broke.fault {
                        // A key exists, or another commit took a key between our look and our row.
                        DbError::Duplicate(_) if !counting => counting = true,
                        DbError::Duplicate(_) | DbError::Conflict(_) if may_try(tries) => {
                            pause(tries)
                        }
                        DbError::InvalidValue(_) => {
                            let bad = self.refused(batch, &parts)?;
                            if bad.is_empty() && !may_try(tries) {
                                return Err(broke.fault.of_read());
                            }
                            parts.retain(|(place, _)| !bad.iter().any(|(it, _)| it == place));
                            outcomes.extend(bad);
                        }
                        fault @ (DbError::ConnectionLost(_)
                        | DbError::Conflict(_)
                        | DbError::Duplicate(_)
                        | DbError::Other(_)) => {
                            return Err(match broke.committing {
                                true => fault.of_write(),
                                false => fault.of_read(),
                            });
                        }
                    }
                    continue;
                }
            };
            parts.retain(|(place, _)| !lost.iter().any(|(it, _)| it == place));
            outcomes.extend(lost);
        }
        Ok(outcomes)
    }

    /// Which of these the database refuses, found by halving.
    fn refused(&self, batch: &Batch, parts: &[Part<'_>]) -> Result<Vec<(usize, AppendResult)>> {
        match self.try_all(batch, parts, true, false) {
            Err(Broke {
                fault: DbError::InvalidValue(said),
                ..
            }) => {
                if let [(place, _)] = parts {
                    return Ok(vec![(*place, AppendResult::Refused(said))]);
                }
                let (left, right) = parts.split_at(parts.len() / 2);
                let mut bad = self.refused(batch, left)?;
                bad.extend(self.refused(batch, right)?);
                Ok(bad)
            }
            Err(Broke {
                fault: fault @ (DbError::ConnectionLost(_) | DbError::Other(_)),
                ..
            }) => Err(fault.of_read()),
            _ => Ok(Vec::new()),
        }
    }

    fn try_all(
        &self,
        batch: &Batch,
        parts: &[Part<'_>],
        counting: bool,
        keep: bool,
    ) -> std::result::Result<Tried, Broke> {
        let mut connection = match self.connections.get() {
            Ok(connection) => connection,
            Err(error) => return Err(DbError::Other(error).into()),
        };
        let tried = self.try_on(&mut connection, batch, parts, counting, keep);
        let unfinished = match &tried {
            Ok(Tried::Won) => !keep,
            Ok(Tried::Lost(_)) => true,
            Err(broke) => !matches!(broke.fault, DbError::ConnectionLost(_)),
        };
        if unfinished {
            // If even this fails the connection is closed, and the server rolls back.
            let _ = connection.wait(async |connection| connection.script("ROLLBACK").await);
        }
        tried
    }

    fn try_on(
        &self,
        connection: &mut PooledConnection<'_>,
        batch: &Batch,
        parts: &[Part<'_>],
        counting: bool,
        keep: bool,
    ) -> std::result::Result<Tried, Broke> {
        let given = self.given(batch.now);
        let waves = waves(parts);
        let last = waves.len() - 1;
        let mut kept_events = false;
        for (index, wave) in waves.into_iter().enumerate() {
            let checks = AppendChecks::new(batch, given, wave, counting);
            let (queries, mut steps): (Vec<_>, Vec<_>) = checks.queries().into_iter().unzip();
            let mut begin = match index {
                0 => self
                    .connections
                    .begin("BEGIN ISOLATION LEVEL READ COMMITTED"),
                _ => Vec::new(),
            };
            let before = begin.len();
            begin.append(&mut steps);
            let rows = connection.wait(async |connection| connection.pipeline(&begin).await)?;
            let answers = queries
                .into_iter()
                .zip(rows.into_iter().skip(before))
                .collect();
            let found =
                connection.wait(async |connection| checks.judge(connection, answers).await)?;
            if !found.lost.is_empty() {
                return Ok(Tried::Lost(found.lost));
            }
            let mut steps = row_changes::steps(batch, given, wave, &found);
            kept_events |= !found.kept_events.is_empty();
            let committing = index == last && keep;
            if index == last {
                steps.extend(row_changes::mail(parts, kept_events));
                if keep {
                    steps.push(Query::new("COMMIT"));
                }
            }
            let done = connection.wait(async |connection| connection.pipeline(&steps).await);
            done.map_err(|fault| Broke { fault, committing })?;
        }
        Ok(Tried::Won)
    }
}

/// Nothing but a chunk, by the owner of the run.
fn is_plain(append: &Append) -> bool {
    let Some(chunk) = &append.chunk else {
        return false;
    };
    append.create.is_none()
        && append.after > 0
        && chunk.first == append.after + 1
        && matches!(append.guards[..], [] | [Guard::Session])
        && append.head.is_none()
        && append.tasks.is_empty()
        && append.waits.is_empty()
        && append.unique_key.is_none()
        && append.view_rows.is_empty()
        && append.taken.is_empty()
        && append.mail.is_empty()
        && append.sinks.is_empty()
        && append.slots.is_empty()
        && append.snapshot.is_none()
        && append.alerts.is_empty()
}

/// Cuts a batch where an append depends on an earlier one through a name that only one may have:
/// the later part then finds the earlier's rows in the tables.
fn waves<'p, 'a>(parts: &'p [Part<'a>]) -> Vec<&'p [Part<'a>]> {
    let mut waves = Vec::new();
    let mut names: HashSet<(u8, &str, &str)> = HashSet::new();
    let mut begin = 0;
    for (index, (_, append)) in parts.iter().enumerate() {
        let mut own = Vec::new();
        if let Some(new) = &append.create {
            own.push((0, new.run_id.as_str(), ""));
            own.extend(new.request_key.as_deref().map(|key| (1, key, "")));
        }
        let unique = append.unique_key.as_ref().map(|it| it.key());
        own.extend(unique.map(|it| (2, it.tenant.as_str(), it.key.as_str())));
        if own.iter().any(|name| names.contains(name)) {
            waves.push(&parts[begin..index]);
            begin = index;
            names.clear();
        }
        names.extend(own);
    }
    waves.push(&parts[begin..]);
    waves
}
