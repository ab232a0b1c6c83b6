//! The simulator: the product's own loops and actors under virtual time, with every fault there is, from a seed.
//!
//! ```text
//! seed ─► simulation ─► draws an action ─► servers (stepped services) ─► connections ─► sim_store (the one store)
//!                       │                                                    │
//!                       └─────────── oracle: what must be true now ◄─────────┘
//! ```
//!
//! The simulator decides nothing that a service decides: it only says which loop or actor takes the next step, when
//! an answer of the store arrives, how the work ends, and what fails.
//!
//! - `simulation`: how a simulation is made and lives; `server`: a process with its engine, clock and work;
//!   `actions`: what can happen; `external`: people, workers and sinks; `settle`: the end, without faults.
//! - `sim_store`: the store and the links to it, with their faults; `sabotage`: bugs put in on purpose.
//! - `older`: a store as an earlier release left it.
//! - `definitions`: what is run, drawn from the seed; `model`: what the specifications allow for it.
//! - `report`: faults and coverage; `shrink`: a smaller simulation in which the same goes wrong.
//! - `oracle`: the logs and the work that began; `liveness`: every open run has a row that wakes it.
//! - `pipelines`: the product's own worker, with tools whose results are drawn.
//! - `workload`: what is run; `rng`: where chance comes from.
//! - `proxy`: a real network that misbehaves, and `verdict`: what must hold afterwards, both for real processes.

mod actions;
mod definitions;
mod external;
mod liveness;
mod model;
mod older;
mod oracle;
mod pipelines;
pub mod proxy;
mod report;
mod rng;
mod sabotage;
mod seats;
mod server;
mod settle;
mod shrink;
mod sim_store;
mod simulation;
pub mod verdict;
mod workload;

pub use report::{Coverage, Faults, Report, StoreKind, Summary};
pub use rng::Rng;
pub use sabotage::Sabotage;
pub use shrink::shrink;
pub use simulation::{Options, Violation, simulate};
pub use workload::NAMES;
