//! `stepwell db`: migrates, checks, backs up and restores the store.

mod backup;
mod check;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::NoServerArgs;
use crate::progress::Progress;
use crate::runs::say;
use crate::store::StoreArgs;
use stepwell_stores::{Address, OpenMode};

/// Migrate, check, back up or restore the store
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell db check
  stepwell db check --store postgresql://me@db/stepwell -o json
  stepwell db migrate                         create the store, or update its schema
  stepwell db protect                         take the rights of other users away
  stepwell db backup /backup/monday.db        copy the store while a server works on it
  stepwell db restore /backup/monday.db --store sqlite:new/stepwell.db

`check` runs the integrity check of the database, verifies the hash chain of every run, compares the rows
with the logs, with each other and, on SQLite, with the tallies of their tables, and looks for open runs
that no timer, task, message or person can continue. `check` also works while another process owns the store.

`check --repair` makes rows anew that follow from the logs, puts runs with a damaged log into quarantine,
and releases runs that are whole again. Rows that follow from no log are taken as they are. It needs the store for itself and keeps a copy of a SQLite file.

`backup` copies a SQLite store as it is at one moment, checks the copy, and gives it its name when it is on
the disk. Copy the folders of artifacts and logs after it. `restore` makes a store from such a copy; neither
replaces a file. For PostgreSQL use pg_dump, or the backups of your provider: docs/deploy.md.

Exit codes: 0 no problems, 1 problems found or the store cannot be used, 2 wrong usage.")]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    command: DbCommand,
}

#[derive(Debug, Subcommand)]
enum DbCommand {
    /// Create or update the tables; existing data is kept
    Migrate(CommonArgs),
    /// Let only the owner of a SQLite store read and write its files
    Protect(CommonArgs),
    /// Check for damage and for open runs that nothing can continue
    Check(CheckArgs),
    /// Copy a SQLite store to a file, also while a server works on it
    Backup(backup::CopyArgs),
    /// Make a SQLite store from a copy that `backup` has made
    Restore(backup::CopyArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Make damaged rows anew from the logs; runs with a damaged log are put into quarantine
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    no_server: NoServerArgs,
}

pub(crate) fn run(args: &DbArgs) -> Result<Exit> {
    let on = match &args.command {
        DbCommand::Migrate(on) | DbCommand::Protect(on) => on,
        DbCommand::Check(args) => &args.common,
        DbCommand::Backup(args) | DbCommand::Restore(args) => &args.common,
    };
    on.no_server.check(&on.store, "`stepwell db`")?;
    match &args.command {
        DbCommand::Migrate(on) => migrate(on),
        DbCommand::Protect(on) => protect(on),
        DbCommand::Check(args) => check::check(args),
        DbCommand::Backup(args) => backup::backup(args),
        DbCommand::Restore(args) => backup::restore(args),
    }
}

fn protect(on: &CommonArgs) -> Result<Exit> {
    let Address::Sqlite(path) = on.store.address()? else {
        anyhow::bail!("only a SQLite store has files; on PostgreSQL use GRANT and REVOKE");
    };
    if !path.exists() {
        anyhow::bail!("{}: the file does not exist", path.display());
    }
    let changed = stepwell_stores::sqlite::protect(&path)?;
    let changed: Vec<String> = changed.iter().map(|it| it.display().to_string()).collect();
    let text = match changed.is_empty() {
        true => format!("{}: only the owner can read the files", on.store.shown()),
        false => format!("now only the owner can read {}", changed.join(", ")),
    };
    say(
        on.output,
        &text,
        &json!({ "store": on.store.shown(), "changed": changed }),
    )?;
    Ok(Exit::Ok)
}

fn migrate(on: &CommonArgs) -> Result<Exit> {
    // Opening the store as its owner runs the migrations.
    let migrating = Progress::of("migrating the store");
    let store = on
        .store
        .open(&on.store.address()?, OpenMode::Own)?
        .patient();
    let schema = store.check()?.schema;
    drop(migrating);
    let text = format!("{} has schema version {schema}", on.store.shown());
    let json = json!({ "store": on.store.shown(), "kind": store.name(), "schema": schema });
    say(on.output, &text, &json)?;
    Ok(Exit::Ok)
}
