//! Opening the store that an address names. Clouds take their settings from the environment
//! variables that their own tools read.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};

use super::error::ArtifactError;

/// What kind of place a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Local(PathBuf),
    Memory,
    Remote,
}

/// The store at an address.
pub(super) fn open(address: &str) -> Result<(Arc<dyn ObjectStore>, Location), ArtifactError> {
    let refuse = |why: &dyn ToString| {
        ArtifactError::Address(format!(
            "the artifact store `{}` cannot be opened: {}",
            public(address),
            why.to_string()
        ))
    };
    let Some((scheme, rest)) = scheme(address) else {
        return match address {
            "" => Err(refuse(&"the address is empty; name a folder or a bucket")),
            "memory:" => Ok((Arc::new(InMemory::new()), Location::Memory)),
            path => local(Path::new(path)).map_err(|error| refuse(&error)),
        };
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if scheme != "file" && bucket.is_empty() {
        return Err(refuse(&"it names no bucket"));
    }
    match scheme {
        "file" if rest.starts_with('/') => local(Path::new(rest)).map_err(|error| refuse(&error)),
        "file" => Err(refuse(&"write `file:///…` with an absolute path")),
        _ => match cloud(scheme, bucket) {
            Some(Ok(store)) => Ok(remote(store, prefix)),
            Some(Err(error)) => Err(refuse(&error)),
            None => Err(refuse(
                &"it must be a path, `file:///…`, `s3://…`, `gs://…`, `az://…` or `memory:`",
            )),
        },
    }
}

/// A bucket of a cloud; none if the scheme is that of no cloud.
pub(crate) fn cloud(
    scheme: &str,
    bucket: &str,
) -> Option<object_store::Result<Arc<dyn ObjectStore>>> {
    fn shared(store: impl ObjectStore) -> Arc<dyn ObjectStore> {
        Arc::new(store)
    }
    secure();
    Some(match scheme {
        "s3" => AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retries())
            .build()
            .map(shared),
        "gs" => GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retries())
            .build()
            .map(shared),
        "az" => MicrosoftAzureBuilder::from_env()
            .with_container_name(bucket)
            .with_retry(retries())
            .build()
            .map(shared),
        _ => return None,
    })
}

fn scheme(address: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = address.split_once("://")?;
    let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric());
    (is_scheme && !scheme.is_empty()).then_some((scheme, rest))
}

/// An address as it may be shown: what stands before an `@` is a credential.
fn public(address: &str) -> String {
    match (scheme(address), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://***@{rest}"),
        _ => address.to_owned(),
    }
}

/// A step waits for its artifact, and has retries of its own.
fn retries() -> RetryConfig {
    RetryConfig {
        max_retries: 3,
        retry_timeout: Duration::from_secs(60),
        ..RetryConfig::default()
    }
}

fn remote(store: Arc<dyn ObjectStore>, prefix: &str) -> (Arc<dyn ObjectStore>, Location) {
    let store: Arc<dyn ObjectStore> = match prefix.trim_matches('/') {
        "" => store,
        prefix => Arc::new(PrefixStore::new(store, prefix)),
    };
    (store, Location::Remote)
}

/// A reference to an artifact is committed right after it was put, so what is put is synced.
fn local(path: &Path) -> Result<(Arc<dyn ObjectStore>, Location), String> {
    private_dir(path).map_err(|error| error.to_string())?;
    let path = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let store = LocalFileSystem::new_with_prefix(&path)
        .map_err(|error| error.to_string())?
        .with_automatic_cleanup(true)
        .with_fsync(true);
    Ok((Arc::new(store), Location::Local(path)))
}

/// Makes a folder that only its owner can read, with those above it.
pub(crate) fn private_dir(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// The HTTP client panics if nobody has said which cryptography to use; who said it first wins.
pub(crate) fn secure() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
