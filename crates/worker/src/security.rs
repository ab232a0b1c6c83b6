//! What a worker refuses to do although the definition says it: the section `[security]` of the
//! configuration file.

use serde::Deserialize;

use crate::hosts::HostRules;

/// The policy of a worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Security {
    /// What happens to a task in which a value from outside has no guard.
    #[serde(default)]
    pub unguarded: Unguarded,
    /// Which hosts the tool `http` may ask.
    #[serde(default)]
    pub http: HostRules,
}

/// What happens to a task in which a value from outside (the input of a run, an event, a result) reaches a
/// command line, SQL, a path or a host without a guard.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Unguarded {
    /// The task runs; `stepwell check` warns of it.
    #[default]
    Allow,
    /// The task fails with `VALUE_UNGUARDED` before anything is done.
    Deny,
}
