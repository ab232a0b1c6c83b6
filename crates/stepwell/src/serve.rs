//! `stepwell serve`: the server, until it is told to stop.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use stepwell::files::{FetchedDefinition, Files};
use stepwell::server_settings::{AccessWord, ServerSection, listen_address};
use stepwell::settings::Settings;
use stepwell_dialects::Problem;
use stepwell_dialects::plan::reference::PlanRef;
use stepwell_engine::EngineRoutes;
use stepwell_engine::port::NoCatalog;
use stepwell_engine::store::{Patience, PatientStore, Store};
use stepwell_server::{
    Access, FetchPlan, FetchedPlan, PORT, ServedEngines, Server, ServerError, ServerParts,
    ServerSettings, TokenBook,
};
use stepwell_stores::OpenMode;

use crate::exit::Exit;
use crate::served_engines::{self, EnginesOfServer};
use crate::store::StoreArgs;
use crate::work::{self, ConfigArgs, Data, DataArgs};
use crate::{explain, file_limit, log, usage};

/// Serve the HTTP API, and work on all runs of the store
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell serve
  stepwell serve --listen 127.0.0.1:8080 --store postgresql://stepwell@db/stepwell
  stepwell token create ada --role admin && stepwell serve --access tokens --listen 0.0.0.0:7117
  curl -s localhost:7117/api/v1/runs | jq
  curl -s localhost:7117/api/openapi.json

The server works on all runs of the store: it continues runs, fires timers, and executes steps with the tools of
this machine. Any number of servers can share one PostgreSQL store. Ctrl-C or SIGTERM stops the server: requests
and steps have 10 seconds to end, what is left is given back and continued by the next server.

A server without access control listens on this machine only (127.0.0.1, ::1). Access control, TLS and an OIDC
issuer are set up in the section [server] of stepwell.toml: docs/access.md. The variables STEPWELL_LISTEN and
STEPWELL_ACCESS come before the file, and the options before the variables.

GET /metrics is for Prometheus. Traces go to the collector of OpenTelemetry that [telemetry] or the variable
OTEL_EXPORTER_OTLP_ENDPOINT names. `--log-format json` writes log lines as JSON. docs/deploy.md has files for
systemd, containers, Prometheus and Grafana, and says how to back up and upgrade.

Exit codes: 0 stopped, 1 the store cannot be used or the address is taken, 2 wrong usage.")]
pub(crate) struct ServeArgs {
    /// Address and port to listen on [default: the variable STEPWELL_LISTEN, else `[server] listen`, else
    /// 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Who may use the server [default: the variable STEPWELL_ACCESS, else `[server] access`, else open]
    #[arg(long, value_enum)]
    access: Option<AccessChoice>,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AccessChoice {
    /// Everyone on this machine, with every right
    Open,
    /// Holders of tokens
    Tokens,
}

impl From<AccessChoice> for AccessWord {
    fn from(choice: AccessChoice) -> AccessWord {
        match choice {
            AccessChoice::Open => AccessWord::Open,
            AccessChoice::Tokens => AccessWord::Tokens,
        }
    }
}

/// How the server listens: options first, then variables, then the file.
fn listens(args: &ServeArgs, settings: &Settings) -> Result<ServerSettings> {
    let section: &ServerSection = &settings.server;
    let set = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    let listen = match (args.listen, set(LISTEN)) {
        (Some(listen), _) => Some(listen),
        (None, None) => section.listen,
        (None, Some(text)) => match listen_address(&text) {
            Ok(listen) => Some(listen),
            Err(help) => return usage(format!("the variable {LISTEN} is {text:?}; {help}")),
        },
    };
    let word = match (args.access, set(ACCESS)) {
        (Some(choice), _) => Some(choice),
        (None, None) => None,
        (None, Some(text)) => match AccessChoice::from_str(&text, false) {
            Ok(choice) => Some(choice),
            Err(_) => {
                return usage(format!(
                    "the variable {ACCESS} is {text:?}; write open or tokens"
                ));
            }
        },
    };
    let access = section.access(word.map(AccessWord::from));
    let listen = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], PORT)));
    let telemetry = settings.telemetry.settings(set);
    let telemetry = match telemetry {
        Ok(telemetry) => telemetry,
        Err(message) => return usage(message),
    };
    let plans = settings.metrics.plans.map(usize::from);
    let default = section.limited(ServerSettings::default());
    let settings = ServerSettings {
        listen,
        telemetry,
        metric_plans: plans.unwrap_or(default.metric_plans),
        rate: section.rates(&access),
        access,
        tls: section.tls.clone(),
        ..default
    };
    if settings.is_exposed() {
        return usage(format!(
            "{listen} can be reached by others, and the server has no access control: set `access = \"tokens\"` in the \
             section [server] of stepwell.toml (or --access tokens) and create a token with `stepwell token create`, or \
             listen on 127.0.0.1 or ::1"
        ));
    }
    if !listen.ip().is_loopback() && settings.tls.is_none() {
        log::line(&format!(
            "warning: {listen} can be reached by others without TLS: tokens can be read on the way; set `cert` and `key` in \
             [server.tls], or put a proxy with TLS before the server"
        ));
    }
    Ok(settings)
}

