//! `stepwell bench server`: a server as a process of its own, with idle streams, with clients that start runs and watch
//! them, and with slow readers beside them.

mod clients;
mod readers;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value as Json, json};
use stepwell_client::Connection;
use tokio::runtime::Builder;

use super::server_process::{BenchServer, in_new_folder};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::{file_limit, term};
use clients::{ClientFigures, STEPS};
use readers::SlowReaders;

/// How many runs the idle streams share.
const WATCHED: usize = 100;
/// How long the server has to settle before its memory is looked at.
const SETTLE: Duration = Duration::from_secs(1);
/// How often the memory of the server is looked at during the load.
const SAMPLES: u32 = 8;
/// Files that both processes need beside the connections.
const OTHER_FILES: u64 = 200;

/// Measure a server over HTTP: starts, steps, latency, and the memory of idle streams
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell bench server
  stepwell bench server --clients 500 --seconds 120 --slow-readers 200 --streams 0
  stepwell bench server --streams 10000 --seconds 0 -o json

Starts `stepwell serve` with its own worker. First --streams connections follow runs in which nothing happens: the
memory of the server for each of them. Then --clients clients start runs of three no-op steps and watch them to their
ends over server-sent events, one run after the other, for --seconds: starts/s, steps/s, and the times from a start
to its answer, to its first step and to its end, as the clients see them. --slow-readers connections read the stream
of all runs meanwhile, 256 bytes at a time. The memory of the server is told at the start and eight times until the end.
The store is deleted afterwards.

Both processes raise their limit of open files as far as the system allows (`ulimit -Hn`). If fewer streams than asked
for are possible, the result says so.

Exit codes: 0 measured, 1 the server did not start, or a request or a stream failed, 2 wrong usage.")]
pub(crate) struct ServerArgs {
    /// Number of clients that start and watch runs
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: usize,
    /// Duration of the load in seconds; 0: no load
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// Number of idle streams
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    streams: usize,
    /// Number of slow readers of the stream of all runs during the load
    #[arg(long, value_name = "N", default_value_t = 0)]
    slow_readers: usize,
    /// Store of the server [default: a new SQLite file]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
}

pub(crate) fn run(args: &ServerArgs) -> Result<Exit> {
    let limit = file_limit::raise();
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let figures = in_new_folder(|folder| runtime.block_on(measure(args, limit, folder)))?;
    let text = match args.output {
        OutputFormat::Json => format!("{}\n", figures.json()),
        OutputFormat::Human => figures.human(),
    };
    term::print(&text)?;
    let failed = figures
        .load
        .is_some_and(|it| it.clients.failures > 0 || !it.dropped.is_empty());
    Ok(if failed { Exit::Problems } else { Exit::Ok })
}

async fn measure(args: &ServerArgs, limit: Option<u64>, folder: &Path) -> Result<ServerFigures> {
    let server = BenchServer::start(folder, args.store.as_deref(), &[])?;
    let connection = Connection::new(&server.url, None)?;
    let host = server.url.trim_start_matches("http://").to_owned();
    let possible = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX)
    });
    let streams = match args.streams.min(possible) {
        0 => None,
        many => {
            let mut figures = idle_streams(&server, &connection, &host, many).await?;
            figures.wanted = args.streams;
            if many < args.streams && figures.why_fewer.is_none() {
                let why = format!("the system allows {} open files", limit.unwrap_or_default());
                figures.why_fewer = Some(why);
            }
            Some(figures)
        }
    };
    let load = match args.seconds {
        0 => None,
        _ => Some(load(args, &server, &connection, &host).await?),
    };
    Ok(ServerFigures { streams, load })
}

/// Opens streams of runs that wait for a worker that never comes.
async fn idle_streams(
    server: &BenchServer,
    connection: &Connection,
    host: &str,
    many: usize,
) -> Result<StreamFigures> {
    let text = "workflowType: bench.idle\nworkflowVersion: 1\nsteps: [{stepType: NEVER}]\n";
    let body = json!({ "definition": { "text": text } });
    let mut runs = Vec::new();
    for _ in 0..many.min(WATCHED) {
        runs.push(connection.start(&body).await?.run_id);
    }
    tokio::time::sleep(SETTLE).await;
    let before = server.resident();
    let (opened, why_fewer) = readers::open_idle(host, &runs, many).await;
    tokio::time::sleep(SETTLE).await;
    let after = server.resident();
    let figures = StreamFigures {
        wanted: many,
        opened: opened.len(),
        why_fewer,
        before,
        after,
        open_files: server.open_files(),
    };
    drop(opened);
    let nothing = json!({});
    for run in runs {
        let cancelled = connection.signal(&run, "CANCEL", &nothing, Some("measured"));
        cancelled.await.context("a run could not be cancelled")?;
    }
    Ok(figures)
}

async fn load(
    args: &ServerArgs,
    server: &BenchServer,
    connection: &Connection,
    host: &str,
) -> Result<LoadFigures> {
    let slow = SlowReaders::open(host, args.slow_readers).await?;
    let seconds = Duration::from_secs(args.seconds);
    let clients = clients::start_and_watch(connection, args.clients, seconds);
    let resident = async {
        let mut resident = vec![server.resident()];
        for _ in 0..SAMPLES {
            tokio::time::sleep(seconds / SAMPLES).await;
            resident.push(server.resident());
        }
        resident
    };
    let (clients, resident) = tokio::join!(clients, resident);
    let (slow_bytes, dropped) = slow.close().await;
    Ok(LoadFigures {
        clients,
        number: args.clients,
        seconds,
        slow_readers: args.slow_readers,
        slow_bytes,
        dropped,
        resident,
    })
}

