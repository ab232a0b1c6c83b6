//! The simulator: coordinators under virtual time, with every fault there is, from a seed.
//!
//! ```text
//! seed ─► world ─► draws an action ─► servers (coordinators) ─► links ─► depot (the one store)
//!                       │                                              │
//!                       └──────── oracle: what must be true now ◄──────┘
//! ```
//!
//! - `world`: how a world is made and lives; `acts`: what can happen; `outside`: people, workers and
//!   sinks; `quiet`: how it comes to rest once the faults are over.
//! - `depot`: the store and the links to it, with their faults; `sabotage`: bugs put in on purpose.
//! - `oracle`: the logs and the work that began; `liveness`: every open run has a row that wakes it.
//! - `workload`: what is run; `rng`: where chance comes from.

mod acts;
mod depot;
mod liveness;
mod oracle;
mod outside;
mod quiet;
mod rng;
mod sabotage;
mod server;
mod workload;
mod world;

pub use rng::Rng;
pub use sabotage::Sabotage;
pub use workload::NAMES;
pub use world::{Options, Report, Violation, simulate};