/// The environment variables for a server without the options.
const LISTEN: &str = "STEPWELL_LISTEN";
const ACCESS: &str = "STEPWELL_ACCESS";

/// How often who serves looks around.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &ServeArgs) -> Result<Exit> {
    until_stopped(args, Whose::Everyones, |_| Ok(()))
}

/// Whose definitions a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of the person who started it, if nobody else reaches it.
    Own,
    Everyones,
}

/// Serves until a signal comes. `look` is called when the server has started, and then every second.
pub(crate) fn until_stopped(
    args: &ServeArgs,
    whose: Whose,
    mut look: impl FnMut(&Server) -> Result<()>,
) -> Result<Exit> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        // Nobody waits any more if the server has stopped by itself.
        let _ = stop.send(());
    })
    .context("signals cannot be handled")?;
    let mut settings = Settings::open(args.config.path())?;
    log::format_of(&settings);
    let listens = listens(args, &settings)?;
    secured(&mut settings, &listens, whose);
    let scheme = match listens.tls {
        Some(_) => "https",
        None => "http",
    };
    // Each connection is an open file.
    file_limit::raise();
    let notice = settings.server.stop_notice;
    let server = start(args, settings, listens)?;
    log::line(&format!("serving on {scheme}://{}", server.address()));
    loop {
        look(&server)?;
        // The handler lives as long as the process, so there is always a sender.
        if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    if !notice.is_zero() {
        server.will_stop();
        log::line(&format!(
            "stopping in {} s: /readyz says so meanwhile; a second signal stops now",
            notice.as_secs()
        ));
        let _ = stopped.recv_timeout(notice);
    }
    log::line("stopping: requests and steps have 10 seconds to end");
    server.stop()?;
    log::line("stopped");
    Ok(Exit::Ok)
}

/// Definitions of others reach only what is opened for them. A person who develops on a machine is alone there.
fn secured(settings: &mut Settings, listens: &ServerSettings, whose: Whose) {
    let is_open = matches!(listens.access, Access::Open) && listens.listen.ip().is_loopback();
    match whose {
        Whose::Own if is_open => {}
        Whose::Own | Whose::Everyones => {
            settings.security = std::mem::take(&mut settings.security).for_others();
        }
    }
}

fn start(args: &ServeArgs, settings: Settings, listens: ServerSettings) -> Result<Server> {
    let address = args.store.address()?;
    // A port that is taken is told at once, and not after waiting for a store that the same process has.
    let listen = listens.listen;
    if let Err(source) = TcpListener::bind(listen) {
        return Err(ServerError::Listen {
            address: listen,
            source,
        }
        .into());
    }
    let open = args.store.open(&address, OpenMode::Own)?;
    let data = args.data.open(&address)?;
    let crew = match args.no_worker {
        true => None,
        false => Some(work::crew(data.clone(), settings.security.clone())?),
    };
    let store = open.store();
    let engines = engines(args, &settings, &*store, &data)?;
    if matches!(listens.access, Access::Controlled { .. })
        && TokenBook(&*store).list(None, None)?.is_empty()
    {
        log::line(&format!(
            "the store has no token yet; `stepwell token create NAME --role admin{}` creates one",
            args.store.flag()
        ));
    }
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
        catalog: match settings.security.is_confined() {
            // Files of the server are no definitions of a tenant.
            true => Box::new(NoCatalog),
            false => Box::new(Files::default()),
        },
        error_page: explain::page,
        engines: engines.1.map(|it| Arc::new(it) as Arc<dyn ServedEngines>),
        settings: ServerSettings {
            engines: Arc::new(engines.0),
            tools: settings.security.tools.clone(),
            webhook_hosts: Arc::new(settings.security.http_rules()),
            confined: settings.security.is_confined(),
            retention: settings.retention.0.clone(),
            ..listens
        },
        fetch: Arc::new(FetchAllowed(settings)),
    })?)
}

/// Which definitions run on engines outside, and these engines.
fn engines(
    args: &ServeArgs,
    settings: &Settings,
    store: &dyn Store,
    data: &Data,
) -> Result<(EngineRoutes, Option<EnginesOfServer>)> {
    let section = &settings.engines;
    if section.engines.is_empty() {
        return Ok((EngineRoutes::default(), None));
    }
    served_engines::check(section)?;
    if args.no_worker {
        return usage(
            "--no-worker leaves all steps to workers elsewhere, and this server is the worker of the engines in [engines]: leave \
             out one of both"
                .to_owned(),
        );
    }
    if !store.capabilities().durable {
        return usage(
            "the engines in [engines] need a store that outlives this process: use SQLite or PostgreSQL"
                .to_owned(),
        );
    }
    let routes = served_engines::routes(section, store)?;
    let parallel = args.parallel.get().into();
    let crew = || work::crew(data.clone(), settings.security.clone());
    let engines = EnginesOfServer::new(section, &routes, parallel, crew)?;
    Ok((routes, Some(engines)))
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
