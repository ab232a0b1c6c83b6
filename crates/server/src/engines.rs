//! Engines outside that move runs of this server, such as Temporal: what the server gives them and hears from them. Which engines
//! there are, and how they are talked to, is the matter of the program that starts the server.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use stepwell_engine::port::Clock;
use stepwell_engine::service::Handle;
use stepwell_engine::store::{RunNo, Store};
use stepwell_kernel::codes::ENGINE_NOT_SERVED;
use utoipa::ToSchema;

use crate::app::App;

/// How often the engines are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long an engine may not answer before that is an alert: it may be starting.
const AWAY: Duration = Duration::from_secs(3);
/// How long a run whose engine this server does not serve may stay as it is although something is due: another process may serve
/// the engine.
const UNSERVED: Duration = Duration::from_secs(15);
/// How long such a run is remembered after it was due the last time.
const FORGOTTEN: Duration = Duration::from_secs(120);
/// How many such runs are remembered.
const MOST_UNSERVED: usize = 1_000;

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

/// Runs that engines move which this server does not serve, and that nobody else moves either: the server was started without
/// the section `[engines]` that it had, or the run was begun by a command.
#[derive(Debug, Default)]
pub(crate) struct UnservedRuns(Mutex<HashMap<RunNo, UnservedRun>>);

#[derive(Clone, Debug)]
struct UnservedRun {
    run_id: Arc<str>,
    engine: String,
    /// The last sequence number, and since when it is that.
    seq: (u64, Instant),
    /// When something of the run was due the last time.
    seen: Instant,
    told: bool,
}

impl UnservedRuns {
    /// Something of a run is due.
    pub(crate) fn due(&self, run: RunNo, run_id: &Arc<str>, engine: &str, seq: u64) {
        let now = Instant::now();
        let mut all = self.lock();
        all.retain(|_, it| now.duration_since(it.seen) < FORGOTTEN);
        if all.len() >= MOST_UNSERVED && !all.contains_key(&run) {
            return;
        }
        let known = all.entry(run).or_insert_with(|| UnservedRun {
            run_id: Arc::clone(run_id),
            engine: engine.to_owned(),
            seq: (seq, now),
            seen: now,
            told: false,
        });
        known.seen = now;
        if known.seq.0 != seq {
            known.seq = (seq, now);
        }
    }

    /// Those that nobody has moved for a time.
    fn stuck(&self) -> Vec<(RunNo, UnservedRun)> {
        let all = self.lock();
        let stuck = all.iter().filter(|(_, it)| {
            it.seen.duration_since(it.seq.1) >= UNSERVED && it.seen.elapsed() < FORGOTTEN
        });
        stuck.map(|(run, it)| (*run, it.clone())).collect()
    }

    /// Whether a run is one of them.
    pub(crate) fn has(&self, run_id: &str) -> bool {
        self.stuck().iter().any(|(_, it)| &*it.run_id == run_id)
    }

    /// What everyone may know of them, one sentence for each engine.
    pub(crate) fn notices(&self) -> Vec<String> {
        let mut engines: BTreeMap<String, usize> = BTreeMap::new();
        for (_, run) in self.stuck() {
            *engines.entry(run.engine).or_default() += 1;
        }
        let notice = |(engine, runs)| {
            format!(
                "{ENGINE_NOT_SERVED}: {runs} open runs of the engine `{engine}` wait, and nobody serves it"
            )
        };
        engines.into_iter().map(notice).collect()
    }

    fn told(&self, run: RunNo) {
        if let Some(it) = self.lock().get_mut(&run) {
            it.told = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunNo, UnservedRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Raises an alert for each run that waits for an engine that nobody serves.
async fn tell_unserved(app: &Arc<App>) {
    for (run, of) in app.unserved.stuck().into_iter().filter(|it| !it.1.told) {
        app.unserved.told(run);
        let message = format!(
            "the run {} waits: the engine `{}` moves it, and no process serves that engine; add the engine to `[engines]` of the \
             configuration of the server, or continue the run with `stepwell resume {} --engine ADDRESS`",
            of.run_id, of.engine, of.run_id
        );
        let told = Arc::clone(app);
        let raised = tokio::task::spawn_blocking(move || {
            told.alert_of(Some(run), ENGINE_NOT_SERVED, message);
        });
        if raised.await.is_err() {
            tracing::error!(run = &*of.run_id, "the alert could not be raised");
        }
    }
}

/// Raises an alert for each engine that does not answer, and for each run whose engine nobody serves.
pub(crate) async fn follow(app: Arc<App>) {
    // Since when an engine does not answer, and whether that was told.
    let mut away: BTreeMap<String, (Instant, bool)> = BTreeMap::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = app.stopping.cancelled() => return,
        }
        tell_unserved(&app).await;
        for standing in app.engines.iter().flat_map(|it| it.standings()) {
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
