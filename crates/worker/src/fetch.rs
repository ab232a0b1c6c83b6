//! Fetching a definition that is referred to by its address: a file, an HTTP server, or a bucket of a cloud.
//!
//! Not here: whether the address is allowed, and whether what was fetched is what was meant. The caller checks the address
//! before, and the hash afterwards.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};

use crate::artifacts::{cloud, secure};
use crate::hosts::{CheckedResolver, DeniedHost, HostRules};

/// Why a definition could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The host may not be asked.
    #[error("{0}")]
    Denied(String),
    /// There is nothing at the address.
    #[error("there is nothing at this address")]
    NotFound,
    /// The answer took too long.
    #[error("the answer took longer than {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The answer was another one, or there was none.
    #[error("{0}")]
    Failed(String),
}

impl FetchError {
    /// A stable code; `stepwell explain CODE` describes it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            FetchError::Denied(_) => "PLAN_URI_NOT_ALLOWED",
            FetchError::NotFound => "PLAN_NOT_FOUND",
            FetchError::Timeout(_) => "PLAN_FETCH_TIMEOUT",
            FetchError::Failed(_) => "PLAN_FETCH_FAILED",
        }
    }
}

/// What is at an address: the first bytes, at most `most` of them.
pub async fn fetch(
    uri: &str,
    hosts: &HostRules,
    most: usize,
    timeout: Duration,
) -> Result<Vec<u8>, FetchError> {
    let url = Url::parse(uri).map_err(|error| FetchError::Failed(error.to_string()))?;
    match url.scheme() {
        "file" => file(&url, most),
        "http" | "https" => in_time(timeout, http(url, hosts, most)).await,
        _ => in_time(timeout, object(&url, most)).await,
    }
}

async fn in_time<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, FetchError>>,
) -> Result<T, FetchError> {
    let done = tokio::time::timeout(timeout, work).await;
    done.unwrap_or(Err(FetchError::Timeout(timeout)))
}

/// The file that an address names, if it names one of this machine.
#[must_use]
pub fn file_of(uri: &str) -> Option<PathBuf> {
    let url = Url::parse(uri).ok()?;
    let is_file = url.scheme() == "file";
    url.to_file_path().ok().filter(|_| is_file)
}

fn file(url: &Url, most: usize) -> Result<Vec<u8>, FetchError> {
    let path = url
        .to_file_path()
        .map_err(|()| FetchError::Failed("write `file:///…` with an absolute path".to_owned()))?;
    let failed = |error: io::Error| match error.kind() == io::ErrorKind::NotFound {
        true => FetchError::NotFound,
        false => FetchError::Failed(error.to_string()),
    };
    // Opening a pipe waits for a writer, and reading a device can change it.
    if !std::fs::metadata(&path).map_err(failed)?.is_file() {
        return Err(FetchError::Failed("this is not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most as u64)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

async fn http(url: Url, hosts: &HostRules, most: usize) -> Result<Vec<u8>, FetchError> {
    secure();
    hosts.check(&url).map_err(denied)?;
    let mut client = Client::builder()
        // Only the address of the reference is allowed, not the one that its server names.
        .redirect(Policy::none())
        .user_agent(concat!("stepwell/", env!("CARGO_PKG_VERSION")));
    if !hosts.is_empty() {
        let resolver = CheckedResolver {
            rules: Arc::new(hosts.clone()),
            port: url.port_or_known_default(),
        };
        // A proxy would look the name up by itself.
        client = client.dns_resolver(resolver).no_proxy();
    }
    let client = client.build().map_err(of_client)?;
    let mut response = client.get(url).send().await.map_err(of_client)?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND | StatusCode::GONE => return Err(FetchError::NotFound),
        status if status.is_redirection() => {
            return Err(FetchError::Failed(format!(
                "the server answered {status}, and a redirect is not followed: refer to the final address"
            )));
        }
        status => {
            return Err(FetchError::Failed(format!("the server answered {status}")));
        }
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(of_client)? {
        if !append(&mut bytes, &chunk, most) {
            break;
        }
    }
    Ok(bytes)
}

async fn object(url: &Url, most: usize) -> Result<Vec<u8>, FetchError> {
    let failed =
        |error: object_store::Error| match matches!(error, object_store::Error::NotFound { .. }) {
            true => FetchError::NotFound,
            false => FetchError::Failed(error.to_string()),
        };
    let bucket = url.host_str().unwrap_or_default();
    let store = cloud(url.scheme(), bucket).ok_or_else(|| {
        let schemes = "`file:///…`, `https://…`, `http://…`, `s3://…`, `gs://…` or `az://…`";
        FetchError::Failed(format!("the address must be {schemes}"))
    })?;
    let store = store.map_err(failed)?;
    let path =
        Path::from_url_path(url.path()).map_err(|error| FetchError::Failed(error.to_string()))?;
    let mut chunks = store.get(&path).await.map_err(failed)?.into_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.try_next().await.map_err(failed)? {
        if !append(&mut bytes, &chunk, most) {
            break;
        }
    }
    Ok(bytes)
}

/// Adds bytes up to the limit, and says whether there is room for more.
fn append(bytes: &mut Vec<u8>, chunk: &[u8], most: usize) -> bool {
    let room = most.saturating_sub(bytes.len());
    bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    bytes.len() < most
}

fn denied(error: DeniedHost) -> FetchError {
    FetchError::Denied(error.0)
}

/// An error of the client without the address, which the caller shows; a refused host is the cause of its cause.
fn of_client(error: reqwest::Error) -> FetchError {
    let error = error.without_url();
    if let Some(host) = DeniedHost::behind(&error) {
        return denied(host.clone());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    FetchError::Failed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(uri: &str, most: usize) -> Result<Vec<u8>, FetchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let hosts = HostRules::default();
        runtime.block_on(fetch(uri, &hosts, most, Duration::from_secs(5)))
    }

    #[test]
    fn a_file_is_read_up_to_the_limit_and_nothing_but_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.json");
        std::fs::write(&path, "0123456789").unwrap();
        let uri = Url::from_file_path(&path).unwrap().to_string();
        assert!(uri.contains("a%20b"), "{uri}");
        assert_eq!(fetched(&uri, 100).unwrap(), b"0123456789");
        assert_eq!(fetched(&uri, 4).unwrap(), b"0123");
        let missing = fetched(&format!("{uri}x"), 100);
        assert!(matches!(missing, Err(FetchError::NotFound)), "{missing:?}");
        for wrong in [
            format!("file://{}", folder.path().display()),
            "file:///dev/zero".to_owned(),
            "file://elsewhere/x".to_owned(),
            "ftp://host/x".to_owned(),
            "no address".to_owned(),
        ] {
            let answer = fetched(&wrong, 100);
            assert!(matches!(answer, Err(FetchError::Failed(_))), "{wrong}");
        }
    }
}
