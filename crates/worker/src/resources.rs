//! What a worker has: tools, and the services that every task may need.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::artifacts::Artifacts;
use crate::logs::Logs;
use crate::outcome::ToolError;
use crate::secrets::{Redactor, Secrets, is_reference};
use crate::security::Security;
use crate::tool::{TaskLimits, Tool};
use stepwell_kernel::codes;

/// What a worker has.
pub struct WorkerResources {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    /// Where secrets come from.
    pub secrets: Secrets,
    /// Where large values go.
    pub artifacts: Artifacts,
    /// Where the words of tasks go.
    pub logs: Logs,
    /// How much a task may take.
    pub limits: TaskLimits,
    /// What this worker refuses to do.
    pub security: Security,
}

impl fmt::Debug for WorkerResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerResources")
            .field("tools", &self.tools.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl WorkerResources {
    /// Resources without tools; add tools with `with_tool` or `with_all_tools`.
    #[must_use]
    pub fn new(secrets: Secrets, artifacts: Artifacts, logs: Logs) -> WorkerResources {
        WorkerResources {
            tools: BTreeMap::new(),
            secrets,
            artifacts,
            logs,
            limits: TaskLimits::default(),
            security: Security::default(),
        }
    }

    /// Refuses what a policy forbids.
    #[must_use]
    pub fn with_security(mut self, security: Security) -> WorkerResources {
        self.security = security;
        self
    }

    /// Adds a tool for a kind of task.
    #[must_use]
    pub fn with_tool(mut self, kind: &str, tool: Arc<dyn Tool>) -> WorkerResources {
        self.tools.insert(kind.to_owned(), tool);
        self
    }

    /// Adds every built-in tool, configured by the environment variables of the process and by the policy that
    /// `with_security` has set before.
    #[must_use]
    pub fn with_all_tools(self) -> WorkerResources {
        crate::tools::all(&self.security)
            .into_iter()
            .fold(self, |resources, (kind, tool)| {
                resources.with_tool(kind, tool)
            })
    }

    pub(crate) fn tool(&self, kind: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(kind)
    }

    /// What `auth` stands for: the name of a credential, an address with a password in it, or a
    /// mapping, which may name a credential too.
    pub(crate) async fn credential(
        &self,
        auth: Json,
        seen: &Redactor,
    ) -> Result<Option<Map<String, Json>>, ToolError> {
        let map = match auth {
            Json::Null => return Ok(None),
            Json::String(text) if text.trim().is_empty() => return Ok(None),
            Json::String(text) if text.contains("://") && !is_reference(&text) => {
                seen.add(&text);
                return Ok(Some(Map::from_iter([(
                    "dsn".to_owned(),
                    Json::String(text),
                )])));
            }
            Json::String(name) => return Ok(Some(self.named(&name, seen).await?)),
            Json::Object(map) => map,
            other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_)) => {
                let message = format!(
                    "`auth` must be a name or a mapping, it is {}",
                    crate::tool::kind_of(&other)
                );
                return Err(ToolError::invalid(codes::TOOL_FIELD, message));
            }
        };
        let named = ["credential", "secret", "name"]
            .iter()
            .find_map(|key| map.get(*key)?.as_str().map(str::to_owned));
        let mut whole = match named {
            Some(name) => self.named(&name, seen).await?,
            None => Map::new(),
        };
        whole.extend(map);
        Ok(Some(whole))
    }

    async fn named(&self, name: &str, seen: &Redactor) -> Result<Map<String, Json>, ToolError> {
        let value = self.secrets.credential(name).await?;
        seen.add_value(&value);
        Ok(match value {
            Json::Object(map) => map,
            Json::String(text) if text.contains("://") => {
                Map::from_iter([("dsn".to_owned(), Json::String(text))])
            }
            other @ (Json::Null
            | Json::Bool(_)
            | Json::Number(_)
            | Json::String(_)
            | Json::Array(_)) => Map::from_iter([("token".to_owned(), other)]),
        })
    }
}
