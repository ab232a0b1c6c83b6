//! Where a bench keeps its store: a new file or schema, which is removed afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use stepwell_engine::store::{MemoryStore, Store};
use stepwell_stores::bare::{self, Bare};
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{Durability, SqliteOptions, SqliteStore};

use super::Sync;
use crate::usage;

/// Where the stores are made.
#[derive(Debug)]
pub(super) enum Place {
    Memory,
    Sqlite { path: PathBuf, sync: Durability },
    Postgres { url: String },
}

impl Place {
    pub(super) fn of(store: Option<&str>, sync: Sync) -> Result<Place> {
        let sync = sync.into();
        let place = match store {
            None => Place::Sqlite {
                path: PathBuf::from(".stepwell/bench.db"),
                sync,
            },
            Some("memory:") => Place::Memory,
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Place::Postgres { url: url.into() }
            }
            Some(url) => Place::Sqlite {
                path: PathBuf::from(url.strip_prefix("sqlite:").unwrap_or(url)),
                sync,
            },
        };
        if let Place::Sqlite { path, .. } = &place
            && path.exists()
        {
            return usage(format!(
                "{} exists; the bench wants a new file, and removes it afterwards",
                path.display()
            ));
        }
        Ok(place)
    }

    fn schema() -> String {
        format!("stepwell_bench_{}", std::process::id())
    }

    pub(super) fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Place::Memory => Arc::new(MemoryStore::default()),
            Place::Sqlite { path, sync } => {
                let options = SqliteOptions {
                    durability: *sync,
                    ..SqliteOptions::default()
                };
                Arc::new(SqliteStore::open(path, options)?)
            }
            Place::Postgres { url } => {
                let options = PostgresOptions {
                    schema: Place::schema(),
                    ..PostgresOptions::default()
                };
                Arc::new(PostgresStore::connect(url, options)?)
            }
        })
    }

    /// What a sync mode is called in figures.
    pub(super) fn sync(&self) -> String {
        match self {
            Place::Memory => "none (memory)".into(),
            Place::Sqlite { sync, .. } => format!("synchronous={}", sync.name()),
            Place::Postgres { .. } => "as the server has it".into(),
        }
    }

    pub(super) fn bare(&self, row_bytes: usize, batch: usize) -> Result<Option<Bare>> {
        let time = Duration::from_secs(3);
        Ok(match self {
            Place::Memory => None,
            Place::Sqlite { path, sync } => {
                let path = path.with_extension("bare.db");
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                let bare = bare::sqlite(&path, *sync, row_bytes, batch, time)?;
                remove(&path);
                Some(bare)
            }
            Place::Postgres { url } => Some(bare::postgres(url, 2, row_bytes, batch, time)?),
        })
    }

    pub(super) fn remove(&self) -> Result<()> {
        match self {
            Place::Memory => {}
            Place::Sqlite { path, .. } => remove(path),
            Place::Postgres { url } => bare::drop_schema(url, &Place::schema())?,
        }
        Ok(())
    }
}

/// Removes a database with the files beside it.
fn remove(path: &Path) {
    for ending in ["", "-wal", "-shm", "-lock"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        // What is not there need not be removed.
        let _ = std::fs::remove_file(PathBuf::from(name));
    }
}
