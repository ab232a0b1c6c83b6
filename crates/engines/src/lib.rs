//! Runs plans on engines outside: Temporal and Conductor. The kernel decides on every engine, and the store of Stepwell is the
//! truth on every engine; an engine outside keeps the driver of a run alive, has its timers, hands out its work, and
//! gives operators a place to look.
//!
//! ```text
//!   engine outside                this process                                   store
//!   the driver of a run ── turn ─► Driver ── wake, commands ─► service ── decides ─► events
//!        │   ▲                       │                            │
//!        │   └── Turn: work, wake ───┘                            └─ Changed ─► Bell ─► rings the driver
//!        └── attempt ───────────────► Driver: claim, crew, result ─► service
//! ```
//!
//! A driver of a run is a small loop that an engine outside keeps: it asks for a [`Turn`], starts one attempt for each
//! [`WorkItem`] that it has not started, stops attempts that are no longer listed, sleeps until the next wake-up, and asks
//! again. A turn is derived from the state of the run, never from the last command, so a turn that is asked for twice, or
//! not at all, changes nothing. Everything that an engine outside must remember is in the store; what the engine knows beside
//! is a hint.
//!
//! The default build has no engine: each one is behind a feature of its name.

pub mod address;
pub mod attempt;
pub mod bell;
pub mod capabilities;
mod claim;
pub mod codes;
#[cfg(feature = "conductor")]
pub mod conductor;
pub mod driver;
#[cfg(any(feature = "conductor", feature = "temporal"))]
mod faults;
pub mod host_thread;
mod kept;
#[cfg(feature = "temporal")]
pub mod temporal;
pub mod turn;

pub use address::EngineAddress;
pub use attempt::{AttemptEnd, AttemptWatch};
pub use bell::{Bell, Ring, RunNews};
pub use driver::{Driver, DriverSetup, TurnError};
pub use turn::{KeptReport, Seen, Turn, WorkItem};
