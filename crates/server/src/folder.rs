//! What `stepwell dev` tells its server of the files of its folder: which definitions they hold, and what is wrong with them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use utoipa::ToSchema;

use crate::definitions::FoundProblem;

/// A file with a definition.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FolderFile {
    /// Its path below the folder.
    pub(crate) file: String,
    /// The definition that it was registered as; of a file with errors the one of its last content without errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The revision that has this content, if the file is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<u32>,
    /// Why the file is not loaded; none if it is.
    pub(crate) problems: Vec<FoundProblem>,
}

/// The files of the folder by their paths. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folder(Arc<Mutex<BTreeMap<String, FolderFile>>>);

impl Folder {
    pub(crate) fn files(&self) -> Vec<FolderFile> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn loaded(&self, file: &str, name: &str, revision: u32) {
        self.put(FolderFile {
            file: file.to_owned(),
            name: Some(name.to_owned()),
            revision: Some(revision),
            problems: Vec::new(),
        });
    }

    pub(crate) fn refused(&self, file: &str, problems: Vec<FoundProblem>) {
        let known = self.lock().get(file).cloned();
        self.put(FolderFile {
            file: file.to_owned(),
            name: known.and_then(|it| it.name),
            revision: None,
            problems,
        });
    }

    pub(crate) fn gone(&self, file: &str) {
        self.lock().remove(file);
    }

    fn put(&self, file: FolderFile) {
        self.lock().insert(file.file.clone(), file);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, FolderFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
