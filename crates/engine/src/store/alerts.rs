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

    /// Alerts, newest first.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the alerts as they are then.
    fn alerts(&self, limit: usize) -> Result<Vec<AlertRow>>;
}

/// An alert to be raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAlert {
    /// A stable code.
    pub code: String,
    /// How urgent it is.
    pub priority: Priority,
    /// For people.
    pub message: String,
}

/// An alert that was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertRow {
    /// Number in this store.
    pub no: i64,
    /// The run that it is about.
    pub run_id: Option<String>,
    /// A stable code.
    pub code: String,
    /// How urgent it is.
    pub priority: Priority,
    /// For people.
    pub message: String,
    /// When it was raised.
    pub at: Time,
}
