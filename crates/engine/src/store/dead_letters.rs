//! Dead letters: deliveries that were given up, until a person sends them again.

use stepwell_kernel::time::Time;

use super::{Marker, NewAlert, NoticeFilter, Result};

/// Keeps deliveries that were given up.
pub trait DeadLetters {
    /// Gives a delivery up: the marker becomes a dead letter, with this failure counted, and an alert is
    /// raised, in one transaction. Nothing happens if the marker is gone.
    ///
    /// Durable on return: the dead letter and the alert.
    ///
    /// Crash before the return: the marker is still in the outbox, or the letter and the alert are there.
    ///
    /// Twice: the second call finds no marker and changes nothing.
    fn bury(&self, marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()>;

    /// Dead letters that fit a filter, oldest first unless the filter asks for the newest first.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the letters as they are then.
    fn list_dead_letters(&self, filter: &NoticeFilter) -> Result<Vec<DeadLetter>>;

    /// The oldest dead letters of the whole store.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the letters as they are then.
    fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        self.list_dead_letters(&NoticeFilter::all(limit))
    }

    /// How many dead letters a sink has; those beyond `most` are not counted.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the number as it is then.
    fn count_dead_letters(&self, sink: &str, most: usize) -> Result<usize> {
        let filter = NoticeFilter {
            word: Some(sink.to_owned()),
            ..NoticeFilter::all(most)
        };
        Ok(self.list_dead_letters(&filter)?.len())
    }

    /// Puts a dead letter back into the outbox, with no attempts, due since it was given up. Returns
    /// whether there was one.
    ///
    /// Durable on return: the marker.
    ///
    /// Crash before the return: the letter is a dead letter or a marker, never both.
    ///
    /// Twice: the second call finds no letter and returns false.
    fn redrive(&self, letter: i64) -> Result<bool>;
}

/// A delivery that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Number in this store.
    pub no: i64,
    /// The chunk, the sink and the number of attempts.
    pub marker: Marker,
    /// Why it was given up.
    pub why: String,
    /// When it was given up.
    pub at: Time,
}
