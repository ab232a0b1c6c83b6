//! Alerts: what a person must be told. Alerts of a run are written in the commit that causes them
//! (`Append::alerts`); others are raised here.

use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Raises and lists alerts.
pub trait Alerts {
    /// Raises an alert outside a run's commit.
    ///
    /// Durable on return: the alert.
    ///
    /// Crash before the return: the alert is there or not; its cause raises it again where that matters.
    ///
    /// Twice: two alerts.
    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()>;

    /// Alerts that fit a filter, newest first.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the alerts as they are then.
    fn list_alerts(&self, filter: &NoticeFilter) -> Result<Vec<AlertRow>>;

    /// The newest alerts of the whole store.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the alerts as they are then.
    fn alerts(&self, limit: usize) -> Result<Vec<AlertRow>> {
        self.list_alerts(&NoticeFilter::all(limit))
    }
}

/// Which alerts or dead letters to list: those for which everything that is asked for holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoticeFilter {
    /// Only those about runs of this tenant.
    pub tenant: Option<String>,
    /// Only those about runs of this project.
    pub project: Option<String>,
    /// Only those about the run with this id.
    pub run_id: Option<String>,
    /// Only alerts with this code, or dead letters of this sink.
    pub word: Option<String>,
    /// Also alerts that are about no run, whatever tenant, project and run are asked for.
    pub about_store: bool,
    /// Dead letters: the newest first. Alerts always come in this order.
    pub newest_first: bool,
    /// Only those after the one with this number, in the order of the list: the next page.
    pub past: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

impl NoticeFilter {
    /// So many, about any run or about the store.
    #[must_use]
    pub fn all(limit: usize) -> NoticeFilter {
        NoticeFilter {
            about_store: true,
            limit,
            ..NoticeFilter::default()
        }
    }
}

/// An alert to be raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAlert {
    /// A stable code, such as `EVENT_BUS_DELIVERY_FAILED`.
    pub code: String,
    /// How urgent it is.
    pub priority: Priority,
    /// The text for the operator.
    pub message: String,
}

/// An alert that was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRow {
    /// Number in this store.
    pub no: i64,
    /// The run that the alert is about; absent if the alert is not about a run.
    pub run_id: Option<String>,
    pub code: String,
    pub priority: Priority,
    pub message: String,
    /// When it was raised.
    pub at: Time,
}
