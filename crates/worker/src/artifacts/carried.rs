//! Artifacts of a process that cannot reach their store: someone who can takes them there and brings them.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;

use super::{ArtifactError, ArtifactKey};

/// The future of something that is carried.
pub type Carrying<'a, T> = Pin<Box<dyn Future<Output = Result<T, NotCarried>> + Send + 'a>>;

/// Why an artifact was not carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCarried {
    /// There is no such artifact.
    Missing,
    /// It did not work this time.
    Failed(String),
}

impl NotCarried {
    pub(super) fn at(self, path: &str) -> ArtifactError {
        let error = match self {
            NotCarried::Missing => object_store::Error::NotFound {
                path: path.to_owned(),
                source: "the server has no such artifact".into(),
            },
            NotCarried::Failed(why) => object_store::Error::Generic {
                store: "server",
                source: why.into(),
            },
        };
        ArtifactError::store(path, error)
    }
}

/// Takes artifacts to their store and brings them.
pub trait CarryArtifacts: Send + Sync + fmt::Debug {
    /// Keeps bytes under a key.
    fn put<'a>(&'a self, key: &'a ArtifactKey, kind: &'a str, bytes: Bytes) -> Carrying<'a, ()>;

    /// Brings what is kept at an address.
    fn get<'a>(&'a self, uri: &'a str) -> Carrying<'a, Bytes>;
}
