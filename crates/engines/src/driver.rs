//! The driver: what an engine outside calls. Asks the service of this process to move a run, says what the run waits for, and
//! passes commands on with the kernel's answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stepwell_engine::Error;
use stepwell_engine::coordinator::{HotRun, Serves, engine_actor};
use stepwell_engine::port::Clock;
use stepwell_engine::remote::RemoteWork;
use stepwell_engine::service::Handle;
use stepwell_engine::store::{NewAlert, Store, StoreError};
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::Priority;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::signal::SignalKind;
use stepwell_worker::Crew;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::codes::ENGINE_DIVERGED;
use crate::turn::{KeptReport, Seen, Turn};

/// How often a process that stops looks whether attempts run.
const IDLE_LOOK: Duration = Duration::from_millis(50);

/// How long a store that did not answer is left alone.
pub(crate) const AWAY: Duration = Duration::from_millis(300);
/// How the name of the target of an undo ends.
const UNDO: &str = "~undo";
/// Bytes of the digests of one event: id, idempotency key and hash.
const DIGESTS: usize = 80;
/// Bytes of the hash of one event, the last of its digests.
const HASH: usize = 32;
/// How many ended runs are remembered, whose drivers may have to be waited for when this process stops.
const KEPT_ENDED: usize = 1_000;

/// What a driver is made of.
#[derive(Debug)]
pub struct DriverSetup {
    /// The service that decides; configured with `Config::driven` and `Serves::Nothing`, or with `Config::routes`.
    pub handle: Handle,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// Does the work of attempts.
    pub crew: Arc<Crew>,
    /// The engine that the log names.
    pub engine: &'static str,
    /// What this process is called in leases.
    pub worker: String,
    /// How long a claim may take to be written before its work begins without it.
    pub write_budget: Duration,
}

/// Moves runs for an engine outside.
#[derive(Debug)]
pub struct Driver {
    pub(crate) setup: DriverSetup,
    pub(crate) key: TokenKey,
    pub(crate) remote: RemoteWork,
    /// The work that the crew does.
    pub(crate) serves: Serves,
    /// Attempts of this process, to be told to stop.
    attempts: Mutex<HashMap<AttemptKey, CancellationToken>>,
    /// What the engine outside was last told of each run.
    told: Mutex<HashMap<String, Turn>>,
    /// Runs that have ended since the driver began.
    ended: Mutex<BTreeSet<String>>,
}

/// The run, the target and the execution of an attempt.
pub(crate) type AttemptKey = (String, String, u32);

/// Why a run cannot be moved.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The history of the engine and the log of the store do not belong together; trying again does not help.
    #[error("{ENGINE_DIVERGED}: {0}")]
    Diverged(String),
    /// The run is not there, or cannot be read; trying again does not help.
    #[error(transparent)]
    Fatal(Error),
    /// The store or the service did not answer; to be tried again.
    #[error(transparent)]
    Later(Error),
}

impl TurnError {
    /// Whether the same command may succeed later in this process.
    pub(crate) fn is_passing(error: &Error) -> bool {
        matches!(
            error,
            Error::Store(_) | Error::Contended(_) | Error::Busy { .. }
        )
    }
}

impl From<Error> for TurnError {
    fn from(error: Error) -> TurnError {
        match error {
            Error::Store(_) | Error::Stopping | Error::Contended(_) | Error::Busy { .. } => {
                TurnError::Later(error)
            }
            Error::Rejected(_)
            | Error::Schema { .. }
            | Error::Unreadable { .. }
            | Error::LogInvalid { .. }
            | Error::Newer { .. }
            | Error::ChainBroken { .. }
            | Error::Quarantined { .. }
            | Error::UnknownRun(_)
            | Error::Plan { .. }
            | Error::Refused { .. }
            | Error::OtherEngine { .. }
            | Error::Server { .. } => TurnError::Fatal(error),
        }
    }
}

impl Driver {
    /// A driver, which asks the store for its secret.
    pub fn new(setup: DriverSetup) -> Result<Driver, Error> {
        let key = TokenKey(setup.store.secret()?);
        let remote = RemoteWork::new(
            setup.store.clone(),
            setup.handle.clone(),
            setup.clock.clone(),
        );
        Ok(Driver {
            serves: setup.crew.serves(),
            setup,
            key,
            remote,
            attempts: Mutex::default(),
            told: Mutex::default(),
            ended: Mutex::default(),
        })
    }

