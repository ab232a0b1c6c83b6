//! Secrets: definitions hold references, and the worker resolves them right before a tool is called.
//! A value is never written anywhere; what was resolved is known to the [`Redactor`] of the run, which
//! takes it out of everything that leaves the worker.

mod error;
mod fill;
mod forms;
mod keychain;
mod named;
mod parts;
mod provider;
mod redactor;
mod reference;
mod vault;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

pub use error::SecretError;
pub use fill::ResolvedSecrets;
pub(crate) use named::NamedSecrets;
pub use provider::{EnvVars, Provider, SecretFuture};
pub use redactor::{MASK, Redactor};

use provider::{EnvProvider, FileProvider, variable};
use reference::Reference;
use vault::VaultProvider;

/// How long a value is used before its provider is asked again.
const FRESH: Duration = Duration::from_secs(60);

/// Where secrets are kept if nobody says so.
const FOLDER: &str = "./.stepwell/secrets";

/// Resolves references to secrets. Cheap to clone.
#[derive(Clone)]
pub struct Secrets {
    inner: Arc<SecretsState>,
}

struct SecretsState {
    providers: Vec<Box<dyn Provider>>,
    seen: Mutex<HashMap<String, (Instant, Json)>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("providers", &self.schemes())
            .finish_non_exhaustive()
    }
}

/// Whether a text names a secret as a whole.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    Reference::parse(text).is_some()
}

impl Secrets {
    /// Secrets of these providers, asked in this order.
    #[must_use]
    pub fn new(providers: Vec<Box<dyn Provider>>) -> Secrets {
        Secrets {
            inner: Arc::new(SecretsState {
                providers,
                seen: Mutex::default(),
            }),
        }
    }

    /// As this process's environment says: `STEPWELL_SECRETS=env,file:/path,vault`.
    pub fn from_env() -> Result<Secrets, SecretError> {
        Secrets::from_vars(&EnvVars::of_process())
    }

    /// The same for definitions that reach only what is opened for them: of the variables of the process, only those for
    /// secrets can be named.
    pub fn confined_from_env() -> Result<Secrets, SecretError> {
        Secrets::read(&EnvVars::of_process(), true)
    }

    /// As these variables say.
    pub fn from_vars(vars: &EnvVars) -> Result<Secrets, SecretError> {
        Secrets::read(vars, false)
    }

