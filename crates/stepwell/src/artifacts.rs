//! `stepwell artifacts`: list, print and delete the artifacts of runs.

use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;
use stepwell_engine::MAX_CHILD_DEPTH;
use stepwell_engine::store::Store;
use stepwell_kernel::command::Actor;
use stepwell_kernel::time::Time;
use stepwell_worker::artifacts::{Pruned, Stored};
use tokio::runtime::{Builder, Runtime};

use crate::actor::{self, ActorArgs};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::progress::Progress;
use crate::runs::say;
use crate::store::StoreArgs;
use crate::term::{bytes, count};
use crate::work::{Data, DataArgs};
use stepwell_views::{RunView, artifact_ref};

/// List, print and delete artifacts (large results of steps)
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell artifacts list RUN
  stepwell artifacts get RUN artifact:runs/…/output > output.json      verified with its hash
  stepwell artifacts prune --older-than 30d --dry-run
  stepwell artifacts prune --older-than 30d

Results larger than 64 KiB are stored as artifacts, and the event log contains a reference with their
hash. `prune` deletes artifacts and step logs of ended runs that are older than AGE; with a tenant, only of
its runs. The event log stays; `get` then reports that the artifact was deleted.

Exit codes: 0 done, 1 run or artifact not found, or the store cannot be used, 2 wrong usage.")]
pub(crate) struct ArtifactsArgs {
    #[command(subcommand)]
    command: ArtifactsCommand,
}

#[derive(Debug, Subcommand)]
enum ArtifactsCommand {
    /// List the artifacts of a run
    List(RunArgs),
    /// Verify an artifact with its hash and print it
    Get(GetArgs),
    /// Delete artifacts and step logs of runs that ended long ago
    Prune(PruneArgs),
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: PlaceArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    actor: ActorArgs,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    on: CommonArgs,
}

#[derive(Debug, Args)]
struct GetArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    /// URI of the artifact, as shown by `list`
    #[arg(value_name = "URI")]
    uri: String,
    #[command(flatten)]
    on: CommonArgs,
}

#[derive(Debug, Args)]
struct PruneArgs {
    /// Minimum age: a number with the unit s, m, h or d
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Duration,
    /// Show what would be deleted, delete nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    on: CommonArgs,
}

fn age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a valid age; examples: 36h, 30d");
    let split = text.char_indices().next_back().map_or(0, |(at, _)| at);
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

