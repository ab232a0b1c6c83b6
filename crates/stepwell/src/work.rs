//! Creates the worker of this process: its tools, and the location of artifacts and logs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value as Json;
pub(crate) use stepwell::data::Data;
use stepwell_kernel::plan::Plan;
use stepwell_stores::Address;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::secrets::Secrets;
use stepwell_worker::{Crew, Handlers, Security, WorkerResources, large_params};
use tokio::runtime::Builder;

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

    /// Whether the option says something.
    pub(crate) fn is_given(&self) -> bool {
        self.artifacts.is_some()
    }

    /// ` --artifacts URL` for commands that are shown to the user.
    pub(crate) fn flag(&self) -> String {
        match &self.artifacts {
            Some(url) => format!(" --artifacts {}", crate::store::word(url)),
            None => String::new(),
        }
    }
}

/// The option for the configuration file.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file [default: the variable STEPWELL_CONFIG, else stepwell.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    /// The file of the option.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// ` --config FILE` for commands that are shown to the user.
    pub(crate) fn flag(&self) -> String {
        match &self.config {
            Some(file) => format!(" --config {}", crate::store::word(&file.to_string_lossy())),
            None => String::new(),
        }
    }
}

/// Puts parameters that are too large for the log into the artifacts.
pub(crate) fn store_large(
    artifacts: &Artifacts,
    run_id: &str,
    plan: &Plan,
    params: Json,
) -> Result<Json> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let small = runtime.block_on(large_params::shrink(artifacts, run_id, plan, params));
    small.context("large parameters cannot be stored")
}

/// A worker with all tools and no handlers: programs that have handlers embed the engine.
pub(crate) fn crew(data: Data, security: Security) -> Result<Crew> {
    Ok(Crew::new(resources(data, security)?, Handlers::new())?)
}

/// The same on the runtime of the caller.
pub(crate) fn crew_on(data: Data, security: Security) -> Result<Crew> {
    let runtime = tokio::runtime::Handle::current();
    let resources = resources(data, security)?;
    Ok(Crew::on(runtime, resources, Handlers::new()))
}

fn resources(data: Data, security: Security) -> Result<WorkerResources> {
    let secrets = secrets(&security)?;
    Ok(WorkerResources::new(secrets, data.artifacts, data.logs)
        .with_security(security)
        .with_all_tools())
}

/// The secrets that definitions can name.
fn secrets(security: &Security) -> Result<Secrets> {
    Ok(match security.is_confined() {
        true => Secrets::confined_from_env()?,
        false => Secrets::from_env()?,
    })
}
