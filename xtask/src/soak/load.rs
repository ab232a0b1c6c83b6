//! Steady load on a server: runs are started at a pace; some are followed, cancelled or read; lists are read.

use super::samples::Counts;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many threads start runs.
const STARTERS: u32 = 4;
/// The longest time of one request.
const PATIENCE: Duration = Duration::from_secs(90);
/// The most failures that are kept.
const FAILURES: usize = 100;

/// A step that sleeps a moment, and one after it.
const QUICK: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: soak, path: soak}\nworkflow:\n\
    - {step: start, tool: {kind: sleep, seconds: 0.2}, next: [{step: last}]}\n\
    - {step: last, tool: {kind: sleep, seconds: 0.1}}\n";
/// A run that waits until it is cancelled.
const LONG: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: long, path: long}\nworkflow:\n\
    - {step: start, tool: {kind: sleep, seconds: 3600}}\n";

struct Shared {
    address: String,
    stopped: AtomicBool,
    started: AtomicU64,
    ended: AtomicU64,
    failures: Mutex<Vec<String>>,
}

pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(url: &str, rate: u32) -> Result<Load> {
        let address = url.strip_prefix("http://").context("not an http address")?;
        let shared = Arc::new(Shared {
            address: address.trim_end_matches('/').to_owned(),
            stopped: AtomicBool::new(false),
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failures: Mutex::default(),
        });
        let pause = Duration::from_secs(1) * STARTERS / rate;
        let mut threads: Vec<JoinHandle<()>> = (0..STARTERS)
            .map(|_| repeat(&shared, pause, Shared::one_run))
            .collect();
        threads.push(repeat(
            &shared,
            Duration::from_millis(500),
            Shared::read_lists,
        ));
        Ok(Load { shared, threads })
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            started: self.shared.started.load(Ordering::Relaxed),
            ended: self.shared.ended.load(Ordering::Relaxed),
        }
    }

    /// Stops, and says what failed.
    pub(super) fn stop(self) -> Vec<String> {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A thread that panicked has failed, which is seen by its missing work.
            let _ = thread.join();
        }
        let mut failures = self
            .shared
            .failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *failures)
    }
}

/// Does something at a pace until the load stops.
fn repeat(
    shared: &Arc<Shared>,
    pause: Duration,
    work: fn(&Shared, u64) -> Result<()>,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut due = Instant::now();
        for number in 0.. {
            if shared.stopped.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = work(&shared, number) {
                let mut failures = shared
                    .failures
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if failures.len() < FAILURES {
                    failures.push(format!("{error:#}"));
                }
            }
            due += pause;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // A slow server is not paid back with a burst.
            due = due.max(Instant::now());
        }
    })
}

impl Shared {
    fn one_run(&self, number: u64) -> Result<()> {
        let is_long = number % 10 == 9;
        let text = if is_long { LONG } else { QUICK };
        let wait = if is_long { 0 } else { 45 };
        let body = json!({ "definition": { "text": text }, "waitSeconds": wait, "labels": { "soak": "yes" } });
        let started = self.ask("POST", "/api/v1/runs", Some(&body))?;
        let run = started["runId"].as_str().context("a run without an id")?;
        self.started.fetch_add(1, Ordering::Relaxed);
        if is_long {
            let body = json!({ "reason": "soak" });
            self.ask("POST", &format!("/api/v1/runs/{run}/cancel"), Some(&body))?;
        } else if started["run"]["status"] != "COMPLETED" {
            bail!("run {run} has not ended: {}", started["run"]["status"]);
        }
        if number.is_multiple_of(5) {
            self.follow(run)?;
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn read_lists(&self, _: u64) -> Result<()> {
        for path in [
            "/api/v1/runs?limit=20&labels=soak=yes",
            "/api/v1/runs/counts",
            "/api/v1/alerts",
            "/metrics",
        ] {
            self.ask("GET", path, None)?;
        }
        Ok(())
    }

    fn connect(&self, method: &str, path: &str, body: Option<&Value>) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(ToString::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        Ok(stream)
    }

    /// One request on a connection of its own. An answer that is no JSON is null.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut answer = String::new();
        let mut stream = self.connect(method, path, body)?;
        stream
            .read_to_string(&mut answer)
            .with_context(|| format!("{method} {path}"))?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') {
            bail!("{method} {path}: {status} {body}");
        }
        Ok(serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// Reads the log of a run as a stream to its end.
    fn follow(&self, run: &str) -> Result<()> {
        let stream = self.connect("GET", &format!("/api/v1/runs/{run}/stream"), None)?;
        for line in BufReader::new(stream).lines() {
            if line? == "event: end" {
                return Ok(());
            }
        }
        bail!("the stream of run {run} ended before the run")
    }
}
