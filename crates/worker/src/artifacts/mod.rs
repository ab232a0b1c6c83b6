//! Artifacts: what is too large for the log of events, kept in a folder or a bucket. The log has the
//! reference: where it is, its size and its hash.
//!
//! Paths are relative to the store, so a store can be moved. How references in values are resolved is
//! in [`mod@shrink`]; where things are kept is in `key.rs`.

mod cache;
mod carried;
mod error;
mod key;
mod location;
mod preview;
mod retention;
mod shrink;

use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use sha2::{Digest as _, Sha256};
use stepwell_kernel::event::ArtifactRef;
use stepwell_kernel::reference::SCHEME;

pub use carried::{CarryArtifacts, Carrying, NotCarried};
pub use error::ArtifactError;
pub use key::{ArtifactKey, name_of, segment};
pub(crate) use location::{cloud, private_dir, secure};
pub use preview::preview;
pub use retention::{Pruned, Stored};
pub use shrink::{INLINE_BYTES, RetainedPaths, is_ref, references, refers};

use crate::no_links;
use location::Location;
use stepwell_kernel::keys::hex;

/// How much is read into memory at once, unless someone says otherwise.
const READ_LIMIT: u64 = 256 << 20;

/// A store of artifacts. Cheap to clone.
#[derive(Clone)]
pub struct Artifacts {
    store: Arc<dyn ObjectStore>,
    place: Location,
    limit: u64,
    cache: cache::ArtifactCache,
    /// Takes artifacts to their store and brings them, where this process cannot reach the store.
    carrier: Option<Arc<dyn CarryArtifacts>>,
}