/// The figures of one measurement of a server; a part that was not asked for is absent.
#[derive(Debug)]
struct ServerFigures {
    streams: Option<StreamFigures>,
    load: Option<LoadFigures>,
}

/// The figures of streams of runs in which nothing happens.
#[derive(Debug)]
struct StreamFigures {
    wanted: usize,
    opened: usize,
    why_fewer: Option<String>,
    /// Resident memory of the server without and with them, in bytes.
    before: u64,
    after: u64,
    open_files: usize,
}

/// Clients, and slow readers beside them.
#[derive(Debug)]
struct LoadFigures {
    clients: ClientFigures,
    number: usize,
    seconds: Duration,
    slow_readers: usize,
    slow_bytes: u64,
    /// Slow readers whose streams the server ended.
    dropped: Vec<String>,
    /// Resident memory of the server at the start and in equal steps of time to the end.
    resident: Vec<u64>,
}

fn megabytes(bytes: u64) -> f64 {
    (bytes as f64 / 1_048_576.0 * 10.0).round() / 10.0
}

impl StreamFigures {
    fn kilobytes_each(&self) -> f64 {
        let more = self.after.saturating_sub(self.before) as f64 / 1_024.0;
        (more / self.opened.max(1) as f64 * 10.0).round() / 10.0
    }

    fn json(&self) -> Json {
        json!({
            "wanted": self.wanted,
            "opened": self.opened,
            "whyFewer": self.why_fewer,
            "residentMbBefore": megabytes(self.before),
            "residentMbWith": megabytes(self.after),
            "kbEach": self.kilobytes_each(),
            "openFiles": self.open_files,
        })
    }
}

impl LoadFigures {
    fn starts_per_second(&self) -> f64 {
        self.clients.start.len() as f64 / self.seconds.as_secs_f64()
    }

    /// Steps of the runs that were watched to their ends.
    fn steps_per_second(&self) -> f64 {
        self.clients.end.len() as f64 * STEPS as f64 / self.seconds.as_secs_f64()
    }

    fn json(&self) -> Json {
        let times = |times: &super::percentile::Times| json!({ "p50": times.percentile(50), "p99": times.percentile(99) });
        json!({
            "clients": self.number,
            "seconds": self.seconds.as_secs(),
            "startsPerSecond": self.starts_per_second().round(),
            "stepsPerSecond": self.steps_per_second().round(),
            "startMs": times(&self.clients.start),
            "firstStepMs": times(&self.clients.first_step),
            "endMs": times(&self.clients.end),
            "failures": self.clients.failures,
            "errors": self.clients.errors,
            "slowReaders": self.slow_readers,
            "slowReadersKb": self.slow_bytes / 1_024,
            "slowReadersDropped": self.dropped.len(),
            "residentMb": self.resident.iter().copied().map(megabytes).collect::<Vec<f64>>(),
        })
    }
}

impl ServerFigures {
    fn json(&self) -> Json {
        json!({
            "workload": "server",
            "streams": self.streams.as_ref().map(StreamFigures::json),
            "load": self.load.as_ref().map(LoadFigures::json),
        })
    }

    fn human(&self) -> String {
        let mut text = String::new();
        if let Some(it) = &self.streams {
            text += &format!(
                "server streams    {} of {} idle streams: {:.1} KB each ({:.1} MB without, {:.1} MB with them)\n",
                it.opened,
                it.wanted,
                it.kilobytes_each(),
                megabytes(it.before),
                megabytes(it.after)
            );
            if let Some(why) = &it.why_fewer {
                text += &format!("                  not more: {why}\n");
            }
        }
        if let Some(it) = &self.load {
            let resident = it.resident.iter();
            let resident: Vec<String> = resident
                .map(|it| format!("{:.0}", megabytes(*it)))
                .collect();
            let clients = &it.clients;
            let times = |name: &str, times: &super::percentile::Times| {
                let (p50, p99) = (times.percentile(50), times.percentile(99));
                format!("  {name:<16}{p50:.2} ms (p50), {p99:.2} ms (p99)\n")
            };
            text += &format!(
                "server load       {} clients for {} s: {:.0} starts/s, {:.0} steps/s, {} failures\n",
                it.number,
                it.seconds.as_secs(),
                it.starts_per_second(),
                it.steps_per_second(),
                clients.failures
            );
            text += &times("start", &clients.start);
            text += &times("first step", &clients.first_step);
            text += &times("end", &clients.end);
            text += &format!(
                "  memory          {} MB (every {:.0} s)\n",
                resident.join(", "),
                it.seconds.as_secs_f64() / f64::from(SAMPLES)
            );
            if it.slow_readers > 0 {
                text += &format!(
                    "  slow readers    {}, {} KB read, {} dropped\n",
                    it.slow_readers,
                    it.slow_bytes / 1_024,
                    it.dropped.len()
                );
            }
            for error in clients.errors.iter().chain(it.dropped.iter().take(5)) {
                text += &format!("  error           {error}\n");
            }
        }
        text
    }
}
