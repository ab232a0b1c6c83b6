//! Where the data of a store's runs are: artifacts and logs, the same for the command and for programs.

use std::path::{Path, PathBuf};

use stepwell_stores::Address;
use stepwell_worker::artifacts::{ArtifactError, Artifacts};
use stepwell_worker::logs::Logs;

/// Where artifacts are, for whoever does not say.
const VARIABLE: &str = "STEPWELL_ARTIFACTS";

/// The artifacts and the logs of a store's runs.
#[derive(Clone, Debug)]
pub struct Data {
    /// Large results.
    pub artifacts: Artifacts,
    /// What steps say.
    pub logs: Logs,
}

impl Data {
    /// Opens them; nothing is made before there is something to keep. Without `artifacts` the variable
    /// says where they are, else they are beside the store.
    pub fn open(address: &Address, artifacts: Option<&str>) -> Result<Data, ArtifactError> {
        let folder = folder(address);
        let set = || std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
        let url = artifacts.map(str::to_owned).or_else(set);
        let url = match (url, address) {
            (Some(url), _) => url,
            (None, Address::Memory) => "memory:".to_owned(),
            (None, _) => folder.join("artifacts").to_string_lossy().into_owned(),
        };
        let artifacts = Artifacts::open(&url)?;
        let logs = Logs::beside(&folder, &artifacts);
        Ok(Data { artifacts, logs })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_a_folder_in_its_name_is_in_the_current_one() {
        let of = |path: &str| folder(&Address::Sqlite(path.into()));
        assert_eq!(of("x.db"), Path::new("."));
        assert_eq!(of("data/x.db"), Path::new("data"));
        assert_eq!(of("/x.db"), Path::new("/"));
    }
}