/// The clients of clouds hold credentials, so they are not shown.
impl fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artifacts")
            .field("place", &self.place)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Artifacts {
    /// Opens the store at an address: a path, `file:///…`, `s3://bucket/prefix`, `gs://…`, `az://…`,
    /// or `memory:` for tests. A folder is made if it is not there.
    pub fn open(address: &str) -> Result<Artifacts, ArtifactError> {
        let (store, place) = location::open(address)?;
        Ok(Artifacts {
            store,
            place,
            limit: READ_LIMIT,
            cache: cache::ArtifactCache::default(),
            carrier: None,
        })
    }

    /// A store that another process has.
    #[must_use]
    pub fn carried(carrier: Arc<dyn CarryArtifacts>) -> Artifacts {
        Artifacts {
            store: Arc::new(InMemory::new()),
            place: Location::Remote,
            limit: READ_LIMIT,
            cache: cache::ArtifactCache::default(),
            carrier: Some(carrier),
        }
    }

    /// The same store, which refuses to read more than this at once.
    #[must_use]
    pub fn with_limit(mut self, bytes: u64) -> Artifacts {
        self.limit = bytes;
        self
    }

    /// The folder, if the store is one.
    #[must_use]
    pub fn folder(&self) -> Option<&FilePath> {
        match &self.place {
            Location::Local(path) => Some(path),
            Location::Memory | Location::Remote => None,
        }
    }

    /// Keeps bytes under a key, all of them or none. What was there before is replaced.
    pub async fn put(
        &self,
        key: &ArtifactKey,
        kind: &str,
        bytes: impl Into<Bytes>,
    ) -> Result<ArtifactRef, ArtifactError> {
        let bytes = bytes.into();
        let path = key.path();
        let reference = reference_of(&path, kind, &bytes);
        let place = parse(&path)?;
        if let Some(carrier) = &self.carrier {
            let carried = carrier.put(key, kind, bytes).await;
            carried.map_err(|error| error.at(&path))?;
            return Ok(reference);
        }
        self.refuse_links(&place)?;
        self.store
            .put(&place, PutPayload::from_bytes(bytes))
            .await
            .map_err(|error| ArtifactError::store(&path, error))?;
        Ok(reference)
    }

    /// Keeps bytes under a key that nothing else is kept under: what is there is never replaced. The same bytes once more are
    /// as good as the first time.
    pub async fn put_new(
        &self,
        key: &ArtifactKey,
        kind: &str,
        bytes: impl Into<Bytes>,
    ) -> Result<ArtifactRef, ArtifactError> {
        let bytes = bytes.into();
        let path = key.path();
        let reference = reference_of(&path, kind, &bytes);
        let place = parse(&path)?;
        self.refuse_links(&place)?;
        let options = PutOptions::from(PutMode::Create);
        let payload = PutPayload::from_bytes(bytes);
        match self.store.put_opts(&place, payload, options).await {
            Ok(_) => Ok(reference),
            Err(object_store::Error::AlreadyExists { .. }) => match self.get(&reference).await {
                Ok(_) => Ok(reference),
                Err(ArtifactError::Corrupt { uri, .. }) => Err(ArtifactError::Exists { uri }),
                Err(error) => Err(error),
            },
            Err(error) => Err(ArtifactError::store(&path, error)),
        }
    }

    /// What a reference stands for, checked against the size and the hash that it names.
    pub async fn get(&self, reference: &ArtifactRef) -> Result<Bytes, ArtifactError> {
        let uri = &reference.uri;
        let place = address(uri)?;
        self.check_limit(uri, reference.size_bytes.unwrap_or(0))?;
        let bytes = self.read(uri, &place).await?;
        if let Some(size) = reference.size_bytes
            && size != bytes.len() as u64
        {
            return Err(ArtifactError::Corrupt {
                uri: uri.clone(),
                why: format!("it has {} bytes instead of {size}", bytes.len()),
            });
        }
        if let Some(hash) = &reference.sha256
            && !hash.eq_ignore_ascii_case(&hex(&Sha256::digest(&bytes)))
        {
            return Err(ArtifactError::Corrupt {
                uri: uri.clone(),
                why: "its hash is another one".to_owned(),
            });
        }
        Ok(bytes)
    }

    /// What is kept under a key, unchecked, since nobody has its reference.
    pub(crate) async fn at(&self, key: &ArtifactKey) -> Result<Bytes, ArtifactError> {
        let path = key.path();
        self.read(&format!("{SCHEME}{path}"), &parse(&path)?).await
    }

    async fn read(&self, uri: &str, place: &Path) -> Result<Bytes, ArtifactError> {
        if let Some(carrier) = &self.carrier {
            let bytes = carrier.get(uri).await;
            let bytes = bytes.map_err(|error| error.at(place.as_ref()))?;
            self.check_limit(uri, bytes.len() as u64)?;
            return Ok(bytes);
        }
        let failed = |error| ArtifactError::store(place, error);
        self.refuse_links(place)?;
        let found = self.store.get(place).await.map_err(failed)?;
        self.check_limit(uri, found.meta.size)?;
        let mut bytes = BytesMut::new();
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.try_next().await.map_err(failed)? {
            bytes.extend_from_slice(&chunk);
            self.check_limit(uri, bytes.len() as u64)?;
        }
        Ok(bytes.freeze())
    }

    /// In a folder, links lead elsewhere: nothing is written or read through them.
    fn refuse_links(&self, place: &Path) -> Result<(), ArtifactError> {
        let Some(folder) = self.folder() else {
            return Ok(());
        };
        no_links::refuse(folder, FilePath::new(place.as_ref())).map_err(|error| {
            ArtifactError::Address(format!("the artifact `{place}` cannot be used: {error}"))
        })
    }

    fn check_limit(&self, uri: &str, size: u64) -> Result<(), ArtifactError> {
        if size <= self.limit {
            return Ok(());
        }
        Err(ArtifactError::TooLarge {
            uri: uri.to_owned(),
            size,
            limit: self.limit,
        })
    }
}

/// The reference of bytes that are kept at a path.
fn reference_of(path: &str, kind: &str, bytes: &Bytes) -> ArtifactRef {
    ArtifactRef {
        uri: format!("{SCHEME}{path}"),
        kind: kind.to_owned(),
        sha256: Some(hex(&Sha256::digest(bytes))),
        size_bytes: Some(bytes.len() as u64),
        expires_at: None,
    }
}

/// The path in the store that a reference names. References travel through data that programs
/// return, so this is checked as if a stranger had written it.
fn address(uri: &str) -> Result<Path, ArtifactError> {
    let refuse = || ArtifactError::Address(format!("`{uri}` is not the reference of an artifact"));
    let path = uri.strip_prefix(SCHEME).ok_or_else(refuse)?;
    let segments = path.strip_prefix("runs/").ok_or_else(refuse)?;
    let is_safe = |segment: &str| {
        !segment.is_empty()
            && !segment.starts_with('.')
            && segment
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.+()=".contains(&byte))
    };
    if segments.split('/').count() != 4 || !segments.split('/').all(is_safe) {
        return Err(refuse());
    }
    parse(path)
}

fn parse(path: &str) -> Result<Path, ArtifactError> {
    Path::parse(path).map_err(|error| ArtifactError::Address(error.to_string()))
}
