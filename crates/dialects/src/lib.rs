//! The workflow languages: each front-end reads a YAML or JSON definition and
//! compiles it to the one plan the kernel runs.
//!
//! This crate lives on three shared layers, used from the bottom up:
//!
//! 1. [`source`] holds the text and turns byte offsets into lines and columns;
//! 2. [`tree`] parses it into nodes that remember where they stood, refusing
//!    hostile input (bombs, deep nesting, huge scalars) with a [`problem`];
//! 3. [`reader`] takes mappings apart field by field and collects *every*
//!    problem instead of stopping at the first.
//!
//! Above them stand [`tools`], the tool blocks that all languages share, one
//! module per language, and [`document`], which tells the language of a file
//! and turns it into a plan: [`load`].
//!
//! What must not live here: running anything, touching files, the network or
//! the clock. Reading a definition is a pure function of its bytes.

// A new variant must be looked at in every place that asks for variants.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod actions;
pub mod advice;
pub mod backoff;
mod build;
pub mod children;
mod codes;
mod cron;
pub mod dag;
mod depends;
pub mod document;
pub mod duration;
mod endless;
mod execution_reads;
mod failure_arcs;
mod field;
pub mod inputs;
mod leftover;
pub mod linear;
mod losses;
mod mapping;
mod name;
mod names;
mod offsets;
mod parse;
pub mod plan;
pub mod playbook;
pub mod problem;
pub mod reader;
mod scalar;
pub mod schema;
pub mod secret_literals;
mod shape;
pub mod source;
pub mod states;
pub mod template;
pub mod tools;
pub mod tree;
pub mod trigger;
mod undo;
mod view_rows;
pub mod words;

pub use dag::telemetry::{Telemetry, TelemetryState};
pub use document::{Document, Loaded, detect, load};
pub use problem::{Problem, Problems, Severity};
pub use reader::{Field, Fields};
pub use source::{Source, Span};
pub use tree::{MapEntry, Node, Value};
pub use view_rows::{RunChange, ViewRow};
