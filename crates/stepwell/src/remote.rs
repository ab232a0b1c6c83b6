//! A server as this command uses it: requests that wait for their answers, for as long as the user is patient, and the runs
//! of the server as a source of logs.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value as Json;
use stepwell_client::{
    ClientError, Connection, ConnectionOptions, EventPage, EventStream, StreamEvent,
};
use stepwell_engine::Error;
use stepwell_engine::chunk::from_lines;
use stepwell_engine::read::{RunHeader, RunSource};
use stepwell_engine::store::{Head, PlanNo, PlanRow, RunNo, SessionNo, StoredChunk};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;
use tokio::runtime::{Builder, Runtime};

use crate::log;
use crate::term::duration;

/// How many events are read at a time.
const PAGE: usize = 1_000;
/// How long to wait after the first failed request; each wait is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// How often a wait looks up for Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A server that a command works on.
pub(crate) struct Remote {
    connection: Connection,
    runtime: Runtime,
    /// How long to wait for a server that does not answer; absent: forever.
    patience: Option<Duration>,
    /// The options that choose the same server again.
    flag: String,
    /// Set when the user ends the command: then nothing is waited for any more.
    stop: OnceLock<Arc<AtomicBool>>,
    known: Mutex<Known>,
}

/// What was read of runs so far.
#[derive(Default)]
struct Known {
    runs: Vec<String>,
    /// First pages that nobody has taken yet.
    pages: HashMap<String, EventPage>,
    /// Compiled definitions by their hashes.
    plans: HashMap<String, PlanRow>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.connection.url())
            .finish_non_exhaustive()
    }
}

impl Remote {
    pub(crate) fn new(
        url: &str,
        options: ConnectionOptions,
        patience: Option<Duration>,
        flag: String,
    ) -> Result<Remote> {
        Ok(Remote {
            connection: Connection::open(url, options)?,
            runtime: Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("stepwell-client")
                .enable_all()
                .build()?,
            patience,
            flag,
            stop: OnceLock::new(),
            known: Mutex::default(),
        })
    }

    /// Ends waits for the server when this is set.
    pub(crate) fn stops_with(&self, stop: &Arc<AtomicBool>) {
        // A command has one such flag.
        let _ = self.stop.set(Arc::clone(stop));
    }

    pub(crate) fn connection(&self) -> Connection {
        self.connection.clone()
    }

    pub(crate) fn url(&self) -> &str {
        self.connection.url()
    }

    /// The options that choose the same server again, for commands that are shown.
    pub(crate) fn flag(&self) -> String {
        self.flag.clone()
    }

    /// Runs something on the threads of the client.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Asks for something that may be asked for again: a server that does not answer is waited for.
    pub(crate) fn ask<T, F>(&self, question: impl Fn(Connection) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.keep(question, ClientError::is_away)
    }

    /// Tells the server to do something that must not be done twice: it is told again only if it has certainly not been
    /// done.
    pub(crate) fn tell<T, F>(&self, order: impl Fn(Connection) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.keep(order, ClientError::is_untouched)
    }

    /// Tells the server something that counts once, however often it is told: it is told again also if it may have been
    /// done. A command that is still in its mailbox (504) is not told again, because its owner has had the time it may take.
    pub(crate) fn repeat<T, F>(&self, order: impl Fn(Connection) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.keep(order, |error| {
            error.is_away() && error.status() != Some(504)
        })
    }

    fn keep<T, F>(
        &self,
        call: impl Fn(Connection) -> F,
        passes: impl Fn(&ClientError) -> bool,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut waiting = self.waiting();
        loop {
            match self.runtime.block_on(call(self.connection.clone())) {
                Err(error) if passes(&error) && waiting.goes_on(&error) => {}
                answer => {
                    // Whatever the server answers, it is there. An error that would be waited for is not its answer.
                    if !answer.as_ref().is_err_and(&passes) {
                        waiting.over();
                    }
                    return answer;
                }
            }
        }
    }

