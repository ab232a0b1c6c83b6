//! Secrets in HashiCorp Vault or OpenBao: version 2 of the key-value engine, over HTTP.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Certificate, Client, Response, StatusCode, redirect};
use serde_json::Value as Json;

use super::error::SecretError;
use super::provider::{EnvVars, Provider, SECRET_BYTES, SecretFuture};

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);

/// Before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// Where plain names are looked for, unless `STEPWELL_VAULT_MOUNT` says otherwise.
const MOUNT: &str = "secret";

pub(super) struct VaultProvider {
    client: Client,
    address: String,
    token: VaultToken,
    namespace: Option<String>,
    mount: String,
}

/// A file is read each time, because a renewed token is written to the file.
enum VaultToken {
    Text(String),
    File(PathBuf),
}

impl fmt::Debug for VaultProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VaultProvider")
            .field("address", &self.address)
            .field("mount", &self.mount)
            .finish_non_exhaustive()
    }
}

/// Why one try failed.
enum VaultFailure {
    /// The next try may go well.
    Passing(String),
    Final(SecretError),
}

impl VaultProvider {
    pub(super) fn from_vars(vars: &EnvVars) -> Result<VaultProvider, SecretError> {
        let settings = |text: String| SecretError::Settings(text);
        let address = vars.get("VAULT_ADDR").ok_or_else(|| {
            settings(
                "the secret provider `vault` needs VAULT_ADDR, such as https://vault:8200".into(),
            )
        })?;
        if !address.starts_with("http://") && !address.starts_with("https://") {
            return Err(settings(
                "VAULT_ADDR must begin with http:// or https://".into(),
            ));
        }
        let token = match (vars.get("VAULT_TOKEN"), vars.get("VAULT_TOKEN_FILE")) {
            (Some(text), _) => VaultToken::Text(text),
            (None, Some(path)) => VaultToken::File(path.into()),
            (None, None) => {
                return Err(settings(
                    "the secret provider `vault` needs VAULT_TOKEN or VAULT_TOKEN_FILE".into(),
                ));
            }
        };
        crate::artifacts::secure();
        // A header of our own would follow a redirect to another host, and the token with it.
        let mut client = Client::builder()
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .redirect(redirect::Policy::none());
        if let Some(path) = vars.get("VAULT_CACERT") {
            let certificates = std::fs::read(&path)
                .map_err(|error| error.to_string())
                .and_then(|pem| Certificate::from_pem_bundle(&pem).map_err(|it| it.to_string()))
                .map_err(|why| settings(format!("VAULT_CACERT `{path}` cannot be read: {why}")))?;
            if certificates.is_empty() {
                return Err(settings(format!(
                    "VAULT_CACERT `{path}` holds no certificate"
                )));
            }
            client = client.tls_certs_merge(certificates);
        }
        let client = client
            .build()
            .map_err(|error| settings(format!("no connection to Vault can be made: {error}")))?;
        Ok(VaultProvider {
            client,
            address: address.trim_end_matches('/').to_owned(),
            token,
            namespace: vars.get("VAULT_NAMESPACE"),
            mount: vars
                .get("STEPWELL_VAULT_MOUNT")
                .unwrap_or_else(|| MOUNT.to_owned()),
        })
    }

    /// What is at `path` of the engine at `mount`.
    async fn read(&self, mount: &str, path: &str) -> Result<Option<Json>, SecretError> {
        let reference = format!("vault://{mount}/{path}");
        let Some(url) = self.url(mount, path) else {
            return Err(SecretError::not_found(
                &reference,
                "write vault://MOUNT/PATH#FIELD, without empty parts and dots",
            ));
        };
        let mut pauses = PAUSES.into_iter();
        loop {
            match (self.ask(&url, &reference).await, pauses.next()) {
                (Ok(found), _) => return Ok(found),
                (Err(VaultFailure::Passing(_)), Some(pause)) => tokio::time::sleep(pause).await,
                (Err(VaultFailure::Passing(why)), None) => {
                    return Err(SecretError::provider(&reference, why));
                }
                (Err(VaultFailure::Final(error)), _) => return Err(error),
            }
        }
    }

