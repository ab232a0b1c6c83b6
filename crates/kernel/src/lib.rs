//! The rules of Stepwell, for all five languages: plans, states, commands, events, and what follows from
//! what.
//!
//! - [`plan`]: what a definition compiles to.
//! - [`command`] and [`decide`](mod@decide): a command against a state gives events, or a
//!   [`rejection`].
//! - [`event`] and [`evolve`]: an event changes the state; nothing else does.
//! - [`effect`]: what the engine must do once the events are committed.
//! - [`contract`], [`chain`], [`snapshot`]: events as they are written, hashed and projected.
//! - [`explain`]: everything that can make a run move.
//!
//! The kernel is total and deterministic: the same state, command and environment give the same events.
//! Nothing in this crate does I/O, waits, reads a clock or draws randomness, and the crate depends on
//! nothing that does.
//!
//! # Example
//!
//! A plan of one step; a run is created and started; folding the events again gives the same state.
//!
//! ```
//! use serde_json::json;
//! use stepwell_kernel::command::{Command, Env};
//! use stepwell_kernel::decide::decide;
//! use stepwell_kernel::effect::Effect;
//! use stepwell_kernel::event::RunContext;
//! use stepwell_kernel::evolve::replay;
//! use stepwell_kernel::keys::TokenKey;
//! use stepwell_kernel::plan::{Dialect, Net, Plan, RunPolicy, SourceRef, Step, Work};
//! use stepwell_kernel::state::State;
//! use stepwell_kernel::time::Time;
//!
//! let pack = Work::Task { queue: "shop".into(), operation: "pack".into(), config: json!(null) };
//! let plan = Plan::new(Net {
//!     dialect: Dialect::Plan,
//!     plan_id: "order".into(),
//!     plan_version: "1".into(),
//!     schema_version: "v1.2".into(),
//!     source: SourceRef::default(),
//!     workload: json!(null),
//!     steps: vec![Step::new("pack", pack)],
//!     edges: Vec::new(),
//!     policy: RunPolicy::default(),
//!     library: Default::default(),
//!     extra: json!(null),
//! })
//! .expect("the net is sound");
//!
//! // The time and the secret come from outside: the kernel reads no clock and draws no randomness.
//! let env = Env { now: Time(1_000), key: TokenKey([7; 32]) };
//! let mut state = State::new("run_1", &plan);
//! let create = Command::CreateRun {
//!     run_id: "run_1".into(),
//!     params: json!({ "order": 7 }),
//!     context: RunContext::default(),
//!     parent: None,
//!     original_run_id: None,
//!     start_after: None,
//! };
//! let start = Command::StartRun {
//!     engine: "native".into(),
//!     engine_run_ref: "native://run_1".into(),
//!     fetched_sha256: None,
//! };
//! let mut log = Vec::new();
//! let mut effects = Vec::new();
//! for command in [create, Command::EnqueueRun, start] {
//!     let decision = decide(&plan, &mut state, command, &env).expect("the command is lawful");
//!     log.extend(decision.events);
//!     effects.extend(decision.effects);
//! }
//!
//! // The step is ready: the engine is told to offer its work.
//! assert!(effects.iter().any(|effect| matches!(effect, Effect::Dispatch { .. })));
//! // The log is the truth: folding it gives the state.
//! assert_eq!(replay(&plan, "run_1", None, &log), Ok(state));
//! ```

// A new variant must be looked at in every place that asks for variants.
#![warn(clippy::wildcard_enum_match_arm)]

mod canonical;
pub mod chain;
pub mod codes;
pub mod command;
pub mod contract;
pub mod decide;
pub mod effect;
pub mod event;
pub mod evolve;
pub mod explain;
pub mod expr;
mod hidden;
pub mod keys;
pub mod plan;
pub mod reference;
pub mod rejection;
mod scope;
pub mod signal;
pub mod snapshot;
pub mod time;
pub mod trace;
pub mod unseen;

pub use evolve::state;
pub use scope::run_output;
