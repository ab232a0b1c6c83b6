//! `stepwell serve`: the server, until it is told to stop.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use stepwell::files::{FetchedDefinition, Files};
use stepwell::settings::Settings;
use stepwell_dialects::Problem;
use stepwell_dialects::plan::reference::PlanRef;
use stepwell_engine::store::{Patience, PatientStore};
use stepwell_server::{Access, FetchPlan, FetchedPlan, PORT, Server, ServerParts, ServerSettings};
use stepwell_stores::OpenMode;

use crate::exit::Exit;
use crate::store::StoreArgs;
use crate::work::{self, ConfigArgs, DataArgs};
use crate::{explain, log, usage};

/// Serve the HTTP API, and work on all runs of the store
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell serve
  stepwell serve --listen 127.0.0.1:8080 --store postgresql://stepwell@db/stepwell
  curl -s localhost:7117/api/v1/runs | jq
  curl -s localhost:7117/api/openapi.json

The server works on all runs of the store: it continues runs, fires timers, and executes steps with the tools of
this machine. Any number of servers can share one PostgreSQL store. Ctrl-C or SIGTERM stops the server: requests
and steps have 10 seconds to end, what is left is given back and continued by the next server.

A server without access control listens on this machine only (127.0.0.1, ::1).

Exit codes: 0 stopped, 1 the store cannot be used or the address is taken, 2 wrong usage.")]
pub(crate) struct ServeArgs {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = default_address())]
    listen: SocketAddr,
    /// Number of steps that are executed at the same time
    #[arg(long, value_name = "N", default_value = "32")]
    parallel: NonZeroU16,
    /// Execute no steps here: leave them to workers elsewhere
    #[arg(long)]
    no_worker: bool,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// How often who serves looks around.
const LOOK: Duration = Duration::from_secs(1);

fn default_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], PORT))
}

pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    until_stopped(args, |_| Ok(()))
}

/// Serves until a signal comes. `look` is called when the server has started, and then every second.
pub(crate) fn until_stopped(
    args: &ServeArgs,
    mut look: impl FnMut(&Server) -> Result<()>,
) -> Result<Exit> {
    if !args.listen.ip().is_loopback() {
        return usage(format!(
            "{} can be reached by others, and the server has no access control; listen on 127.0.0.1 or ::1",
            args.listen
        ));
    }
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        // Nobody waits any more if the server has stopped by itself.
        let _ = stop.send(());
    })
    .context("signals cannot be handled")?;
    let server = start(args)?;
    log::line(&format!("serving on http://{}", server.address()));
    loop {
        look(&server)?;
        // The handler lives as long as the process, so there is always a sender.
        if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    log::line("stopping: requests and steps have 10 seconds to end");
    server.stop()?;
    log::line("stopped");
    Ok(Exit::Ok)
}

fn start(args: &ServeArgs) -> Result<Server> {
    let settings = Settings::open(args.config.path())?;
    let address = args.store.address()?;
    let open = args.store.open(&address, OpenMode::Own)?;
    let data = args.data.open(&address)?;
    let crew = match args.no_worker {
        true => None,
        false => Some(work::crew(data.clone(), &args.config)?),
    };
    let store = open.store();
    let scrubbed = store.capabilities().durable.then(|| Arc::clone(&store));
    // A server never gives a store up: it says so, and goes on when the store is back.
    let patience = Arc::new(Patience::new(None, stepwell_engine::store::LogWaits));
    Ok(Server::start(ServerParts {
        store: Arc::new(PatientStore::new(store, patience)),
        scrubbed,
        artifacts: data.artifacts,
        logs: data.logs,
        crew,
        parallel: args.parallel.get().into(),
        limits: settings.limits.0.clone(),
        catalog: Box::new(Files::default()),
        error_page: explain::page,
        settings: ServerSettings {
            listen: args.listen,
            access: Access::Open,
            retention: settings.retention.0.clone(),
            ..ServerSettings::default()
        },
        fetch: Arc::new(FetchAllowed(settings)),
    })?)
}

/// Fetches the definitions that the configuration allows.
#[derive(Debug)]
struct FetchAllowed(Settings);

impl FetchPlan for FetchAllowed {
    fn fetch(&self, reference: &PlanRef) -> Result<FetchedPlan, Vec<Problem>> {
        let fetched = FetchedDefinition::fetch(reference, &self.0);
        match fetched.definition.into_plan() {
            Ok(plan) => Ok(FetchedPlan {
                plan,
                changed: fetched.changed,
            }),
            Err(error) => Err(error.problems().to_vec()),
        }
    }
}