    fn read(vars: &EnvVars, confined: bool) -> Result<Secrets, SecretError> {
        let env = |vars: &EnvVars| env(vars, confined);
        let Some(list) = vars.get("STEPWELL_SECRETS") else {
            let mut providers: Vec<Box<dyn Provider>> = vec![env(vars)];
            if Path::new(FOLDER).is_dir() {
                providers.push(folder(FOLDER));
            }
            return Ok(Secrets::new(providers));
        };
        let mut providers: Vec<Box<dyn Provider>> = Vec::new();
        for name in list.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            providers.push(match name.split_once(':') {
                None if name == "env" => env(vars),
                None if name == "vault" => Box::new(VaultProvider::from_vars(vars)?),
                Some(("file", path)) if !path.is_empty() => folder(path),
                _ => {
                    return Err(SecretError::Settings(format!(
                        "STEPWELL_SECRETS names the provider `{name}`, which there is not; \
                         there are `env`, `file:FOLDER` and `vault`"
                    )));
                }
            });
        }
        Ok(Secrets::new(providers))
    }

    /// The value that a reference stands for: a text, or a mapping.
    pub async fn resolve(&self, reference: &str) -> Result<Json, SecretError> {
        match Reference::parse(reference) {
            None => Err(SecretError::not_found(
                reference,
                "this is no reference; write secret://NAME or secret://NAME/FIELD",
            )),
            Some(Reference::Named(name)) => self.named(reference, name).await,
            Some(Reference::Direct {
                scheme,
                address,
                field,
            }) => self.direct(reference, scheme, address, field).await,
        }
    }

    /// The credential of a name, as `auth` of a task says it; a reference is taken too.
    pub async fn credential(&self, name: &str) -> Result<Json, SecretError> {
        if is_reference(name) {
            return self.resolve(name).await;
        }
        self.named(name, name).await
    }

    /// A name is looked for as a name and a field, then as a whole, in one provider after the other.
    async fn named(&self, reference: &str, name: &str) -> Result<Json, SecretError> {
        for provider in &self.inner.providers {
            let provider = provider.as_ref();
            let mut refused = None;
            if let Some((head, field)) = name.rsplit_once('/') {
                match self.look(provider, reference, head, false).await {
                    Ok(None) => {}
                    Ok(Some(value)) => match pick(reference, value, field) {
                        Ok(value) => return Ok(value),
                        Err(error) => refused = Some(error),
                    },
                    // A policy may allow one path and not the other.
                    Err(error @ SecretError::Denied { .. }) => refused = Some(error),
                    Err(error) => return Err(error),
                }
            }
            match (self.look(provider, reference, name, false).await, refused) {
                (Ok(Some(value)), _) => return Ok(value),
                (Ok(None), None) => {}
                (Ok(None) | Err(SecretError::Denied { .. }), Some(error)) => return Err(error),
                (Err(error), _) => return Err(error),
            }
        }
        Err(SecretError::not_found(reference, self.looked_in(name)))
    }

    async fn direct(
        &self,
        reference: &str,
        scheme: &str,
        address: &str,
        field: Option<&str>,
    ) -> Result<Json, SecretError> {
        let providers = &self.inner.providers;
        let Some(provider) = providers.iter().find(|it| it.scheme() == scheme) else {
            return Err(SecretError::not_found(
                reference,
                format!(
                    "the provider for {scheme}:// is not configured; add it to STEPWELL_SECRETS"
                ),
            ));
        };
        let found = self
            .look(provider.as_ref(), reference, address, true)
            .await?;
        let value = found
            .ok_or_else(|| SecretError::not_found(reference, "its provider does not have it"))?;
        match field {
            Some(field) => pick(reference, value, field),
            None => Ok(value),
        }
    }

    /// Asks one provider, or remembers what it said not long ago.
    async fn look(
        &self,
        provider: &dyn Provider,
        reference: &str,
        address: &str,
        is_direct: bool,
    ) -> Result<Option<Json>, SecretError> {
        if address.is_empty() {
            return Err(SecretError::not_found(reference, "it names nothing"));
        }
        let key = format!("{} {is_direct} {address}", provider.scheme());
        if let Some((at, value)) = self.seen().get(&key)
            && at.elapsed() < FRESH
        {
            return Ok(Some(value.clone()));
        }
        let found = match is_direct {
            true => provider.direct(address).await?,
            false => provider.named(address).await?,
        };
        let mut seen = self.seen();
        seen.retain(|_, (at, _)| at.elapsed() < FRESH);
        if let Some(value) = &found {
            seen.insert(key, (Instant::now(), value.clone()));
        }
        Ok(found)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Json)>> {
        let seen = self.inner.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner)
    }

    fn schemes(&self) -> Vec<&'static str> {
        self.inner.providers.iter().map(|it| it.scheme()).collect()
    }

    fn looked_in(&self, name: &str) -> String {
        let schemes = self.schemes();
        if schemes.is_empty() {
            return "no provider is configured; set STEPWELL_SECRETS".to_owned();
        }
        let mut text = format!("none of these has it: {}", schemes.join(", "));
        if schemes.contains(&"env") {
            text.push_str(&format!("; the variable would be {}", variable(name)));
        }
        text
    }
}

fn env(vars: &EnvVars, confined: bool) -> Box<dyn Provider> {
    Box::new(EnvProvider {
        vars: vars.clone(),
        confined,
    })
}

fn folder(path: &str) -> Box<dyn Provider> {
    Box::new(FileProvider {
        folder: path.into(),
    })
}

/// One field of a secret that is a mapping.
fn pick(reference: &str, mut value: Json, field: &str) -> Result<Json, SecretError> {
    match value.get_mut(field) {
        Some(found) => Ok(found.take()),
        None => Err(SecretError::not_found(
            reference,
            format!("the secret is there, but it has no field `{field}`"),
        )),
    }
}
