//! `stepwell worker`: the built-in tools in a process of their own. The server gives the tasks over HTTP; definitions,
//! artifacts and logs go through the server too. Secrets are resolved here.

mod carrier;
mod tools;

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use stepwell::data::Data;
use stepwell::settings::Settings;
use stepwell_client::protocol::ServedPair;
use stepwell_client::{Connection, LinkChange, WorkLoop, WorkOptions};
use stepwell_engine::rows::BUILT_IN;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use tokio::runtime::Builder;
use tokio::sync::Notify;

use crate::exit::Exit;
use crate::log;
use crate::place::ServerArgs;
use crate::work::{self, ConfigArgs};
use carrier::ThroughServer;
use tools::{GivenTasks, SentLines, Tools};

/// Execute steps of a server in this process: with the tools of this machine
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell serve --no-worker                               a server that leaves all steps to workers
  stepwell worker --server http://127.0.0.1:7117           a worker on the same machine
  stepwell token create w1 --role worker > worker.token
  stepwell worker --server https://stepwell.example --token-file worker.token --parallel 8

The worker asks the server for steps that the built-in tools execute, and runs them here: with the programs, files,
network and secrets of this machine. Large results and logs go to the server; with --artifacts, large results go
to a store that both can reach. Ctrl-C or SIGTERM drains the worker: steps under way have 10 seconds to
end, what is left is given back. Steps of a worker that dies are given to another one when their leases end.

The worker writes one line when it starts, and one for each change: connected, no connection, draining, drained. The
variable STEPWELL_LOG=info or debug shows more, for example each request that fails. Output of steps is in the logs of
their runs (`stepwell runs logs`).

Exit codes: 0 drained, 1 the server refuses the worker, 2 wrong usage.")]
pub(crate) struct WorkerArgs {
    /// Address of the server [default: the variable STEPWELL_SERVER]
    #[arg(long, value_name = "URL", conflicts_with = "profile")]
    server: Option<String>,
    /// The server of `[profiles.NAME]` in ~/.config/stepwell/config.toml or stepwell.toml [default: the variable
    /// STEPWELL_PROFILE]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// File with the API token of the worker [default: the variables STEPWELL_TOKEN and STEPWELL_TOKEN_FILE, else the
    /// token of the profile]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with certificates (PEM) to trust beside those of the system [default: the variable STEPWELL_CA, else `ca` of
    /// the profile]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Send the token also to an http:// address of another machine, where everyone on the way can read it
    #[arg(long)]
    allow_http: bool,
    /// Number of steps that are executed at the same time
    #[arg(long, value_name = "N", default_value = "16")]
    parallel: NonZeroU16,
    /// Name of this worker; no two workers share one [default: host and process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long a step belongs to this worker if the server hears nothing of it, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    lease: NonZeroU16,
    /// Location of large results, if this worker and the server can both reach it: s3://, gs://, az:// or a directory
    /// [default: through the server]
    #[arg(long, value_name = "URL")]
    artifacts: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) fn run(args: &WorkerArgs) -> Result<Exit> {
    let server = ServerArgs {
        server: args.server.clone(),
        profile: args.profile.clone(),
        token_file: args.token_file.clone(),
        ca: args.ca.clone(),
        allow_http: args.allow_http,
    };
    let (url, options) = server.for_worker()?;
    let connection = Connection::open(&url, options)?;
    let stop = Arc::new(Notify::new());
    let stopping = Arc::clone(&stop);
    ctrlc::set_handler(move || stopping.notify_one()).context("signals cannot be handled")?;
    let runtime = Builder::new_multi_thread()
        .thread_name("stepwell-worker")
        .enable_all()
        .build()?;
    runtime.block_on(work(args, connection, stop))?;
    log::line("drained");
    Ok(Exit::Ok)
}

async fn work(args: &WorkerArgs, connection: Connection, stop: Arc<Notify>) -> Result<()> {
    let given = Arc::<GivenTasks>::default();
    let artifacts = match &args.artifacts {
        Some(url) => Artifacts::open(url).context("the artifact store cannot be opened")?,
        None => Artifacts::carried(Arc::new(ThroughServer::new(&connection, &given))),
    };
    // Lines go to the server; what is written here is only on its way.
    let logs = Logs::temporary();
    let (sent_lines, asked) = SentLines::new();
    let forwarding = tokio::spawn(tools::forward(
        logs.subscribe(),
        asked,
        connection.clone(),
        Arc::clone(&given),
    ));
    let security = Settings::open(args.config.path())?.security.for_others();
    let crew = work::crew_on(Data { artifacts, logs }, security)?;
    let worker_id = args.name.clone().unwrap_or_else(own_name);
    let options = WorkOptions {
        worker_id: worker_id.clone(),
        serves: vec![ServedPair {
            queue: BUILT_IN.to_owned(),
            operation: "pipeline".to_owned(),
        }],
        parallel: args.parallel.get().into(),
        lease: Duration::from_secs(args.lease.get().into()),
        grace: Duration::from_secs(10),
    };
    let tools = Tools::new(connection.clone(), crew, given, sent_lines);
    log::line(&format!(
        "worker {worker_id} serves {BUILT_IN}/pipeline (the built-in tools) for {}, {} steps at a time",
        connection.url(),
        args.parallel
    ));
    let server = connection.url().to_owned();
    let ended = WorkLoop::new(connection, options, tools)
        .on_link(move |change| match change {
            LinkChange::Connected => log::line(&format!("connected to {server}")),
            LinkChange::Lost(why) => {
                log::line(&format!("no connection to {server}; trying again: {why}"));
            }
        })
        .run(async {
            stop.notified().await;
            log::line("draining: steps have 10 seconds to end");
        })
        .await;
    // The last lines have a moment to arrive.
    tokio::time::sleep(Duration::from_millis(200)).await;
    forwarding.abort();
    Ok(ended?)
}

/// A name that no other worker has.
fn own_name() -> String {
    let host = whoami::hostname().unwrap_or_else(|_| "host".to_owned());
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let host: String = host.chars().filter(|c| good(*c)).take(40).collect();
    let id = uuid::Uuid::now_v7().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &id[id.len() - 8..])
}
