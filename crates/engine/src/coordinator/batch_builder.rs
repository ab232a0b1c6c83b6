//! Puts appends together into batches, each with the id of its commit. What goes into a batch is sealed by each run
//! (`hot_run`).

use stepwell_kernel::time::Time;

use crate::chunk::ChunkWriter;
use crate::store::{Append, Batch, CommitId, SessionNo};

/// How many runs one commit takes at most.
pub(super) const MAX_APPENDS: usize = 512;

/// Counts the commits of a session.
#[derive(Debug)]
pub(super) struct BatchBuilder {
    /// How many commits this session has made.
    commits: i64,
    /// Writes chunks of the log, in memory that is used again for every run.
    chunks: ChunkWriter,
}

impl BatchBuilder {
    pub(super) fn new() -> BatchBuilder {
        BatchBuilder {
            commits: 0,
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RunNo;

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
}