pub(crate) fn run(args: &ArtifactsArgs) -> Result<Exit> {
    match &args.command {
        ArtifactsCommand::List(args) => list(args),
        ArtifactsCommand::Get(args) => get(args),
        ArtifactsCommand::Prune(args) => prune(args),
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

impl CommonArgs {
    fn data(&self, store: &StoreArgs) -> Result<Data> {
        self.data.open(&store.address()?)
    }
}

/// An artifact in the list.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactRow {
    uri: String,
    size_bytes: u64,
    modified: String,
}

fn list(args: &RunArgs) -> Result<Exit> {
    let (run, on) = (&args.run, &args.on);
    let rows = match on.store.place(&on.actor)? {
        Place::Store(store) => {
            RunView::read_as(&*store.read()?, run, &on.actor.actor(None)?)?;
            let found = runtime()?.block_on(on.data(store)?.artifacts.list(run))?;
            found.into_iter().map(row).collect()
        }
        Place::Server(server) => {
            let found = server.ask(|it| async move { it.artifacts(run).await })?;
            serde_json::from_value::<Vec<ArtifactRow>>(found)?
        }
    };
    let line = |row: &ArtifactRow| format!("{:>10}  {}\n", bytes(row.size_bytes), row.uri);
    let text = match rows.is_empty() {
        true => "the run has no artifacts".to_owned(),
        false => rows.iter().map(line).collect(),
    };
    say(on.output, text.trim_end(), &json!(rows))?;
    Ok(Exit::Ok)
}

fn row(artifact: Stored) -> ArtifactRow {
    let at = artifact.modified.duration_since(SystemTime::UNIX_EPOCH);
    let at = i64::try_from(at.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
    ArtifactRow {
        uri: artifact.uri,
        size_bytes: artifact.bytes,
        modified: Time(at).to_rfc3339(),
    }
}

fn get(args: &GetArgs) -> Result<Exit> {
    let (run, uri, on) = (&args.run, &args.uri, &args.on);
    let missing = || {
        anyhow!(
            "run {run} has no artifact {uri}; `stepwell artifacts list` shows the artifacts of a run"
        )
    };
    let bytes = match on.store.place(&on.actor)? {
        Place::Store(store) => {
            let view = RunView::read_as(&*store.read()?, run, &on.actor.actor(None)?)?;
            let reference = artifact_ref(&view, uri).ok_or_else(missing)?;
            runtime()?.block_on(on.data(store)?.artifacts.get(&reference))?
        }
        Place::Server(server) => {
            let found = server.ask(|it| async move { it.artifact(run, uri).await });
            match found {
                Err(error) if error.code() == "ARTIFACT_UNKNOWN" => return Err(missing()),
                found => found?.into(),
            }
        }
    };
    io::stdout()
        .write_all(&bytes)
        .context("the artifact cannot be written to standard output")?;
    Ok(Exit::Ok)
}

fn prune(args: &PruneArgs) -> Result<Exit> {
    let who = args.on.actor.actor(None)?;
    actor::may_act(&who, "deleting artifacts")?;
    let place = args.on.store.only_store(
        "`artifacts prune`",
        "a server deletes the runs that ended long ago by itself, with their artifacts: see [retention] in its \
         stepwell.toml",
    )?;
    let store = place.read()?;
    let data = args.on.data(place)?;
    let until = SystemTime::now()
        .checked_sub(args.older_than)
        .unwrap_or(SystemTime::UNIX_EPOCH);
    // If the state of a run is unknown, its artifacts are kept.
    let is_kept = |run_id: &str| is_open(&*store, run_id, &who).unwrap_or(true);
    let looking = Progress::of("looking at artifacts");
    let artifacts = runtime()?.block_on(data.artifacts.prune(is_kept, until, args.dry_run))?;
    looking.say("looking at logs");
    let logs = data.logs.prune(is_kept, until, args.dry_run)?;
    drop(looking);
    let words = |what: &str, pruned: Pruned| {
        format!(
            "{} of {what}, {}",
            count(pruned.objects as usize, "file"),
            bytes(pruned.bytes)
        )
    };
    let done = if args.dry_run {
        "would be deleted"
    } else {
        "deleted"
    };
    let text = format!(
        "{done}: {}; {}",
        words("artifacts", artifacts),
        words("logs", logs)
    );
    let json = json!({
        "dryRun": args.dry_run,
        "artifacts": { "objects": artifacts.objects, "bytes": artifacts.bytes },
        "logs": { "objects": logs.objects, "bytes": logs.bytes },
    });
    say(args.on.output, &text, &json)?;
    Ok(Exit::Ok)
}

/// Whether a run or one of its ancestors is open, or belongs to another tenant: a parent may still read the artifacts of
/// its child.
fn is_open(store: &dyn Store, run_id: &str, who: &Actor) -> Result<bool> {
    let mut run_id = run_id.to_owned();
    for _ in 0..=MAX_CHILD_DEPTH {
        if store.find(&run_id)?.is_none() {
            // The run is not in this store: the store was deleted, or the run belongs to another store.
            return Ok(true);
        }
        let view = RunView::read(store, &run_id)?;
        if !view.state.phase().is_ended() || !who.is_of(view.state.context()) {
            return Ok(true);
        }
        match view.state.parent() {
            Some(parent) => run_id = parent.run_id.clone(),
            None => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_a_unit() {
        assert_eq!(age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(age("90m"), Ok(Duration::from_secs(5_400)));
        for wrong in [
            "",
            "d",
            "30",
            "x d",
            "-1d",
            "1w",
            "99999999999999999999d",
            "é",
        ] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
