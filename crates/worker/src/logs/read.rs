//! Reads logs back: what there is, all of it, or the end. From files, and from the bucket where logs
//! were uploaded by a worker on another machine.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::line::{LogLine, read_all};
use super::{ENDING, Logs, UPLOADED, writer};
use crate::artifacts::{ArtifactError, ArtifactKey, name_of, segment};

/// A log that exists, in the local folder or in the artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The step-run: `fetch`, `fetch#2`, `load[3]`.
    pub step_id: String,
    /// Number of the execution, from 1.
    pub execution: u32,
    pub bytes: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

impl Logs {
    /// The logs of a run, by step and execution.
    pub async fn list(&self, run_id: &str) -> io::Result<Vec<LogFile>> {
        let folder = self.run_folder(run_id);
        let local = blocking(move || files(&folder)).await?;
        let mut found: Vec<LogFile> = local.into_iter().map(|(_, log)| log).collect();
        if let Some(artifacts) = self.remote() {
            let known: Vec<_> = found.iter().map(LogFile::id).collect();
            let uploaded = artifacts.list(run_id).await.map_err(io::Error::other)?;
            let uploaded = uploaded.into_iter().filter_map(|it| {
                let key = it.key.filter(|key| key.name == UPLOADED)?;
                Some(LogFile {
                    step_id: key.step_id,
                    execution: key.execution,
                    bytes: it.bytes,
                    modified: it.modified,
                })
            });
            found.extend(uploaded.filter(|it| !known.contains(&it.id())));
        }
        found.sort_by_key(LogFile::id);
        Ok(found)
    }

    /// The lines of one execution of a step, or of all of them in order.
    pub async fn read(
        &self,
        run_id: &str,
        step_id: &str,
        execution: Option<u32>,
    ) -> io::Result<Vec<LogLine>> {
        let executions = match execution {
            Some(execution) => vec![execution],
            None => self.executions(run_id, step_id).await?,
        };
        let mut lines = Vec::new();
        for execution in executions {
            let key = writer::key(run_id, step_id, execution);
            lines.extend(read_all(&self.bytes(&key).await?));
        }
        Ok(lines)
    }

    /// The last lines of a step, across its executions.
    pub async fn tail(&self, run_id: &str, step_id: &str, n: usize) -> io::Result<Vec<LogLine>> {
        let mut lines: Vec<LogLine> = Vec::new();
        for execution in self.executions(run_id, step_id).await?.into_iter().rev() {
            if lines.len() >= n {
                break;
            }
            let key = writer::key(run_id, step_id, execution);
            let earlier = read_all(&self.bytes(&key).await?);
            lines.splice(0..0, earlier);
        }
        Ok(lines.split_off(lines.len().saturating_sub(n)))
    }

    /// All bytes of a file of this folder.
    pub(super) async fn whole(&self, path: PathBuf) -> io::Result<Vec<u8>> {
        let logs = self.clone();
        blocking(move || {
            let mut bytes = Vec::new();
            logs.open_file(&path)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .await
    }

    async fn executions(&self, run_id: &str, step_id: &str) -> io::Result<Vec<u32>> {
        let found = self.list(run_id).await?.into_iter();
        Ok(found
            .filter(|it| it.is_of(step_id))
            .map(|it| it.execution)
            .collect())
    }

    /// A log as it was written. One that is not there is empty: the execution said nothing.
    pub(super) async fn bytes(&self, key: &ArtifactKey) -> io::Result<Vec<u8>> {
        let path = self.file(&key.run_id, &key.step_id, key.execution);
        match (self.whole(path).await, self.remote()) {
            (Ok(bytes), _) => Ok(bytes),
            (Err(error), _) if error.kind() != io::ErrorKind::NotFound => Err(error),
            (Err(_), None) => Ok(Vec::new()),
            (Err(_), Some(artifacts)) => match artifacts.at(key).await {
                Ok(bytes) => Ok(bytes.into()),
                Err(ArtifactError::Missing { .. }) => Ok(Vec::new()),
                Err(error) => Err(io::Error::other(error)),
            },
        }
    }
}

impl LogFile {
    /// Whether it is of this step, whose name may have been too long for a folder's.
    pub(super) fn is_of(&self, step_id: &str) -> bool {
        self.step_id == step_id || self.step_id == segment(step_id)
    }

    fn id(&self) -> (String, u32) {
        (self.step_id.clone(), self.execution)
    }
}

/// The logs in a run's folder and their files. A step whose name was too long goes by its folder's name.
pub(super) fn files(folder: &Path) -> io::Result<Vec<(PathBuf, LogFile)>> {
    let mut found = Vec::new();
    for step in entries(folder)? {
        let name = step.file_name().to_string_lossy().into_owned();
        let step_id = name_of(&name).unwrap_or(name);
        for file in entries(&step.path())? {
            let name = file.file_name();
            let execution = name.to_str().and_then(|it| it.strip_suffix(ENDING));
            let Some(execution) = execution.and_then(|it| it.parse().ok()) else {
                continue;
            };
            // It may be removed at the same time.
            if let Ok(about) = file.metadata() {
                let log = LogFile {
                    step_id: step_id.clone(),
                    execution,
                    bytes: about.len(),
                    modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                };
                found.push((file.path(), log));
            }
        }
    }
    Ok(found)
}

/// What is in a folder; nothing if there is none.
pub(super) fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        // A link leads elsewhere: nobody here has made it.
        Ok(found) => found.filter(|it| !it.as_ref().is_ok_and(is_link)).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_link(entry: &fs::DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_symlink())
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
