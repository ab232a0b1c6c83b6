//! Creates the worker of this process: its tools, and the location of artifacts and logs.

use anyhow::{Context, Result};
use clap::Args;
pub(crate) use stepwell::data::Data;
use stepwell_stores::Address;
use stepwell_worker::secrets::Secrets;
use stepwell_worker::{Crew, Handlers, WorkerResources};

/// The option for the location of artifacts.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataArgs {
    /// Location of large results and logs: a directory, s3://, gs:// or az:// [default: the variable
    /// STEPWELL_ARTIFACTS, else `artifacts` next to the SQLite file, or in .stepwell]
    #[arg(long, value_name = "URL")]
    artifacts: Option<String>,
}

impl DataArgs {
    /// Opens artifacts and logs; folders are created with the first write.
    pub(crate) fn open(&self, address: &Address) -> Result<Data> {
        Data::open(address, self.artifacts.as_deref())
            .context("the artifact store cannot be opened")
    }

    /// ` --artifacts URL` for commands that are shown to the user.
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
