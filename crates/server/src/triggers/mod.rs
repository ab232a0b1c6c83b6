//! What starts runs by itself: due times and events, for the server and for a process that waits for one definition.

mod causes;
mod event_watch;
mod put_off;
mod start_once;

pub use causes::{Cause, Causes, id_of, source_word};
pub(crate) use event_watch::{EventWatches, Triggered};
pub use put_off::{PutOff, Tried, needs_slot, params_with};
pub(crate) use start_once::start_once;
