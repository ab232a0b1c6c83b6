//! `stepwell run` and `stepwell resume` on a server: the server has the engine, and this command starts the run, follows its
//! log, and shows it as a run of its own. Ctrl-C ends the command and not the run.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value as Json, json};
use stepwell::files::{Definition, Files, PlanRef};
use stepwell_client::ClientError;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::{Catalog as _, Clock as _};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;
use stepwell_views::stuck::End;
use stepwell_views::{ChildRuns, RunView, may_see};

use super::args::{GoArgs, ResumeArgs, RunArgs};
use super::resume::{self, Watermarks};
use super::server_follow::Following;
use super::supervise::starts_later;
use super::{check_usage, input, report, show_end, show_result, view, who};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::remote::Remote;
use crate::runs::Refused;
use crate::store::word;
use crate::{definition, log, term, usage};
use report::Ending;

/// How many open runs are looked at for one of the definition.
const CANDIDATES: usize = 200;

pub(super) fn run(args: &RunArgs, server: &Arc<Remote>) -> Result<Exit> {
    check_usage(&args.go)?;
    must_fit(&args.go)?;
    if args.virtual_time {
        return usage(
            "--virtual-time is not for a server, which has the real time; leave out --virtual-time or --server",
        );
    }
    if args.idle.idle {
        return usage(
            "--idle is not for a server, which waits for the triggers of its definitions by itself: register the \
             definition (POST /api/v1/definitions), and its trigger starts runs",
        );
    }
    let who = who(&args.go, "starting a run")?;
    args.start.check()?;
    let params = input::params(args.input_file.as_deref(), &args.input)?;
    let sent = match &args.plan_ref {
        Some(file) => SentDefinition::reference(file)?,
        None => match SentDefinition::text(args, &params)? {
            Some(sent) => sent,
            None => return Ok(Exit::Problems),
        },
    };
    if args.resume {
        let run = match (&args.run_id, &sent.plan) {
            (Some(run), _) => run.clone(),
            (None, Some(plan)) => latest(server, plan, who.tenant.clone())?,
            (None, None) => return usage("--resume needs a FILE"),
        };
        return go_on(&args.go, server, &run);
    }
    if let Some(plan) = &sent.plan {
        super::idle::note_trigger(args, plan);
        register_children(server, plan)?;
    }
    let asked = SystemClock.now();
    let start_at = args.start.start_at(asked)?;
    let started = start(
        args,
        server,
        &sent.json,
        &params,
        who.tenant.as_deref(),
        start_at,
    )?;
    if !started.created
        && let Some(request_id) = &args.start.request_id
    {
        log::line(&format!(
            "{} was started with the request id {} before; no other run is started",
            started.run_id,
            word(request_id)
        ));
        return go_on(&args.go, server, &started.run_id);
    }
    let later = start_at.filter(|at| started.created && *at > asked);
    if let Some(at) = later {
        log::line(&starts_later(at));
    }
    let told = later.is_some();
    follow(&args.go, server, &started.run_id, Watermarks::new(), told)
}

pub(super) fn resume(args: &ResumeArgs, server: &Arc<Remote>) -> Result<Exit> {
    check_usage(&args.go)?;
    must_fit(&args.go)?;
    who(&args.go, "continuing a run")?;
    go_on(&args.go, server, &args.run)
}

/// Refuses options of an engine: the server has its own.
fn must_fit(args: &GoArgs) -> Result<()> {
    let instead = "it is the server that executes the run";
    let wrong = [
        (
            "--engine mock",
            args.engine != "native",
            "simulate the run without --server",
        ),
        (
            "--sink",
            !args.sinks.is_empty(),
            "`stepwell sinks add` registers a sink with the server",
        ),
        (
            "--max-runs and --when-full",
            args.limits.are_given(),
            "the section [limits] of the server's stepwell.toml counts",
        ),
        ("--write-budget", args.write_budget.is_some(), instead),
        ("--artifacts", args.data.is_given(), instead),
    ];
    match wrong.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => usage(format!("{option} is not for a server: {why}")),
        None => Ok(()),
    }
}

/// The definition as the server gets it.
struct SentDefinition {
    json: Json,
    /// The plan, where the definition is here.
    plan: Option<Arc<Plan>>,
}

