//! The rows of a run that a language shows to readers with SQL, beside what every run has.
//!
//! A language names a view and says what its rows contain. A store keeps the rows as they are given, in the
//! commit of the events that changed them; a migration of the store defines the view that shows them. So a
//! store and the engine know no language, and a run of a language without such views has no such rows.

use serde::Serialize;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

/// A row of a view, as it is from this commit on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRow {
    /// The name of the view.
    pub view: &'static str,
    /// The place of the row among those of its run in this view, from 0.
    pub row_no: u32,
    /// The columns, a JSON object. What is NULL is left out.
    pub body: String,
}

impl ViewRow {
    /// A row of a view with these columns.
    pub(crate) fn new(view: &'static str, row_no: u32, columns: &impl Serialize) -> ViewRow {
        ViewRow {
            view,
            row_no,
            // Structs of texts and numbers always serialize.
            body: serde_json::to_string(columns).unwrap_or_default(),
        }
    }
}

/// What a language is told of a run whose rows it makes.
#[derive(Clone, Copy, Debug)]
pub struct RunChange<'a> {
    pub plan: &'a Plan,
    /// The state after the events.
    pub state: &'a State,
    /// The events that are new.
    pub events: &'a [Event],
    /// What events from outside are matched by.
    pub event_key: &'a str,
}

/// For languages without views of their own.
pub(crate) fn none(_: RunChange<'_>) -> Vec<ViewRow> {
    Vec::new()
}
