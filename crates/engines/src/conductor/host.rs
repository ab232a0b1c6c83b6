//! The host: this process as a worker of a Conductor server, on threads of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::api::{Api, ApiError};
use super::definitions::{ATTEMPT, TURN, register};
use super::tender::{Doorbell, Tender};
use crate::address::ConductorAddress;
use crate::bell::Bell;
use crate::driver::Driver;
use crate::faults::{connect_fault, denied};
use crate::host_thread::{HostError, HostHealth, HostParts, HostThread, Ready, Stopped};

/// How long the server keeps a request for tasks: an abandoned one takes tasks away, so it is short.
const POLL_MS: u64 = 100;
/// The most tasks that one request takes.
const MOST: usize = 20;
/// How long the server is left alone after it did not answer, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// How long a process that stops waits for the end of the workflows of runs that have ended: a busy server takes seconds.
const CLOSING: Duration = Duration::from_secs(15);
/// How long attempts that were told to stop may take.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long the last news of a run may take to come here.
const LAST_NEWS: Duration = Duration::from_millis(100);

/// This process as a worker of a Conductor server.
#[derive(Debug)]
pub struct ConductorHost {
    _thread: HostThread,
}

impl ConductorHost {
    /// Registers the definitions and starts to work.
    pub fn start(address: ConductorAddress, parts: HostParts) -> Result<ConductorHost, HostError> {
        let serve = move |ready, stopped| serve(address, parts, ready, stopped);
        Ok(ConductorHost {
            _thread: HostThread::start("stepwell-conductor", serve)?,
        })
    }
}

async fn serve(address: ConductorAddress, setup: HostParts, ready: Ready, stopped: Stopped) {
    let api = match connect(&address).await {
        Ok(api) => api,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let (again, to_tend) = mpsc::unbounded_channel();
    let names = (setup.place, setup.identity);
    let tender = Arc::new(Tender::new(
        api,
        setup.driver.clone(),
        names,
        setup.parallel,
        again,
    ));
    let bell = Bell::new(
        setup.driver.clone(),
        setup.changes,
        Doorbell(tender.clone()),
    );
    let mut parts = JoinSet::new();
    parts.spawn(bell.run());
    parts.spawn(tend(tender.clone(), to_tend));
    let turns = tokio::spawn(poll_turns(tender.clone(), setup.health));
    let attempts = tokio::spawn(poll_attempts(tender.clone()));
    let _ = ready.send(Ok(()));
    let _ = stopped.await;
    // A request for tasks that is not waited for takes tasks away from the next process.
    tender.closing.cancel();
    let _ = tokio::time::timeout(LAST_WORDS, attempts).await;
    let _ = tokio::time::timeout(CLOSING, close_ended(&tender, &setup.driver)).await;
    tokio::select! {
        () = setup.driver.until_idle(setup.grace, LAST_WORDS) => {}
        () = tender.until_idle() => {}
    }
    // Attempts that go on are stopped and given back, and the server is told.
    tender.stopping.cancel();
    let _ = tokio::time::timeout(LAST_WORDS, turns).await;
    let _ = tokio::time::timeout(LAST_WORDS, tender.until_idle()).await;
    parts.abort_all();
}

async fn connect(address: &ConductorAddress) -> Result<Api, HostError> {
    let api = Api::new(address, |name| std::env::var(name).ok())?;
    let place = format!("the Conductor server at {}", address.base);
    match register(&api).await {
        Ok(()) => Ok(api),
        Err(ApiError::Denied(why)) => Err(denied(&place, &why)),
        Err(ApiError::Unknown(_)) => Err(connect_fault(
            &place,
            "there is no REST interface of Conductor at this address, which usually ends with `/api`",
        )),
        Err(error) => Err(connect_fault(&place, &error.to_string())),
    }
}

/// Waits until the workflows of runs that have ended have ended, too: there may be no worker for them later.
async fn close_ended(tender: &Tender, driver: &Driver) {
    tokio::time::sleep(LAST_NEWS).await;
    for run_id in driver.take_ended() {
        while !matches!(
            tender.is_closed(&run_id).await,
            Ok(true) | Err(ApiError::Refused(_) | ApiError::Denied(_))
        ) {
            tokio::time::sleep(LAST_NEWS / 2).await;
        }
    }
}

/// Looks at runs again whose wishes the server could not be told.
async fn tend(tender: Arc<Tender>, mut asked: mpsc::UnboundedReceiver<String>) {
    let (mut waiting, mut backoff) = (BTreeSet::new(), BACKOFF.0);
    loop {
        match waiting.is_empty() {
            true => match asked.recv().await {
                Some(run_id) => drop(waiting.insert(run_id)),
                None => return,
            },
            false => tokio::time::sleep(backoff).await,
        }
        while let Ok(run_id) = asked.try_recv() {
            waiting.insert(run_id);
        }
        let mut left = BTreeSet::new();
        for run_id in std::mem::take(&mut waiting) {
            if !tender.tend(&run_id).await {
                left.insert(run_id);
            }
        }
        backoff = match left.is_empty() {
            true => BACKOFF.0,
            false => (backoff * 2).min(BACKOFF.1),
        };
        waiting = left;
    }
}

/// Takes turns until the process stops.
async fn poll_turns(tender: Arc<Tender>, health: HostHealth) {
    let mut backoff = BACKOFF.0;
    while !tender.stopping.is_cancelled() {
        match tender
            .api
            .poll(TURN, (&tender.worker, &tender.domain), MOST, POLL_MS)
            .await
        {
            Ok(tasks) => {
                backoff = BACKOFF.0;
                health.answers();
                for task in tasks.into_iter().filter(|it| tender.take(&it.task_id)) {
                    let tender = tender.clone();
                    tokio::spawn(async move { tender.serve_turn(task).await });
                }
            }
            Err(error) => {
                health.fails(error.to_string());
                rest(&error, &mut backoff).await;
            }
        }
    }
}

/// Takes attempts until the process takes no more.
async fn poll_attempts(tender: Arc<Tender>) {
    let mut backoff = BACKOFF.0;
    while !tender.closing.is_cancelled() {
        // Tasks are taken only if there is room for them: others may have room now.
        let free = tender.free().min(MOST);
        if free == 0 {
            tokio::select! {
                () = tender.freed.notified() => {}
                () = tender.closing.cancelled() => {}
            }
            continue;
        }
        match tender
            .api
            .poll(ATTEMPT, (&tender.worker, &tender.domain), free, POLL_MS)
            .await
        {
            Ok(tasks) => {
                backoff = BACKOFF.0;
                if tender.closing.is_cancelled() {
                    for task in tasks {
                        tender.give_back(&task).await;
                    }
                    return;
                }
                // A task that this process has already is handed out again after a time without heartbeats.
                for task in tasks.into_iter().filter(|it| tender.take(&it.task_id)) {
                    tender.begin_attempt();
                    let tender = tender.clone();
                    tokio::spawn(async move { tender.serve_attempt(task).await });
                }
            }
            Err(error) => rest(&error, &mut backoff).await,
        }
    }
}

/// Waits before the server is asked again; the health of the host tells people that it is away.
async fn rest(error: &ApiError, backoff: &mut Duration) {
    tracing::debug!(%error, "tasks cannot be had from the Conductor server");
    tokio::time::sleep(*backoff).await;
    *backoff = (*backoff * 2).min(BACKOFF.1);
}