impl SentDefinition {
    /// The server fetches what the reference names, and checks its hash.
    fn reference(file: &str) -> Result<SentDefinition> {
        let text = match file {
            "-" => std::io::read_to_string(std::io::stdin()),
            file => std::fs::read_to_string(file),
        };
        let text = text.with_context(|| format!("the reference {file} cannot be read"))?;
        let read = serde_json::from_str::<Json>(&text);
        let reference = read.and_then(|it| PlanRef::deserialize(&it).map(|_| it));
        let reference = reference.map_err(|why| {
            let why = format!("this is not a reference to a definition: {why}");
            Refused(format!("PLAN_REF_MISMATCH: {why}"))
        })?;
        Ok(SentDefinition {
            json: json!({ "reference": reference }),
            plan: None,
        })
    }

    /// The text of the file. Its problems are shown here, as without a server; none if it cannot be used.
    fn text(args: &RunArgs, params: &Json) -> Result<Option<SentDefinition>> {
        let path = args.file.as_deref().unwrap_or_default();
        let mut definition = Definition::open(path);
        definition.look_at_input(params);
        definition.look_at_engine("native");
        let problems = definition::problems(&definition, term::stderr_paint());
        std::io::Write::write_all(&mut std::io::stderr(), problems.as_bytes())?;
        if args.go.output == OutputFormat::Json {
            definition::tell_program(&definition);
        }
        let text = definition.source.text().to_owned();
        let Ok(plan) = definition.into_plan() else {
            return Ok(None);
        };
        let json = json!({ "text": text, "file": file_name(path) });
        Ok(Some(SentDefinition {
            json,
            plan: Some(Arc::new(plan)),
        }))
    }
}

/// The path of a file as the server may know it: below the folder of this command, else its name.
fn file_name(path: &str) -> Option<String> {
    let is_below = |path: &str| path.split('/').all(|part| !["", ".", ".."].contains(&part));
    let is_plain = |path: &str| !path.contains([':', '\\']) && !path.chars().any(char::is_control);
    let path = path.strip_prefix("./").unwrap_or(path);
    if path == "-" {
        return None;
    }
    let name = match is_below(path) {
        true => path.to_owned(),
        false => Path::new(path).file_name()?.to_str()?.to_owned(),
    };
    Some(name).filter(|it| is_plain(it))
}

/// Registers the definitions of child runs that are found here and that the server does not have. What the server has is
/// never replaced by a run.
fn register_children(server: &Remote, plan: &Arc<Plan>) -> Result<()> {
    let files = Files::default();
    let mut seen = vec![plan.net().plan_id.clone()];
    let mut next = vec![Arc::clone(plan)];
    while let Some(plan) = next.pop() {
        for path in stepwell_dialects::children::called(&plan) {
            let Some(child) = files.find(&plan, path) else {
                // The server may know it; else the step fails there, as it would here.
                continue;
            };
            let name = child.net().plan_id.clone();
            if seen.contains(&name) {
                continue;
            }
            let source = &child.net().source;
            let file = source.uri.strip_prefix("file:").unwrap_or_default();
            let known = {
                let name = &name;
                server.ask(|it| async move { it.definition_sha256(name).await })?
            };
            match known {
                None => {
                    let text = std::fs::read_to_string(file)
                        .with_context(|| format!("the definition {file} cannot be read"))?;
                    let (text, called) = (&text, &file_name(file));
                    server
                        .ask(|it| async move { it.register(text, called.as_deref()).await })
                        .with_context(|| {
                            format!("the child definition {name} cannot be registered")
                        })?;
                    log::line(&format!(
                        "registered the child definition {} ({file})",
                        word(&name)
                    ));
                }
                Some(known) if known == source.sha256 => {}
                Some(_) => log::line(&format!(
                    "note: the server has another revision of the child definition {}, which counts; register {file} to \
                     change it",
                    word(&name)
                )),
            }
            seen.push(name);
            next.push(child);
        }
    }
    Ok(())
}