    /// The engine that the log names.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        self.setup.engine
    }

    /// Moves a run: writes what the engine kept for the store, fires what is due, and says what the run waits for now. `seen`
    /// is what the engine was told last; a log that does not continue it is not moved.
    pub async fn turn(
        &self,
        run_id: &str,
        seen: Option<&Seen>,
        report: Option<KeptReport>,
    ) -> Result<Turn, TurnError> {
        if let Some(seen) = seen {
            self.check_history(run_id, seen).await?;
        }
        if let Some(report) = report {
            self.write(run_id, report).await?;
        }
        let now = self.setup.clock.now();
        let serves = self.serves.clone();
        let turn = self
            .visit(run_id, true, move |hot| Turn::of(hot, now, &serves))
            .await?;
        self.tell(run_id, &turn);
        Ok(turn)
    }

    /// Passes a command on and gives back the kernel's answer: a rejection is an answer.
    pub async fn command(
        &self,
        run_id: &str,
        command: Command,
    ) -> Result<Result<Reply, Rejection>, TurnError> {
        match self.submit(run_id, command).await {
            Ok(reply) => Ok(Ok(reply)),
            Err(Error::Rejected(rejection)) => Ok(Err(rejection)),
            Err(error) => Err(error.into()),
        }
    }

    /// Lends a run on the thread of the service.
    pub(crate) async fn visit<T: Send + 'static>(
        &self,
        run_id: &str,
        wake: bool,
        look: impl FnOnce(&HotRun) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (tell, told) = oneshot::channel();
        let on_visit = move |hot: Result<&HotRun, Error>| drop(tell.send(hot.map(look)));
        match wake {
            true => self.setup.handle.wake(run_id, on_visit)?,
            false => self.setup.handle.peek(run_id, on_visit)?,
        }
        told.await.unwrap_or(Err(Error::Stopping))
    }

    /// Sends a command; the answer comes after the commit.
    pub(crate) async fn submit(&self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let (tell, told) = oneshot::channel();
        let on_answer = move |answer| drop(tell.send(answer));
        self.setup.handle.submit_with(run_id, command, on_answer)?;
        told.await.unwrap_or(Err(Error::Stopping))
    }

    /// Remembers what the engine is told, and stops attempts of this process that the run no longer wants.
    pub(crate) fn tell(&self, run_id: &str, turn: &Turn) {
        self.stop_unwanted(run_id, turn);
        if turn.ended.is_some() {
            return self.note_end(run_id);
        }
        self.told().insert(run_id.to_owned(), turn.clone());
    }

    /// A run has ended: its driver at the engine has nothing to do any more.
    pub(crate) fn note_end(&self, run_id: &str) {
        self.told().remove(run_id);
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() >= KEPT_ENDED {
            ended.pop_first();
        }
        ended.insert(run_id.to_owned());
    }

    /// The runs that have ended since this was asked last.
    #[must_use]
    pub fn take_ended(&self) -> BTreeSet<String> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *ended)
    }

    /// Ends when no attempt has run for `rest`: attempts have their grace to end, and what else an engine does here is short.
    pub async fn until_idle(&self, grace: Duration, rest: Duration) {
        let begun = Instant::now();
        let mut busy = begun;
        while busy.elapsed() < rest {
            tokio::time::sleep(IDLE_LOOK).await;
            if self.setup.crew.busy() > 0 && begun.elapsed() < grace {
                busy = Instant::now();
            }
        }
    }

    /// Whether an engine that was told the last turn acts as this turn wants.
    pub(crate) fn is_told(&self, run_id: &str, turn: &Turn) -> bool {
        let told = self.told();
        let Some(before) = told.get(run_id) else {
            return false;
        };
        let wants = |turn: &Turn| -> Vec<(String, u32, bool)> {
            let items = turn.work.iter();
            let mut all: Vec<_> = items
                .map(|it| (it.target.clone(), it.execution, it.stop))
                .collect();
            all.sort();
            all
        };
        // An engine that wakes too early asks again; one that wakes too late is late.
        let in_time = match (before.wake_in_ms, turn.wake_in_ms) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(before), Some(now)) => before <= now.saturating_add(EARLY_MS),
        };
        before.status == turn.status
            && before.ended == turn.ended
            && in_time
            && wants(before) == wants(turn)
    }

    /// The runs that an engine was told of and that have not ended.
    pub(crate) fn open_runs(&self) -> Vec<String> {
        self.told().keys().cloned().collect()
    }

    pub(crate) fn stop_unwanted(&self, run_id: &str, turn: &Turn) {
        for ((run, target, execution), stop) in self.attempts().iter() {
            let is_wanted = || {
                let mut items = turn.work.iter();
                items.any(|it| it.target == *target && it.execution == *execution && !it.stop)
            };
            if run == run_id && !is_wanted() {
                stop.cancel();
            }
        }
    }

    /// Notes an attempt of this process; the token tells it to stop. None if this process has it already.
    pub(crate) fn begin(&self, key: &AttemptKey) -> Option<CancellationToken> {
        let mut attempts = self.attempts();
        if attempts.contains_key(key) {
            return None;
        }
        let stop = CancellationToken::new();
        attempts.insert(key.clone(), stop.clone());
        Some(stop)
    }

    /// Whether this process still works on what must be dead before an attempt begins: an earlier attempt of the same target, and
    /// for an undo every attempt of a step. They were told to stop and have not ended.
    pub(crate) fn has_earlier(&self, (run, target, execution): &AttemptKey) -> bool {
        let is_undo = |target: &str| target.ends_with(UNDO);
        let is_earlier = |(other, name, number): &AttemptKey| {
            let is_before = name == target && number < execution;
            other == run && (is_before || (is_undo(target) && !is_undo(name)))
        };
        self.attempts().keys().any(is_earlier)
    }

    /// Whether this process works on this attempt.
    pub(crate) fn has(&self, key: &AttemptKey) -> bool {
        self.attempts().contains_key(key)
    }

    pub(crate) fn end(&self, key: &AttemptKey) {
        self.attempts().remove(key);
    }

    /// Whether this process works on an attempt.
    #[must_use]
    pub fn has_attempts(&self, run_id: &str) -> bool {
        self.attempts().keys().any(|(run, ..)| run == run_id)
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<AttemptKey, CancellationToken>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<String, Turn>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares what the engine has seen with the log: the store may be another one, or an older copy.
    pub(crate) async fn check_history(&self, run_id: &str, seen: &Seen) -> Result<(), TurnError> {
        let is_known = self
            .told()
            .get(run_id)
            .is_some_and(|told| told.seen.seq >= seen.seq);
        if is_known || seen.seq == 0 {
            return Ok(());
        }
        let told = seen.clone();
        let (store, id, seen) = (self.setup.store.clone(), run_id.to_owned(), seen.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let Some(run) = store.find(&id)? else {
                return Ok(Some(format!("the store has no run {id}")));
            };
            let chunks = store.chunks(run, seen.seq - 1, 1)?;
            let Some(chunk) = chunks.first().filter(|it| it.first <= seen.seq) else {
                return Ok(Some(format!(
                    "the engine has seen event {} of run {id}, and the log of the store ends before it",
                    seen.seq
                )));
            };
            let index = usize::try_from(seen.seq - chunk.first).unwrap_or(usize::MAX);
            let end = index.saturating_add(1).saturating_mul(DIGESTS);
            let hash = chunk.digests.get(end - HASH..end).map(hex);
            let same = hash.as_deref() == Some(&*seen.hash);
            Ok((!same).then(|| {
                format!(
                    "event {} of run {id} is not the one that the engine has seen",
                    seen.seq
                )
            }))
        });
        let found: Result<Option<String>, StoreError> =
            asked.await.map_err(|_| TurnError::Later(Error::Stopping))?;
        let Some(why) = found.map_err(|error| TurnError::Later(error.into()))? else {
            return Ok(());
        };
        let why = format!(
            "{why}; the store is the truth, and the run is paused: find out whether it is the right store, or an older copy; \
             `stepwell runs resume {run_id}` goes on from the store"
        );
        self.alert(run_id, &why).await;
        self.hold_back(run_id, &told, &why).await;
        Err(TurnError::Diverged(why))
    }

    /// Pauses a run until a person has looked: what the engine has seen may have been done already.
    async fn hold_back(&self, run_id: &str, seen: &Seen, why: &str) {
        let pause = Command::Signal {
            signal_id: format!("diverged-{}-{:.16}", seen.seq, seen.hash),
            signal: SignalKind::Pause.name().to_owned(),
            payload: serde_json::Value::Null,
            reason: Some(format!("{ENGINE_DIVERGED}: {why}")),
            actor: engine_actor(),
        };
        match self.submit(run_id, pause).await {
            Ok(_) => {}
            // A run that has ended, or that was not started, does nothing again.
            Err(Error::Rejected(why)) => tracing::warn!(run = run_id, %why, "it is not paused"),
            Err(error) => tracing::error!(run = run_id, %error, "the run could not be paused"),
        }
    }

    async fn alert(&self, run_id: &str, why: &str) {
        tracing::error!(run = run_id, code = ENGINE_DIVERGED, "{why}");
        let (store, id, now) = (
            self.setup.store.clone(),
            run_id.to_owned(),
            self.setup.clock.now(),
        );
        let alert = NewAlert {
            code: ENGINE_DIVERGED.to_owned(),
            priority: Priority::P1,
            message: why.to_owned(),
        };
        let written = tokio::task::spawn_blocking(move || {
            let run = store.find(&id)?;
            store.alert(run, &alert, now)
        });
        if !matches!(written.await, Ok(Ok(_))) {
            tracing::error!(run = run_id, "the alert could not be written to the store");
        }
    }
}

/// How much earlier than needed an engine may have been told to wake, in milliseconds, without being told again.
const EARLY_MS: u64 = 50;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
