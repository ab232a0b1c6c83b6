//! How the worker of this process is made: which tools it has, and where it keeps what it makes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use stepwell_stores::Address;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::Secrets;
use stepwell_worker::{Crew, Handlers, Means};

/// Where artifacts are, for whoever has no `--artifacts`.
const VARIABLE: &str = "STEPWELL_ARTIFACTS";

/// Where the data of steps are.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataArgs {
    /// Where large results and logs are kept: a directory, s3://, gs:// or az:// [default: the
    /// variable STEPWELL_ARTIFACTS, else `artifacts` beside the SQLite file, or below .stepwell]
    #[arg(long, value_name = "URL")]
    artifacts: Option<String>,
}

/// The artifacts and the logs of a store's runs.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) artifacts: Artifacts,
    pub(crate) logs: Logs,
}

impl DataArgs {
    /// Opens them; nothing is made before there is something to keep.
    pub(crate) fn open(&self, address: &Address) -> Result<Data> {
        let folder = folder(address);
        let set = || std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
        let url = self.artifacts.clone().or_else(set);
        let url = match (url, address) {
            (Some(url), _) => url,
            (None, Address::Memory) => "memory:".to_owned(),
            (None, _) => folder.join("artifacts").to_string_lossy().into_owned(),
        };
        let artifacts = Artifacts::open(&url).context("the artifacts cannot be opened")?;
        let logs = Logs::beside(&folder, &artifacts);
        Ok(Data { artifacts, logs })
    }

    /// ` --artifacts URL` where a command that goes on needs it.
    pub(crate) fn flag(&self) -> String {
        match &self.artifacts {
            Some(url) => format!(" --artifacts {}", crate::store::word(url)),
            None => String::new(),
        }
    }
}

/// Where a store's own things are.
fn folder(address: &Address) -> PathBuf {
    match address {
        Address::Sqlite(path) => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        },
        // What is in memory is gone with the process; so are its logs.
        Address::Memory => std::env::temp_dir().join(format!("stepwell-{}", std::process::id())),
        Address::Postgres { .. } => Path::new(".stepwell").to_owned(),
    }
}

/// A worker with all tools and no handlers: programs that have handlers embed the engine.
pub(crate) fn crew(data: Data) -> Result<Crew> {
    let secrets = Secrets::from_env()?;
    let means = Means::new(secrets, data.artifacts, data.logs).with_all_tools();
    Ok(Crew::new(means, Handlers::new())?)
}