fn start(
    args: &RunArgs,
    server: &Remote,
    definition: &Json,
    params: &Json,
    tenant: Option<&str>,
    start_at: Option<Time>,
) -> Result<stepwell_client::StartedRun> {
    let mut body =
        json!({ "definition": definition, "params": params, "priority": args.start.priority });
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    let labels = args.start.labels()?;
    set("labels", (!labels.is_empty()).then(|| json!(labels)));
    set("startAt", start_at.map(|at| at.to_rfc3339().into()));
    set("tenant", tenant.map(Into::into));
    set("runId", args.run_id.clone().map(Into::into));
    // A request whose answer is lost is made again: its id keeps it from starting a second run.
    let fresh = || format!("cli-{}", uuid::Uuid::now_v7());
    let request_id = match (&args.start.request_id, &args.run_id) {
        (Some(id), _) => Some(id.clone()),
        (None, Some(_)) => None,
        (None, None) => Some(fresh()),
    };
    set("requestId", request_id.map(Into::into));
    let (body, asked) = (&body, std::cell::Cell::new(0));
    let started = server.ask(|it| {
        asked.set(asked.get() + 1);
        async move { it.start(body).await }
    });
    match started {
        // The server took the first request and its answer was lost.
        Err(ClientError::Refused { code, .. })
            if code == Code::RunExists.name() && asked.get() > 1 =>
        {
            Ok(stepwell_client::StartedRun {
                run_id: args.run_id.clone().unwrap_or_default(),
                created: true,
                run: None,
            })
        }
        started => started.context("the run cannot be started"),
    }
}

/// The latest run of a definition that has not ended: of exactly this one, else of one with its name.
fn latest(server: &Arc<Remote>, plan: &Plan, tenant: Option<String>) -> Result<String> {
    let plan_id = &plan.net().plan_id;
    let filters = &[
        ("plan", Some(plan_id.clone())),
        ("tenant", tenant),
        ("open", Some("true".to_owned())),
        ("limit", Some(CANDIDATES.to_string())),
    ];
    let page = server.ask(|it| async move { it.list(filters).await })?;
    let runs = page["runs"].as_array().into_iter().flatten();
    // A child goes on with its parent.
    let own = runs.filter(|it| it.get("parentRunId").is_none());
    let ids: Vec<&str> = own.filter_map(|it| it["runId"].as_str()).collect();
    resume::choose(&**server, plan, &ids)?.map_or_else(
        || {
            usage(format!(
                "{} has no run of {plan_id} that has not ended; without --resume a new one is started",
                server.url()
            ))
        },
        |found| Ok(found.state.run_id().to_owned()),
    )
}

/// Follows a run that is under way, or shows how it ended.
fn go_on(args: &GoArgs, server: &Arc<Remote>, run: &str) -> Result<Exit> {
    let found = RunView::read(&**server, run)?;
    may_see(
        &args.actor.actor(args.config.path())?,
        found.state.context(),
    )?;
    if found.state.phase().is_ended() {
        show_end(args, &**server, Some(server.flag()), &found)?;
        return Ok(report::exit(&found.state, &End::Over));
    }
    let below = ChildRuns::read(&**server, &found)?;
    let known = resume::watermarks(&found, &below);
    follow(args, server, run, known, false)
}

/// Follows a run to its end. `told`: the user knows that it starts later.
fn follow(
    args: &GoArgs,
    server: &Arc<Remote>,
    run: &str,
    known: Watermarks,
    told: bool,
) -> Result<Exit> {
    let mut following = Following::begin(args, server, run, view(args, run, known))?;
    following.told_queued = told;
    let end = following.until_end().with_context(|| {
        format!(
            "the run goes on in the server; follow it with `{}`",
            args.resume_command(run)
        )
    })?;
    following
        .view
        .finish(&following.follower, SystemClock.now())?;
    let mut notes = Vec::new();
    if end == End::Interrupted {
        notes.push(format!(
            "the run goes on in the server; `stepwell runs cancel {}{}` ends it",
            word(run),
            server.flag()
        ));
    }
    let ending = Ending {
        end,
        notes,
        is_virtual: false,
        go_on: Some(args.resume_command(run)),
        kept: Some(server.flag()),
        tail: None,
        only_shown: false,
    };
    show_result(args, &**server, &following.follower, ending)
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn a_server_learns_no_path_outside_of_the_folder_of_the_command() {
        let name = |path: &str| file_name(path);
        assert_eq!(name("./flows/a.yaml").as_deref(), Some("flows/a.yaml"));
        assert_eq!(name("/srv/flows/a.yaml").as_deref(), Some("a.yaml"));
        assert_eq!(name("../a.yaml").as_deref(), Some("a.yaml"));
        assert_eq!(name("-"), None);
        assert_eq!(name("a:b.yaml"), None);
    }
}
