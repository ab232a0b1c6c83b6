//! The store of a benchmark: a new file or schema, which is deleted afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use stepwell_engine::store::{MemoryStore, Store};
use stepwell_stores::bare::{self, Bare};
use stepwell_stores::postgres::{PostgresOptions, PostgresStore};
use stepwell_stores::sqlite::{Durability, SqliteOptions, SqliteStore};

use super::SyncMode;
use crate::usage;

/// The kind and location of the store.
#[derive(Debug)]
pub(super) enum BenchStore {
    Memory,
    Sqlite { path: PathBuf, sync: Durability },
    Postgres { url: String },
}

impl BenchStore {
    pub(super) fn of(store: Option<&str>, sync: SyncMode) -> Result<BenchStore> {
        let sync = sync.into();
        let chosen = match store {
            None => BenchStore::Sqlite {
                path: PathBuf::from(".stepwell/bench.db"),
                sync,
            },
            Some("memory:") => BenchStore::Memory,
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                BenchStore::Postgres { url: url.into() }
            }
            Some(url) => BenchStore::Sqlite {
                path: PathBuf::from(url.strip_prefix("sqlite:").unwrap_or(url)),
                sync,
            },
        };
        if let BenchStore::Sqlite { path, .. } = &chosen
            && path.exists()
        {
            return usage(format!(
                "{} already exists; the benchmark needs a new file, which it deletes afterwards",
                path.display()
            ));
        }
        Ok(chosen)
    }

    fn schema() -> String {
        format!("stepwell_bench_{}", std::process::id())
    }

    pub(super) fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            BenchStore::Memory => Arc::new(MemoryStore::default()),
            BenchStore::Sqlite { path, sync } => {
                let options = SqliteOptions {
                    durability: *sync,
                    ..SqliteOptions::default()
                };
                Arc::new(SqliteStore::open(path, options)?)
            }
            BenchStore::Postgres { url } => {
                let options = PostgresOptions {
                    schema: BenchStore::schema(),
                    ..PostgresOptions::default()
                };
                Arc::new(PostgresStore::connect(url, options)?)
            }
        })
    }

    /// The sync mode, as shown in results.
    pub(super) fn sync(&self) -> String {
        match self {
            BenchStore::Memory => "none (memory)".into(),
            BenchStore::Sqlite { sync, .. } => format!("synchronous={}", sync.name()),
            BenchStore::Postgres { .. } => "as configured on the server".into(),
        }
    }

    pub(super) fn bare(&self, row_bytes: usize, batch: usize) -> Result<Option<Bare>> {
        let time = Duration::from_secs(3);
        Ok(match self {
            BenchStore::Memory => None,
            BenchStore::Sqlite { path, sync } => {
                let path = path.with_extension("bare.db");
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                let bare = bare::sqlite(&path, *sync, row_bytes, batch, time)?;
                remove(&path);
                Some(bare)
            }
            BenchStore::Postgres { url } => Some(bare::postgres(url, 2, row_bytes, batch, time)?),
        })
    }

    pub(super) fn remove(&self) -> Result<()> {
        match self {
            BenchStore::Memory => {}
            BenchStore::Sqlite { path, .. } => remove(path),
            BenchStore::Postgres { url } => bare::drop_schema(url, &BenchStore::schema())?,
        }
        Ok(())
    }
}

/// Deletes a database with its WAL, shared-memory and lock files.
fn remove(path: &Path) {
    for ending in ["", "-wal", "-shm", "-lock"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        // A missing file is not an error.
        let _ = std::fs::remove_file(PathBuf::from(name));
    }
}
