//! The conformance kit: scenario files that drive the `stepwell` binary from outside and say what must be seen.
//!
//! A scenario is data (`conformance/README.md` has the format). [`scenario`] has its parts and [`read`] reads it;
//! [`play`] plays one scenario on one [`Column`] in a folder of its own ([`world`], with [`process`], [`witness`] and
//! [`sql`], [`plant`]); [`want`] compares what was seen with what was wanted; [`kit`] plays many and [`report`] prints them. [`parity`] compares engines, and
//! [`differences`] reports in what they differ, with the reasons.
//!
//! What must not live here: anything that opens a store or an engine by itself. The kit sees only what a user sees.

mod differences;
mod kit;
mod parity;
mod plant;
mod play;
mod process;
mod read;
mod report;
mod scenario;
mod sql;
mod want;
mod witness;
mod words;
mod world;

pub use differences::ParityReport;
pub use kit::{Column, Kit, KitResults, load_built_in, load_folder};
pub use parity::{Agreement, ParityRow};
pub use scenario::Scenario;
