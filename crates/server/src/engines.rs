//! Engines outside that move runs of this server, such as Temporal: what the server gives them and hears from them. Which engines
//! there are, and how they are talked to, is the matter of the program that starts the server.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use stepwell_engine::port::Clock;
use stepwell_engine::service::Handle;
use stepwell_engine::store::{RunNo, Store};
use utoipa::ToSchema;

use crate::app::App;

/// How often the engines are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long an engine may not answer before that is an alert: it may be starting.
const AWAY: Duration = Duration::from_secs(3);

/// What an engine outside needs of the server.
#[derive(Clone, Debug)]
pub struct EngineNeeds {
    pub handle: Handle,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// What the process of the server is called.
    pub process: String,
}

/// The engines outside that a server serves.
pub trait ServedEngines: fmt::Debug + Send + Sync {
    /// Begins to serve, and goes on until `stop`. An engine that does not answer is asked again.
    fn start(&self, needs: EngineNeeds) -> std::io::Result<()>;
    /// A run that an engine outside moves has changed, or its engine is late. Must not block.
    fn changed(&self, run: RunNo);
    /// How the engines are.
    fn standings(&self) -> Vec<EngineStanding>;
    /// Stops; attempts in flight have some seconds to end.
    fn stop(&self);
}

/// How an engine outside is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineStanding {
    /// The name in the configuration.
    pub name: String,
    /// The engine, as events name it (`engineType`).
    pub engine: String,
    /// Where the engine is.
    pub address: String,
    /// Whether the engine answers.
    pub ready: bool,
    /// The code of what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why the engine cannot be used, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which definitions run there.
    pub definitions: Vec<RoutedDefinitions>,
}

/// Definitions that run on an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutedDefinitions {
    /// The name; `*` stands for any text.
    pub name: String,
    /// Only of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only of this project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

impl EngineStanding {
    /// What everyone may know of an engine that does not answer.
    pub(crate) fn notice(&self) -> Option<String> {
        let code = self.code.as_deref().filter(|_| !self.ready)?;
        Some(format!(
            "{code}: the engine `{}` does not answer, and its runs wait",
            self.name
        ))
    }

    /// What is said of an engine that does not answer.
    fn warning(&self) -> Option<String> {
        let reason = self.reason.as_deref().filter(|_| !self.ready)?;
        let code = self.code.as_deref().unwrap_or_default();
        Some(format!(
            "{code}: the engine `{}` ({}) does not answer, and its runs wait: {reason}",
            self.name, self.address
        ))
    }
}

/// Raises an alert for each engine that does not answer.
pub(crate) async fn follow(app: Arc<App>) {
    let Some(engines) = app.engines.clone() else {
        return;
    };
    // Since when an engine does not answer, and whether that was told.
    let mut away: std::collections::BTreeMap<String, (Instant, bool)> = Default::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = app.stopping.cancelled() => return,
        }
        for standing in engines.standings() {
            let Some(warning) = standing.warning() else {
                if away.remove(&standing.name).is_some_and(|it| it.1) {
                    tracing::info!(engine = standing.name, "the engine answers again");
                }
                continue;
            };
            let since = away
                .entry(standing.name.clone())
                .or_insert_with(|| (Instant::now(), false));
            if since.1 || since.0.elapsed() < AWAY {
                continue;
            }
            since.1 = true;
            let code = standing.code.unwrap_or_default();
            let told = Arc::clone(&app);
            let raised = tokio::task::spawn_blocking(move || told.alert(&code, warning));
            if raised.await.is_err() {
                tracing::error!(engine = standing.name, "the alert could not be raised");
            }
        }
    }
}
