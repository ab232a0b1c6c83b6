//! `stepwell db backup` and `stepwell db restore`: a SQLite store is copied while it is used, and made from a copy.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use stepwell_stores::Address;
use stepwell_stores::sqlite::UnnamedCopy;

use super::{CommonArgs, check};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::runs::say;
use crate::term::count;

#[derive(Debug, Args)]
pub(super) struct CopyArgs {
    /// The file of the copy; `backup` creates it, and never replaces a file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do not look for damage in the copy
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

impl CopyArgs {
    /// The file of the store.
    fn store(&self) -> Result<PathBuf> {
        match self.common.store.address()? {
            Address::Sqlite(path) => Ok(path),
            Address::Postgres { .. } => bail!(
                "a PostgreSQL store is backed up and restored with pg_dump and pg_restore, or by its provider; \
                 docs/deploy.md has the commands"
            ),
            Address::Memory => bail!("a memory store ends with its process, and has no backup"),
        }
    }

    /// Copies a store, looks for damage in the copy, and gives it its name.
    fn copy(&self, from: &Path, to: &Path, what: &str) -> Result<(u64, Option<check::Contents>)> {
        let copying = Progress::of(format!("copying {}", from.display()));
        let copy = UnnamedCopy::of(from, to, |done, all| {
            copying.say(format!("{what}: {done} of {all} pages"));
        })?;
        drop(copying);
        let contents = match self.no_verify {
            true => None,
            false => Some(check::verify(copy.path())?),
        };
        let bytes = copy.bytes();
        copy.name()?;
        Ok((bytes, contents))
    }

    fn told(&self, text: &str, bytes: u64, contents: Option<check::Contents>) -> Result<Exit> {
        let checked = match contents {
            Some(it) => {
                let runs = count(usize::try_from(it.runs).unwrap_or(usize::MAX), "run");
                format!("{runs}, {} open, no damage found", it.open)
            }
            None => "not checked".to_owned(),
        };
        let json = json!({
            "store": self.common.store.shown(), "file": self.file, "bytes": bytes,
            "verified": contents.is_some(), "schema": contents.map(|it| it.schema),
            "runs": contents.map(|it| it.runs), "open": contents.map(|it| it.open),
        });
        let text = format!("{text} ({bytes} bytes, {checked})");
        say(self.common.output, &text, &json)?;
        Ok(Exit::Ok)
    }
}

pub(super) fn backup(args: &CopyArgs) -> Result<Exit> {
    let store = args.store()?;
    let (bytes, contents) = args.copy(&store, &args.file, "copying the store")?;
    let text = format!(
        "{} was copied to {}",
        args.common.store.shown(),
        args.file.display()
    );
    args.told(&text, bytes, contents)
}

pub(super) fn restore(args: &CopyArgs) -> Result<Exit> {
    let store = args.store()?;
    let (bytes, contents) = args.copy(&args.file, &store, "restoring the store")?;
    let text = format!(
        "{} was made from {}",
        args.common.store.shown(),
        args.file.display()
    );
    args.told(&text, bytes, contents)
}
