//! `stepwell runs show`: the steps of a run and what the run waits for.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value as Json};
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::read::RunSource;
use stepwell_kernel::keys::TokenKey;

use crate::actor::{self, ActorArgs};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::run::report::{self, Ending};
use crate::run::tree::{self, Live};
use crate::term::{self, Paint, Tone, one_line, pad};
use stepwell_views::{ChildRuns, RunView};
use stepwell_views::{people, snapshot, why};

/// Show the steps of a run and what the run waits for
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs show RUN
  stepwell runs show RUN --tokens             with the completion tokens of manual steps
  stepwell runs show RUN -o json | jq '.ext.waitsFor'")]
pub(super) struct ShowArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    /// Show the completion tokens of manual steps; a token allows its holder to complete the step
    #[arg(long)]
    tokens: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    actor: ActorArgs,
    #[command(flatten)]
    store: PlaceArgs,
}

pub(super) fn run(args: &ShowArgs) -> Result<Exit> {
    let place = args.store.place(&args.actor)?;
    let runs: Arc<dyn RunSource> = match &place {
        Place::Store(store) => store.read()?,
        Place::Server(server) => Arc::clone(server) as _,
    };
    let view = RunView::read_as(&*runs, &args.run, &args.actor.actor(None)?)?;
    let tokens = match (args.tokens, &place) {
        (false, _) => Vec::new(),
        (true, Place::Store(store)) => people::tokens(&view, &TokenKey(store.read()?.secret()?)),
        (true, Place::Server(server)) => {
            let run = &args.run;
            let tokens = server.ask(|it| async move { it.completion_tokens(run).await })?;
            tokens.into_iter().collect()
        }
    };
    let text = match args.output {
        OutputFormat::Json => {
            let shown = snapshot::shown(&*runs, &view, SystemClock.now(), &[])?;
            let mut value = serde_json::to_value(shown)?;
            if let Place::Server(server) = &place {
                value["ext"]["waitsFor"] = server.waits_for(&args.run)?.into();
            }
            if args.tokens {
                let pairs = tokens.into_iter();
                let map: Map<String, Json> = pairs.map(|(step, it)| (step, it.into())).collect();
                value["ext"]["tokens"] = map.into();
            }
            format!("{}\n", serde_json::to_string_pretty(&value)?)
        }
        OutputFormat::Human => {
            let below = ChildRuns::read(&*runs, &view)?;
            let flag = args.store.flag();
            let waits_for = match (&place, view.state.phase().is_ended()) {
                (_, true) | (Place::Store(_), false) => None,
                (Place::Server(server), false) => Some(server.waits_for(&args.run)?),
            };
            drawing(
                &view,
                &below,
                (flag, waits_for),
                &tokens,
                term::stdout_paint(),
            )
        }
    };
    term::print(&text)?;
    Ok(Exit::Ok)
}

fn drawing(
    view: &RunView,
    below: &ChildRuns,
    (flag, on_server): (String, Option<Vec<Json>>),
    tokens: &[(String, String)],
    paint: Paint,
) -> String {
    let now = SystemClock.now();
    let children: Vec<Live<'_>> = below.views.iter().map(Live::of).collect();
    let mut text = tree::still(Live::of(view), &children, now, paint);
    let ending = Ending::shown(flag);
    text.push_str(&report::summary(Live::of(view), &children, &ending, paint));
    let mut fact = |name: &str, value: &str| {
        let name = paint.tone(Tone::Dim, &pad(name, 12));
        text.push_str(&format!("  {name}  {}\n", one_line(value)));
    };
    fact("created", &view.state.created_at().to_rfc3339());
    let context = view.state.context();
    if let Some(by) = &context.triggered_by {
        fact("started by", by);
    }
    if context.tenant_id != actor::LOCAL {
        fact("tenant", &context.tenant_id);
    }
    for act in people::acts(view) {
        fact("answer", &act.text());
    }
    for unknown in view.unknown_to_this_version() {
        fact("newer", &unknown);
    }
    if view.state.phase().is_ended() {
        return text;
    }
    let has_server = on_server.is_some();
    let waits_for: Vec<String> = match on_server {
        Some(reasons) => {
            let text = |reason: &Json| reason["text"].as_str().unwrap_or_default().to_owned();
            reasons.iter().map(text).collect()
        }
        None => {
            let reasons = why::reasons(view, now, &[]).into_iter();
            reasons.map(|it| it.text()).collect()
        }
    };
    for text in waits_for {
        fact("waits for", &text);
    }
    match view.head.session {
        _ if has_server => {
            let how = match outside(view) {
                Some((engine, _)) => format!(
                    "{engine} and a server that serves it; `stepwell engines --server URL` lists the engines of a server"
                ),
                None => "the server, which goes on with the run by itself".to_owned(),
            };
            fact("owner", &how);
        }
        Some(_) => fact("owner", "a process that works on the run, or that crashed"),
        None if let Some((engine, address)) = outside(view) => {
            let run = view.state.run_id();
            let how = format!(
                "{engine} moves the run while a process serves it for this store; if none does: \
                 `stepwell resume {run} --engine {address}`"
            );
            fact("owner", &how);
        }
        None => {
            let run = view.state.run_id();
            // A run that only waits has no owner, also while a process waits with it.
            let how = format!(
                "no process has the run now; a process that waits for it takes it up by itself, else \
                 `stepwell resume {run}`"
            );
            fact("owner", &how);
        }
    }
    for (step, token) in tokens {
        fact("token", &format!("{step}  {token}"));
    }
    text
}

/// The engine outside that moves a run, as people call it, and the form of its address.
fn outside(view: &RunView) -> Option<(&'static str, &'static str)> {
    match view.state.engine()? {
        "temporal" => Some(("Temporal", "temporal://HOST:PORT/NAMESPACE")),
        "conductor" => Some(("Conductor", "conductor+http://HOST:PORT/api")),
        _ => None,
    }
}