    /// What is waited for in the same way by who reads a stream.
    fn waiting(&self) -> Waiting<'_> {
        Waiting {
            limit: self.patience,
            since: None,
            next: FIRST_WAIT,
            stop: self.stop.get().map(|it| &**it),
        }
    }

    /// Reads a stream until `see` says that it has seen enough. A stream that breaks is opened again, for as long as the
    /// user is patient.
    pub(crate) fn follow<F>(
        &self,
        open: impl Fn(Connection) -> F,
        mut see: impl FnMut(&StreamEvent) -> Result<bool>,
    ) -> Result<()>
    where
        F: Future<Output = Result<EventStream, ClientError>>,
    {
        let mut waiting = self.waiting();
        loop {
            let mut stream = self.ask(&open)?;
            let broken = loop {
                match self.runtime.block_on(stream.next()) {
                    Ok(Some(event)) if event.name == "problem" => {
                        let problem: Json = serde_json::from_str(&event.data)?;
                        let text = |name: &str| problem[name].as_str().unwrap_or_default();
                        break ClientError::Refused {
                            status: problem["status"].as_u64().unwrap_or(500) as u16,
                            code: text("code").to_owned(),
                            detail: text("detail").to_owned(),
                            retry_after: None,
                        };
                    }
                    Ok(Some(event)) => {
                        waiting.over();
                        if see(&event)? {
                            return Ok(());
                        }
                    }
                    // The server stops, and another one or the next one goes on.
                    Ok(None) => {
                        break ClientError::Refused {
                            status: 503,
                            code: "SERVER_UNREACHABLE".to_owned(),
                            detail: "the server has ended the stream".to_owned(),
                            retry_after: None,
                        };
                    }
                    Err(error) => break error,
                }
            };
            if !broken.is_away() || !waiting.goes_on(&broken) {
                return Err(broken.into());
            }
        }
    }

    /// What a run of the server waits for, as the server says it: it knows which workers are there.
    pub(crate) fn waits_for(&self, run_id: &str) -> Result<Vec<Json>, ClientError> {
        let mut answer = self.ask(|server| async move { server.explain(run_id).await })?;
        // A server without reasons says nothing.
        let Json::Array(mut reasons) = answer["reasons"].take() else {
            return Ok(Vec::new());
        };
        // The server does not know the address under which it was asked.
        let address = format!("--server {}", self.url());
        for text in reasons.iter_mut().filter_map(|it| it.get_mut("text")) {
            if let Some(known) = text.as_str() {
                *text = known.replace("--server URL", &address).into();
            }
        }
        Ok(reasons)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id_of(&self, run: RunNo) -> Result<String, Error> {
        let known = self.known();
        let id = usize::try_from(run.0)
            .ok()
            .and_then(|at| known.runs.get(at));
        id.cloned()
            .ok_or_else(|| Error::UnknownRun(format!("number {}", run.0)))
    }

    fn page(&self, run_id: &str, after: u64) -> Result<EventPage, Error> {
        let page = self.ask(|server| async move { server.events(run_id, after, PAGE).await });
        page.map_err(|error| told(&error))
    }

    fn plan(&self, run_id: &str, hash: &str) -> Result<PlanRow, Error> {
        if let Some(plan) = self.known().plans.get(hash) {
            return Ok(plan.clone());
        }
        let net = self.ask(|server| async move { server.net(run_id).await });
        let net = net.map_err(|error| told(&error))?;
        // A server masks secrets that are written out, and so another plan comes of the net.
        let shown = serde_json::from_value(net.clone())
            .ok()
            .and_then(|it| Plan::new(it).ok());
        let text = |name: &str| net[name].as_str().unwrap_or_default().to_owned();
        let plan = PlanRow {
            no: PlanNo(0),
            plan_id: text("plan_id"),
            version: text("plan_version"),
            hash: shown.map_or_else(|| hash.to_owned(), |it| it.hash().to_owned()),
            net: net.to_string(),
        };
        self.known().plans.insert(hash.to_owned(), plan.clone());
        Ok(plan)
    }
}

/// What a server said, or that it did not answer.
pub(crate) fn told(error: &ClientError) -> Error {
    let text = error.to_string();
    let prefix = format!("{}: ", error.code());
    Error::Server {
        code: error.code().to_owned(),
        why: text.strip_prefix(&prefix).unwrap_or(&text).to_owned(),
    }
}

