//! How the worker of this process is made: which tools it has, and where it keeps what it makes.

use anyhow::{Context, Result};
use clap::Args;
pub(crate) use stepwell::data::Data;
use stepwell_stores::Address;
use stepwell_worker::secrets::Secrets;
use stepwell_worker::{Crew, Handlers, WorkerResources};

/// Where the data of steps are.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataArgs {
    /// Where large results and logs are kept: a directory, s3://, gs:// or az:// [default: the
    /// variable STEPWELL_ARTIFACTS, else `artifacts` beside the SQLite file, or below .stepwell]
    #[arg(long, value_name = "URL")]
    artifacts: Option<String>,
}

impl DataArgs {
    /// Opens them; nothing is made before there is something to keep.
    pub(crate) fn open(&self, address: &Address) -> Result<Data> {
        Data::open(address, self.artifacts.as_deref()).context("the artifacts cannot be opened")
    }

    /// ` --artifacts URL` where a command that goes on needs it.
    pub(crate) fn flag(&self) -> String {
        match &self.artifacts {
            Some(url) => format!(" --artifacts {}", crate::store::word(url)),
            None => String::new(),
        }
    }
}

/// A worker with all tools and no handlers: programs that have handlers embed the engine.
pub(crate) fn crew(data: Data) -> Result<Crew> {
    let secrets = Secrets::from_env()?;
    let resources = WorkerResources::new(secrets, data.artifacts, data.logs).with_all_tools();
    Ok(Crew::new(resources, Handlers::new())?)
}