    fn url(&self, mount: &str, path: &str) -> Option<String> {
        let mut url = format!("{}/v1/{}/data", self.address, encoded(mount)?);
        for part in path.split('/') {
            url.push('/');
            url.push_str(&encoded(part)?);
        }
        Some(url)
    }

    async fn ask(&self, url: &str, reference: &str) -> Result<Option<Json>, VaultFailure> {
        let mut request = self
            .client
            .get(url)
            .header(
                "X-Vault-Token",
                self.token(reference).map_err(VaultFailure::Final)?,
            )
            .header("X-Vault-Request", "true");
        if let Some(namespace) = &self.namespace {
            request = request.header("X-Vault-Namespace", namespace);
        }
        let response = request.send().await.map_err(|error| {
            let why = match error.is_timeout() {
                true => "it did not answer in time".to_owned(),
                false => root_of(&error),
            };
            VaultFailure::Passing(format!("Vault was not reached at {}: {why}", self.address))
        })?;
        let denied = |why: String| {
            VaultFailure::Final(SecretError::Denied {
                reference: reference.to_owned(),
                why,
            })
        };
        match response.status() {
            StatusCode::OK => body(response, reference).await.map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(denied(
                "Vault says that the token is not valid or has no policy for this path".into(),
            )),
            StatusCode::SERVICE_UNAVAILABLE => Err(VaultFailure::Passing(
                "Vault is sealed or in maintenance; unseal it".into(),
            )),
            status if status.is_redirection() => Err(denied(
                "Vault sends us to another address; set VAULT_ADDR to the active node".into(),
            )),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(VaultFailure::Passing(format!("Vault answered {status}")))
            }
            status => Err(denied(format!(
                "Vault answered {status}; is it a key-value engine of version 2?"
            ))),
        }
    }

    fn token(&self, reference: &str) -> Result<String, SecretError> {
        match &self.token {
            VaultToken::Text(text) => Ok(text.clone()),
            VaultToken::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(text.trim().to_owned()),
                Err(error) => Err(SecretError::provider(
                    reference,
                    format!("VAULT_TOKEN_FILE `{}`: {error}", path.display()),
                )),
            },
        }
    }
}

/// The secret's fields: `data.data` of the answer.
async fn body(mut response: Response, reference: &str) -> Result<Json, VaultFailure> {
    let unreadable = |why: &str| VaultFailure::Final(SecretError::provider(reference, why));
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(_) => return Err(VaultFailure::Passing("Vault's answer broke off".into())),
        }
        if bytes.len() > SECRET_BYTES {
            return Err(unreadable("it has more than 64 KiB"));
        }
    }
    let mut answer: Json = serde_json::from_slice(&bytes)
        .map_err(|_| unreadable("Vault's answer is not JSON; is VAULT_ADDR right?"))?;
    match answer.pointer_mut("/data/data").map(Json::take) {
        Some(fields @ Json::Object(_)) => Ok(fields),
        _ => Err(unreadable(
            "Vault's answer has no `data.data`; is it a key-value engine of version 2?",
        )),
    }
}

/// What an error comes from: a refused connection, a certificate that nobody vouches for.
fn root_of(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// A part of a path for a URL; none if it would lead elsewhere.
fn encoded(part: &str) -> Option<String> {
    if part.is_empty() || part == "." || part == ".." {
        return None;
    }
    let mut url = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            url.push(byte.into());
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(url)
}

impl Provider for VaultProvider {
    fn scheme(&self) -> &'static str {
        "vault"
    }

    fn named<'a>(&'a self, name: &'a str) -> SecretFuture<'a> {
        Box::pin(self.read(&self.mount, name))
    }

    fn direct<'a>(&'a self, address: &'a str) -> SecretFuture<'a> {
        Box::pin(async move {
            let (mount, path) = address.split_once('/').unwrap_or((address, ""));
            self.read(mount, path).await
        })
    }
}
