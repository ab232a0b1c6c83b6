//! Sends spans to a collector: OTLP over HTTP, in batches. What the collector cannot take now is sent again for a while;
//! meanwhile the queue fills, and what finds no room is dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::runtime::{Builder, Runtime};

use super::Tracer;
use super::follow::Follower;
use super::otlp::{self, Span};

/// How many spans a request has at most.
const BATCH: usize = 512;
/// How long a collector that does not take spans is left alone at most.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// How often the same batch is sent before it is dropped.
const TRIES: u32 = 8;
/// How long a server that stops waits for the collector.
const LAST_WAIT: Duration = Duration::from_secs(3);

pub(super) struct Exporter {
    tracer: Arc<Tracer>,
    follower: Follower,
    runtime: Runtime,
    client: reqwest::Client,
    /// On its way, and how often it was sent.
    pending: Vec<Span>,
    tries: u32,
    rests_until: Option<Instant>,
}

/// Why a batch did not arrive.
enum Failure {
    /// It can arrive later.
    Passing(String),
    /// The collector will never take it.
    Final(String),
}

impl Exporter {
    pub(super) fn new(tracer: Arc<Tracer>, follower: Follower) -> io::Result<Exporter> {
        crate::access::install_provider();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        for (name, value) in &tracer.settings.headers {
            let name = HeaderName::try_from(name).map_err(io::Error::other)?;
            let mut value = HeaderValue::try_from(value).map_err(io::Error::other)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("stepwell/", env!("CARGO_PKG_VERSION")))
            .timeout(tracer.settings.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(io::Error::other)?;
        Ok(Exporter {
            tracer,
            follower,
            runtime,
            client,
            pending: Vec::new(),
            tries: 0,
            rests_until: None,
        })
    }

    /// Makes and sends spans until the server stops.
    pub(super) fn run(&mut self, stopped: &Receiver<()>) {
        loop {
            let stops = match stopped.recv_timeout(self.tracer.settings.pause) {
                Err(RecvTimeoutError::Timeout) => false,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => true,
            };
            for span in self.follower.spans(&self.tracer.changed) {
                self.tracer.push(span);
            }
            if stops {
                self.rests_until = None;
                let until = Instant::now() + LAST_WAIT;
                while self.send_some(LAST_WAIT) && Instant::now() < until {}
                let left = self.pending.len() + self.tracer.queue().len();
                self.dropped(left);
                return;
            }
            let timeout = self.tracer.settings.timeout;
            while self.send_some(timeout) {}
        }
    }

    /// Sends a batch. Says whether there may be more to send now.
    fn send_some(&mut self, timeout: Duration) -> bool {
        if self.rests_until.is_some_and(|it| Instant::now() < it) {
            return false;
        }
        if self.pending.is_empty() {
            let mut queue = self.tracer.queue();
            let count = queue.len().min(BATCH);
            self.pending.extend(queue.drain(..count));
        }
        if self.pending.is_empty() {
            return false;
        }
        let settings = &self.tracer.settings;
        let body = otlp::request(&settings.service, &settings.attributes, &self.pending);
        let sent = self.client.post(&settings.endpoint).timeout(timeout);
        match self.runtime.block_on(post(sent.body(body))) {
            Ok(()) => {
                let count = self.pending.len() as u64;
                self.tracer.counts.sent.fetch_add(count, Ordering::Relaxed);
                if self.rests_until.take().is_some() {
                    tracing::info!("the collector of traces takes spans again");
                }
                self.pending.clear();
                self.tries = 0;
                true
            }
            Err(failure) => {
                self.failed(failure);
                false
            }
        }
    }

    fn failed(&mut self, failure: Failure) {
        let counts = &self.tracer.counts;
        counts.failures.fetch_add(1, Ordering::Relaxed);
        self.tries += 1;
        let (why, is_final) = match failure {
            Failure::Passing(why) => (why, self.tries >= TRIES),
            Failure::Final(why) => (why, true),
        };
        // Said once for each time that the collector is away.
        if self.rests_until.is_none() {
            tracing::warn!("spans could not be sent to the collector of traces: {why}");
        }
        let rest = self.tracer.settings.pause * (1 << self.tries.min(6));
        self.rests_until = Some(Instant::now() + rest.min(LONGEST_REST));
        if is_final {
            let count = std::mem::take(&mut self.pending).len();
            self.dropped(count);
            self.tries = 0;
        }
    }

    fn dropped(&self, count: usize) {
        let dropped = &self.tracer.counts.dropped;
        dropped.fetch_add(count as u64, Ordering::Relaxed);
    }
}

async fn post(request: reqwest::RequestBuilder) -> Result<(), Failure> {
    // The address may have a password in it.
    let answer = request.send().await;
    let answer = answer.map_err(|error| Failure::Passing(error.without_url().to_string()))?;
    let status = answer.status();
    let why = || format!("it answers with {status}");
    match status {
        _ if status.is_success() => Ok(()),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(Failure::Passing(why())),
        _ => Err(Failure::Final(why())),
    }
}
