//! The parts of the task: each runs real processes and looks at what the store has.

mod commands;
mod draining;
mod events;
mod kills;
mod long;
mod outages;
mod parity;
mod processes;
mod record;

use super::server::OutsideServer;
use crate::cluster::Cluster;
use events::count;
use processes::{ended_within, wait};
pub(super) use record::RECORDED_PARTS;
use std::path::PathBuf;
use std::time::Duration;

/// How long a short run may take.
const SHORT: Duration = Duration::from_secs(120);
/// How long a run with kills may take.
const KILLED: Duration = Duration::from_secs(900);

/// What the parts need.
pub(super) struct Trial {
    pub(super) program: PathBuf,
    pub(super) definitions: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) server: OutsideServer,
    pub(super) postgres: Option<Cluster>,
}

/// One event, as far as engines must agree on it: type, step and key.
type Line = (String, String, String);
