//! The locations of artifacts and step logs. The command and the embedded engine use the same rules.

use std::path::{Path, PathBuf};

use stepwell_stores::Address;
use stepwell_worker::artifacts::{ArtifactError, Artifacts};
use stepwell_worker::logs::Logs;

/// The environment variable with the default location of artifacts.
const VARIABLE: &str = "STEPWELL_ARTIFACTS";

/// The artifacts and the step logs of the runs of a store.
#[derive(Clone, Debug)]
pub struct Data {
    /// Large results of steps.
    pub artifacts: Artifacts,
    /// The output of steps.
    pub logs: Logs,
}

impl Data {
    /// Opens artifacts and logs; folders are created with the first write. The location of artifacts is
    /// `artifacts`, else the environment variable, else a folder next to the store.
    pub fn open(address: &Address, artifacts: Option<&str>) -> Result<Data, ArtifactError> {
        let set = || std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
        let url = artifacts.map(str::to_owned).or_else(set);
        let folder = folder(address);
        let url = match (url, &folder) {
            (Some(url), _) => url,
            (None, None) => "memory:".to_owned(),
            (None, Some(folder)) => folder.join("artifacts").to_string_lossy().into_owned(),
        };
        let artifacts = Artifacts::open(&url)?;
        let logs = match folder {
            Some(folder) => Logs::beside(&folder, &artifacts),
            None => Logs::temporary(),
        };
        Ok(Data { artifacts, logs })
    }
}

/// The folder for the files that belong to a store; a memory store has none, as it is lost at the end of the process.
fn folder(address: &Address) -> Option<PathBuf> {
    match address {
        Address::Sqlite(path) => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => Some(folder.to_owned()),
            _ => Some(PathBuf::from(".")),
        },
        Address::Memory => None,
        Address::Postgres { .. } => Some(Path::new(".stepwell").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_a_folder_in_its_name_is_in_the_current_one() {
        let of = |path: &str| folder(&Address::Sqlite(path.into())).unwrap();
        assert_eq!(of("x.db"), Path::new("."));
        assert_eq!(of("data/x.db"), Path::new("data"));
        assert_eq!(of("/x.db"), Path::new("/"));
    }
}
