//! Traces for OpenTelemetry: a run is a trace, an execution a span.
//!
//! The spans of runs are made from their logs after the commit (`follow`, `run_spans`), so nothing of the engine waits
//! for a trace, and what a crash cut off goes on where the log ends. Requests are spans too. All of them wait in a queue
//! that has a limit, and are sent in batches (`export`); a collector that is away costs spans, which are counted, and
//! nothing else. Without an address for the spans nothing of this runs; a trace that a caller names is still handed on.

mod export;
mod follow;
mod otlp;
mod run_spans;
mod settings;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use ring::rand::{SecureRandom as _, SystemRandom};
use stepwell_engine::store::{RunNo, Store};
use stepwell_kernel::keys::hex;
use stepwell_kernel::trace::TraceContext;

use export::Exporter;
use follow::{Changed, Follower};
use otlp::{Kind, Span, Status, Value};
pub use settings::TelemetrySettings;

/// What the parts of the server know of traces.
#[derive(Clone, Default)]
pub(crate) struct Telemetry(Option<Arc<Tracer>>);

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Telemetry").field(&self.0.is_some()).finish()
    }
}

/// What is shared with the thread that sends.
struct Tracer {
    settings: TelemetrySettings,
    random: SystemRandom,
    changed: Changed,
    queue: Mutex<VecDeque<Span>>,
    counts: SpanCounts,
}

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Requests to the collector that failed.
    pub(crate) failures: AtomicU64,
}

/// The thread that makes and sends spans; none without an address.
pub(crate) struct Sending {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").finish_non_exhaustive()
    }
}

impl Sending {
    /// Sends what there is, if the collector is quick.
    pub(crate) fn stop(self) {
        if let Some((stop, thread)) = self.running {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

/// A request that is a span.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    context: TraceContext,
    parent: Option<String>,
    began: u64,
}

/// The place in a trace of what a request causes, for endpoints.
#[derive(Clone, Debug)]
pub(crate) struct CallerTrace(pub(crate) TraceContext);

impl Telemetry {
    pub(crate) fn start(
        settings: Option<TelemetrySettings>,
        store: Arc<dyn Store>,
    ) -> io::Result<(Telemetry, Sending)> {
        let Some(settings) = settings else {
            return Ok((Telemetry::default(), Sending { running: None }));
        };
        let tracer = Arc::new(Tracer {
            settings,
            random: SystemRandom::new(),
            changed: Changed::default(),
            queue: Mutex::default(),
            counts: SpanCounts::default(),
        });
        let (stop, stopped) = mpsc::channel();
        let mut exporter = Exporter::new(Arc::clone(&tracer), Follower::new(store))?;
        let thread = thread::Builder::new().name("stepwell-traces".into());
        let thread = thread.spawn(move || exporter.run(&stopped))?;
        let running = Some((stop, thread));
        Ok((Telemetry(Some(tracer)), Sending { running }))
    }

    /// This server has committed these events.
    pub(crate) fn changed(&self, run: RunNo, first: u64, last: u64) {
        if let Some(tracer) = &self.0
            && first <= last
            && !tracer.changed.note(run, first, last)
        {
            tracer.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of spans; absent if there are none.
    pub(crate) fn counts(&self) -> Option<&SpanCounts> {
        self.0.as_ref().map(|it| &it.counts)
    }

    /// The context of a run that no caller has started: a schedule, a trigger.
    pub(crate) fn root(&self, run_id: &str) -> Option<TraceContext> {
        let tracer = self.0.as_ref()?;
        let trace = TraceContext::of_root(run_id, true);
        tracer.settings.takes(trace.trace_id()).then_some(trace)
    }

    /// A request begins: what it causes is below this place in a trace. The request is a span if it is recorded.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> (Option<CallerTrace>, Option<RequestSpan>) {
        let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let given = header("traceparent").and_then(|parent| {
            // More than one header is joined, as the standard says.
            TraceContext::read(parent, header("tracestate"))
        });
        let Some(tracer) = &self.0 else {
            return (given.map(CallerTrace), None);
        };
        let Some((trace, span)) = tracer.fresh() else {
            return (given.map(CallerTrace), None);
        };
        let trace = given.as_ref().map_or(trace, |it| it.trace_id().to_owned());
        let is_taken = match &given {
            Some(given) if tracer.settings.follows_caller => given.is_sampled(),
            Some(_) | None => tracer.settings.takes(&trace),
        };
        if !is_taken {
            return (given.map(CallerTrace), None);
        }
        let mut context = TraceContext::of(&trace, &span, true);
        let parent = given.as_ref().map(|it| it.span_id().to_owned());
        context.tracestate = given.and_then(|it| it.tracestate);
        let request = RequestSpan {
            context: context.clone(),
            parent,
            began: wall(),
        };
        (Some(CallerTrace(context)), Some(request))
    }

    /// A request was answered.
    pub(crate) fn end(&self, request: RequestSpan, method: &str, route: &str, status: u16) {
        let Some(tracer) = &self.0 else { return };
        let failed = status >= 500;
        let mut attributes = vec![
            ("http.request.method", Value::Text(method.to_owned())),
            ("http.route", Value::Text(route.to_owned())),
            ("http.response.status_code", Value::Number(status.into())),
        ];
        if failed {
            attributes.push(("error.type", Value::Text(status.to_string())));
        }
        tracer.push(Span {
            trace: request.context.trace_id().to_owned(),
            id: request.context.span_id().to_owned(),
            parent: request.parent,
            state: request.context.tracestate,
            name: format!("{method} {route}"),
            kind: Kind::Server,
            start: request.began,
            end: wall(),
            attributes,
            status: match failed {
                true => Status::Failed(status.to_string()),
                false => Status::Unset,
            },
        });
    }
}

impl Tracer {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a span into the queue; a full queue drops it.
    fn push(&self, span: Span) {
        let mut queue = self.queue();
        match queue.len() < self.settings.queue {
            true => queue.push_back(span),
            false => drop(self.counts.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Ids for a trace and a span that nobody else has.
    fn fresh(&self) -> Option<(String, String)> {
        let mut bytes = [0; 24];
        self.random.fill(&mut bytes).ok()?;
        Some((hex(&bytes[..16]), hex(&bytes[16..])))
    }
}

fn wall() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX))
}
