//! The simulator: coordinators under virtual time, with every fault there is, from a seed.
//!
//! ```text
//! seed ─► simulation ─► draws an action ─► servers (coordinators) ─► links ─► sim_store (the one store)
//!                       │                                              │
//!                       └──────── oracle: what must be true now ◄──────┘
//! ```
//!
//! - `simulation`: how a simulation is made and lives; `actions`: what can happen; `external`: people, workers and
//!   sinks; `settle`: the end of the simulation, without faults.
//! - `sim_store`: the store and the links to it, with their faults; `sabotage`: bugs put in on purpose.
//! - `oracle`: the logs and the work that began; `liveness`: every open run has a row that wakes it.
//! - `workload`: what is run; `rng`: where chance comes from.

mod actions;
mod external;
mod liveness;
mod oracle;
mod rng;
mod sabotage;
mod server;
mod settle;
mod sim_store;
mod simulation;
mod workload;

pub use rng::Rng;
pub use sabotage::Sabotage;
pub use simulation::{Options, Report, Violation, simulate};
pub use workload::NAMES;
