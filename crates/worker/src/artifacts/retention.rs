//! What a store holds by run, and what is taken out of it. Which runs are kept is the caller's to say.

use std::time::SystemTime;

use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use super::key::{name_of, run_path};
use super::{ArtifactError, ArtifactKey, Artifacts, parse};

/// An artifact that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The step-run that the artifact belongs to; absent if the name was too long to be read back.
    pub key: Option<ArtifactKey>,
    /// The address of the artifact, as references in the log have it.
    pub uri: String,
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// What was taken out, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many objects or files.
    pub objects: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

impl Pruned {
    pub(crate) fn add(&mut self, other: Pruned) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

impl Artifacts {
    /// The artifacts of a run, by path.
    pub async fn list(&self, run_id: &str) -> Result<Vec<Stored>, ArtifactError> {
        let mut found = self.objects(&run_path(run_id)).await?;
        found.sort_by(|one, other| one.location.cmp(&other.location));
        Ok(found.iter().map(stored).collect())
    }

    /// Takes out all that a run has.
    pub async fn remove_run(&self, run_id: &str) -> Result<Pruned, ArtifactError> {
        let found = self.objects(&run_path(run_id)).await?;
        self.remove(&found, false).await
    }

    /// Takes out what belongs to runs that are not kept and have nothing newer than `older_than`.
    /// What is in the store but was not put there by this is left alone.
    pub async fn prune(
        &self,
        is_kept: impl Fn(&str) -> bool,
        older_than: SystemTime,
        dry_run: bool,
    ) -> Result<Pruned, ArtifactError> {
        let root = parse("runs")?;
        let runs = self
            .store
            .list_with_delimiter(Some(&root))
            .await
            .map_err(|error| ArtifactError::store(&root, error))?;
        let mut pruned = Pruned::default();
        for folder in runs.common_prefixes {
            let Some(run_id) = folder.filename().and_then(name_of) else {
                continue;
            };
            if is_kept(&run_id) {
                continue;
            }
            let found = self.objects(folder.as_ref()).await?;
            if found
                .iter()
                .all(|it| SystemTime::from(it.last_modified) < older_than)
            {
                pruned.add(self.remove(&found, dry_run).await?);
            }
        }
        Ok(pruned)
    }

    async fn objects(&self, folder: &str) -> Result<Vec<ObjectMeta>, ArtifactError> {
        let mut found: Vec<ObjectMeta> = self
            .store
            .list(Some(&parse(folder)?))
            .try_collect()
            .await
            .map_err(|error| ArtifactError::store(folder, error))?;
        // What is behind a link belongs to another program, and is neither shown nor taken out.
        found.retain(|it| self.refuse_links(&it.location).is_ok());
        Ok(found)
    }

    async fn remove(&self, found: &[ObjectMeta], dry_run: bool) -> Result<Pruned, ArtifactError> {
        let mut pruned = Pruned::default();
        for object in found {
            if !dry_run {
                self.delete(&object.location).await?;
            }
            pruned.add(Pruned {
                objects: 1,
                bytes: object.size,
            });
        }
        Ok(pruned)
    }

    /// Someone else may have been faster, which is as good.
    async fn delete(&self, path: &Path) -> Result<(), ArtifactError> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(ArtifactError::store(path, error)),
        }
    }
}

fn stored(object: &ObjectMeta) -> Stored {
    Stored {
        key: ArtifactKey::from_path(object.location.as_ref()),
        uri: format!("{}{}", super::SCHEME, object.location),
        bytes: object.size,
        modified: SystemTime::from(object.last_modified),
    }
}