impl RunSource for Remote {
    fn find_run(&self, run_id: &str) -> Result<Option<RunNo>, Error> {
        let at = self.known().runs.iter().position(|it| it == run_id);
        let at = match at {
            Some(at) => at,
            None => {
                let page = match self.page(run_id, 0) {
                    Err(Error::Server { code, .. }) if code == Code::RunUnknown.name() => {
                        return Ok(None);
                    }
                    page => page?,
                };
                let mut known = self.known();
                known.pages.insert(run_id.to_owned(), page);
                known.runs.push(run_id.to_owned());
                known.runs.len() - 1
            }
        };
        Ok(Some(RunNo(i64::try_from(at).unwrap_or(i64::MAX))))
    }

    fn run_header(&self, run: RunNo) -> Result<Option<RunHeader>, Error> {
        let run_id = self.id_of(run)?;
        let kept = self.known().pages.get(&run_id).cloned();
        let page = match kept {
            Some(page) => page,
            None => {
                let page = self.page(&run_id, 0)?;
                self.known().pages.insert(run_id.clone(), page.clone());
                page
            }
        };
        let plan = self.plan(&run_id, &page.plan_hash)?;
        Ok(Some(RunHeader {
            is_masked: plan.hash != page.plan_hash,
            plan: Some(plan),
            head: Head {
                status: page.status,
                session: page.has_owner.then_some(SessionNo(0)),
                ended_at: page.ended_at.as_deref().and_then(Time::from_rfc3339),
                ..Head::default()
            },
            run_id,
            damage: None,
        }))
    }

    fn log_chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>, Error> {
        let run_id = self.id_of(run)?;
        let (mut after, mut chunks) = (after, Vec::new());
        loop {
            let kept = self.known().pages.remove(&run_id).filter(|_| after == 0);
            let page = match kept {
                Some(page) => page,
                None => self.page(&run_id, after)?,
            };
            if page.events.is_empty() {
                return Ok(chunks);
            }
            let chunk = chunk(&run_id, page.events)?;
            after = chunk.last;
            chunks.push(chunk);
            if after >= page.last_seq || chunks.len() >= limit {
                return Ok(chunks);
            }
        }
    }
}

fn chunk(run_id: &str, lines: Vec<Json>) -> Result<StoredChunk, Error> {
    from_lines(lines).map_err(|source| Error::Unreadable {
        run_id: run_id.to_owned(),
        source,
    })
}

/// A wait for a server that does not answer: how long, and what is said about it.
struct Waiting<'a> {
    limit: Option<Duration>,
    since: Option<Instant>,
    next: Duration,
    stop: Option<&'a AtomicBool>,
}

impl Waiting<'_> {
    /// Waits for the next try. False if the patience is over, or the user has ended the command.
    fn goes_on(&mut self, error: &ClientError) -> bool {
        let Some(wait) = self.next_wait(error) else {
            return false;
        };
        let until = Instant::now() + wait;
        while Instant::now() < until {
            if self.stop.is_some_and(|it| it.load(Ordering::SeqCst)) {
                return false;
            }
            std::thread::sleep(SLICE.min(until.saturating_duration_since(Instant::now())));
        }
        true
    }

    /// How long to wait before the next try; none if the patience is over.
    fn next_wait(&mut self, error: &ClientError) -> Option<Duration> {
        let asked = match error {
            ClientError::Refused { retry_after, .. } => *retry_after,
            ClientError::Address(..)
            | ClientError::Certificates(..)
            | ClientError::Name(_)
            | ClientError::PlainToken(_)
            | ClientError::Untrusted(_)
            | ClientError::Unreachable(_) => None,
        };
        let is_first = self.since.is_none();
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let mut wait = asked.unwrap_or(self.next);
        if let Some(limit) = self.limit {
            let left = limit.saturating_sub(waited);
            if left.is_zero() {
                return None;
            }
            wait = wait.min(left);
        }
        self.next = (self.next * 2).min(LONGEST_WAIT);
        if is_first {
            let limit = match self.limit {
                Some(limit) => format!("for up to {}", said(limit)),
                None => "without a limit".to_owned(),
            };
            log::line(&format!(
                "waiting for the server {limit} (--store-patience); Ctrl-C ends the wait: {error}"
            ));
        }
        Some(wait)
    }

    /// The server has answered.
    fn over(&mut self) {
        if let Some(since) = self.since.take() {
            log::line(&format!(
                "the server answers again after {}",
                said(since.elapsed())
            ));
        }
        self.next = FIRST_WAIT;
    }
}

fn said(time: Duration) -> String {
    duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
