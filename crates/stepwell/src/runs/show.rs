//! `stepwell runs show`: a run with its steps, and why it is not moving.

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value as Json};
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::store::Store;
use stepwell_kernel::decide::open_token;
use stepwell_kernel::keys::TokenKey;

use super::why;
use crate::exit::Exit;
use crate::picture::{Below, Picture};
use crate::run::report::{self, Ending};
use crate::run::tree::{self, Live};
use crate::run::{Output, wire};
use crate::store::StoreArgs;
use crate::term::{self, Paint, Tone, one_line, pad};

/// A run with its steps, and why it is not moving
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs show RUN
  stepwell runs show RUN --tokens             with the tokens that people complete steps with
  stepwell runs show RUN -o json | jq '.ext.waitsFor'")]
pub(super) struct ShowArgs {
    /// The run's id
    #[arg(value_name = "RUN")]
    run: String,
    /// Show the completion tokens of steps that wait for people: whoever has one may answer
    #[arg(long)]
    tokens: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(args: &ShowArgs) -> Result<Exit> {
    let store = args.store.read()?;
    let picture = Picture::read(&*store, &args.run)?;
    let tokens = match args.tokens {
        true => tokens(&*store, &picture)?,
        false => Vec::new(),
    };
    let text = match args.output {
        Output::Json => {
            let value = json(&picture, args.tokens.then_some(&tokens[..]))?;
            format!("{}\n", serde_json::to_string_pretty(&value)?)
        }
        Output::Human => {
            let below = Below::read(&*store, &picture)?;
            let store = args.store.flag();
            drawing(&picture, &below, store, &tokens, term::stdout_paint())
        }
    };
    term::print(&text)?;
    Ok(Exit::Ok)
}

fn tokens(store: &dyn Store, picture: &Picture) -> Result<Vec<(String, String)>> {
    let key = TokenKey(store.secret()?);
    let (plan, state) = (&picture.plan, &picture.state);
    let token = |at| Some((plan.step_id(at), open_token(plan, state, at, &key)?));
    let open = state.open.iter();
    Ok(open.filter_map(|at| token(*at)).collect())
}

fn json(picture: &Picture, tokens: Option<&[(String, String)]>) -> Result<Json> {
    let (plan, state) = (&picture.plan, &picture.state);
    let mut value = wire::snapshot(plan, state, &picture.events, &Ending::default())?;
    let reasons = why::reasons(picture, SystemClock.now());
    value["ext"]["waitsFor"] = reasons.iter().map(why::Reason::json).collect();
    value["ext"]["hasOwner"] = picture.head.session.is_some().into();
    if let Some(tokens) = tokens {
        let pairs = tokens.iter().cloned();
        let map: Map<String, Json> = pairs.map(|(step, token)| (step, token.into())).collect();
        value["ext"]["tokens"] = map.into();
    }
    Ok(value)
}

fn drawing(
    picture: &Picture,
    below: &Below,
    store: String,
    tokens: &[(String, String)],
    paint: Paint,
) -> String {
    let now = SystemClock.now();
    let children: Vec<Live<'_>> = below.pictures.iter().map(Picture::live).collect();
    let mut text = tree::still(picture.live(), &children, now, paint);
    let ending = Ending::shown(store);
    text.push_str(&report::summary(picture.live(), &children, &ending, paint));
    let mut fact = |name: &str, value: &str| {
        let name = paint.tone(Tone::Dim, &pad(name, 12));
        text.push_str(&format!("  {name}  {}\n", one_line(value)));
    };
    fact("created", &picture.state.created_at.to_rfc3339());
    if picture.state.phase.is_ended() {
        return text;
    }
    for reason in why::reasons(picture, now) {
        fact("waits for", &reason.text);
    }
    match picture.head.session {
        Some(_) => fact("held by", "a process that works on it, or did when it died"),
        None => fact("held by", "nobody"),
    }
    for (step, token) in tokens {
        fact("token", &format!("{step}  {token}"));
    }
    text
}
