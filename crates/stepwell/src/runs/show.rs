//! `stepwell runs show`: the steps of a run and what the run waits for.

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value as Json, json};
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::store::Store;
use stepwell_kernel::decide::open_token;
use stepwell_kernel::keys::TokenKey;

use crate::actor::{self, ActorArgs};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::run::report::{self, Ending};
use crate::run::tree::{self, Live};
use crate::store::StoreArgs;
use crate::term::{self, Paint, Tone, one_line, pad};
use stepwell_views::stuck::End;
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
    store: StoreArgs,
}

pub(super) fn run(args: &ShowArgs) -> Result<Exit> {
    let store = args.store.read()?;
    let view = RunView::read_as(&*store, &args.run, &args.actor.actor(None)?)?;
    let tokens = match args.tokens {
        true => tokens(&*store, &view)?,
        false => Vec::new(),
    };
    let text = match args.output {
        OutputFormat::Json => {
            let value = snapshot(&*store, &view, args.tokens.then_some(&tokens[..]))?;
            format!("{}\n", serde_json::to_string_pretty(&value)?)
        }
        OutputFormat::Human => {
            let below = ChildRuns::read(&*store, &view)?;
            let store = args.store.flag();
            drawing(&view, &below, store, &tokens, term::stdout_paint())
        }
    };
    term::print(&text)?;
    Ok(Exit::Ok)
}

fn tokens(store: &dyn Store, view: &RunView) -> Result<Vec<(String, String)>> {
    let key = TokenKey(store.secret()?);
    let (plan, state) = (&view.plan, &view.state);
    let token = |at| Some((plan.step_id(at), open_token(plan, state, at, &key)?));
    let open = state.open().iter();
    Ok(open.filter_map(|at| token(*at)).collect())
}

fn snapshot(
    store: &dyn Store,
    view: &RunView,
    tokens: Option<&[(String, String)]>,
) -> Result<Json> {
    let mut value = snapshot::snapshot(store, view, End::default(), &[])?;
    let reasons = why::reasons(view, SystemClock.now());
    value["ext"]["waitsFor"] = reasons.iter().map(why::Reason::json).collect();
    value["ext"]["startedBy"] = json!(view.state.context().triggered_by);
    value["ext"]["answers"] = people::acts(view).iter().map(people::Act::json).collect();
    value["ext"]["hasOwner"] = view.head.session.is_some().into();
    if let Some(tokens) = tokens {
        let pairs = tokens.iter().cloned();
        let map: Map<String, Json> = pairs.map(|(step, token)| (step, token.into())).collect();
        value["ext"]["tokens"] = map.into();
    }
    Ok(value)
}

fn drawing(
    view: &RunView,
    below: &ChildRuns,
    store: String,
    tokens: &[(String, String)],
    paint: Paint,
) -> String {
    let now = SystemClock.now();
    let children: Vec<Live<'_>> = below.views.iter().map(Live::of).collect();
    let mut text = tree::still(Live::of(view), &children, now, paint);
    let ending = Ending::shown(store);
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
    for reason in why::reasons(view, now) {
        fact("waits for", &reason.text);
    }
    match view.head.session {
        Some(_) => fact("owner", "a process that works on the run, or that crashed"),
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
