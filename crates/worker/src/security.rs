//! What a worker refuses to do although the definition says it: the section `[security]` of the configuration file.

use std::path::PathBuf;

use serde::Deserialize;

use crate::file_rules::FileRules;
use crate::hosts::{HostRules, Inside, Opening};
use crate::tool_rules::ToolRules;

/// The policy of a worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Security {
    /// What happens to a task in which a value from outside has no guard.
    #[serde(default)]
    pub unguarded: Unguarded,
    /// Whether definitions reach only what is opened for them: addresses inside, files of this machine, variables of this
    /// process. Absent: on a server they do, on one's own machine they reach everything.
    #[serde(default)]
    pub confine: Option<bool>,
    /// Which hosts may be asked over HTTP.
    #[serde(default)]
    pub http: HostRules,
    #[serde(default)]
    network: NetworkTable,
    #[serde(default)]
    files: FileTable,
    /// Which tools tenants may use.
    #[serde(default)]
    pub tools: ToolRules,
}

/// The section `[security.network]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NetworkTable {
    /// Places inside that may be connected to although definitions are confined.
    open: Vec<Opening>,
}

/// The section `[security.files]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileTable {
    /// Directories that definitions may use although they are confined.
    allow: Vec<PathBuf>,
}

impl Security {
    /// The policy of a process that works for others: definitions are confined, if nobody says otherwise.
    #[must_use]
    pub fn for_others(mut self) -> Security {
        self.confine.get_or_insert(true);
        self
    }

    /// Whether definitions reach only what is opened for them.
    #[must_use]
    pub fn is_confined(&self) -> bool {
        self.confine.unwrap_or(false)
    }

    /// The rules for requests over HTTP: of the tool `http`, to webhooks, and for definitions by reference.
    #[must_use]
    pub fn http_rules(&self) -> HostRules {
        HostRules {
            inside: self.inside(),
            ..self.http.clone()
        }
    }

    /// The rules for all other connections.
    #[must_use]
    pub fn socket_rules(&self) -> HostRules {
        HostRules::only(self.inside())
    }

    /// The rules for files of this machine.
    #[must_use]
    pub fn file_rules(&self) -> FileRules {
        match self.is_confined() {
            true => FileRules::Below(self.files.allow.clone()),
            false => FileRules::Everywhere,
        }
    }

    fn inside(&self) -> Inside {
        match self.is_confined() {
            true => Inside::Closed(self.network.open.clone()),
            false => Inside::Open,
        }
    }
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
