//! Names for what is about to be written: the ids of commits, and the numbers of new runs, which are
//! reserved in the store some at a time. A batch is put together here; what goes into it is sealed by
//! each run (`hot_run`).

use std::ops::Range;

use stepwell_kernel::time::Time;

use crate::chunk::ChunkWriter;
use crate::store::{Append, Batch, CommitId, RunNo, SessionNo, Store, StoreError};

/// How many runs one commit takes at most.
pub(super) const MAX_APPENDS: usize = 512;
/// How many numbers for runs are reserved at a time.
const NUMBERS: u32 = 256;

/// Ids of commits and numbers of runs.
#[derive(Debug)]
pub(super) struct BatchBuilder {
    /// How many commits this session has made.
    commits: i64,
    /// Numbers that are reserved and not given out.
    numbers: Range<i64>,
    /// Writes chunks of the log, in memory that is used again for every run.
    chunks: ChunkWriter,
}

impl BatchBuilder {
    pub(super) fn new() -> BatchBuilder {
        BatchBuilder {
            commits: 0,
            numbers: 0..0,
            chunks: ChunkWriter::default(),
        }
    }

    /// Puts appends together into the session's next commit; none if there is nothing to commit.
    pub(super) fn batch(
        &mut self,
        session: SessionNo,
        appends: Vec<Append>,
        now: Time,
    ) -> Option<Batch> {
        if appends.is_empty() {
            return None;
        }
        self.commits += 1;
        Some(Batch {
            id: CommitId {
                session: session.0,
                number: self.commits,
            },
            session: Some(session),
            now,
            appends,
        })
    }

    /// What chunks of the log are written with.
    pub(super) fn chunks(&mut self) -> &mut ChunkWriter {
        &mut self.chunks
    }

    /// Another session counts its commits from one.
    pub(super) fn restart(&mut self) {
        self.commits = 0;
    }

    /// The number of a new run.
    pub(super) fn next_run(&mut self, store: &dyn Store) -> Result<RunNo, StoreError> {
        if self.numbers.is_empty() {
            self.numbers = store.reserve_numbers(NUMBERS)?;
        }
        let number = self.numbers.start;
        self.numbers.start += 1;
        Ok(RunNo(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn commits_of_a_session_have_ids_of_their_own() {
        let mut builder = BatchBuilder::new();
        let append = || vec![Append::new(RunNo(1), 0)];
        let mut id = |session| {
            let batch = builder.batch(SessionNo(session), append(), Time(1));
            batch.unwrap().id
        };
        assert_eq!((id(4).number, id(4).number), (1, 2));
        builder.restart();
        let batch = builder.batch(SessionNo(5), append(), Time(1)).unwrap();
        assert_eq!((batch.id.session, batch.id.number), (5, 1));
        assert!(builder.batch(SessionNo(5), Vec::new(), Time(1)).is_none());
    }

    #[test]
    fn no_two_runs_get_the_same_number() {
        let store = MemoryStore::default();
        let (mut one, mut two) = (BatchBuilder::new(), BatchBuilder::new());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..600 {
            assert!(seen.insert(one.next_run(&store).unwrap()));
            assert!(seen.insert(two.next_run(&store).unwrap()));
        }
    }
}
