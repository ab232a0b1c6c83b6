//! The port of secret providers, and the two that need no server: environment variables and files.

use std::fmt;
use std::future::Future;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value as Json;

use super::error::SecretError;

/// A larger secret is none; it would have to be searched for in every line of every log.
pub(super) const SECRET_BYTES: usize = 64 << 10;

/// What a provider's work gives back: the value, or none if it has no such secret.
pub type SecretFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Json>, SecretError>> + Send + 'a>>;

/// Where secrets come from. A provider never writes a value to a log or into an error.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The scheme of references that only this provider answers: `env`, `secretfile`, `vault`.
    fn scheme(&self) -> &'static str;

    /// The secret of this name.
    fn named<'a>(&'a self, name: &'a str) -> SecretFuture<'a>;

    /// The secret at an address of this provider's own.
    fn direct<'a>(&'a self, address: &'a str) -> SecretFuture<'a>;
}

/// Environment variables, of this process or made up.
#[derive(Clone)]
pub struct EnvVars(Arc<ReadVar>);

type ReadVar = dyn Fn(&str) -> Option<String> + Send + Sync;

impl fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vars")
    }
}

impl EnvVars {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> EnvVars {
        EnvVars::new(|name| std::env::var(name).ok())
    }

    /// Whatever a function says.
    pub fn new(read: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> EnvVars {
        EnvVars(Arc::new(read))
    }

    /// A variable's value; an empty one is none.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }
}

/// Secrets in environment variables: `db-main` is `STEPWELL_SECRET_DB_MAIN`.
#[derive(Debug)]
pub(super) struct EnvProvider {
    pub(super) vars: EnvVars,
    /// Whether only variables for secrets can be named, and not those of the process itself.
    pub(super) confined: bool,
}

impl Provider for EnvProvider {
    fn scheme(&self) -> &'static str {
        "env"
    }

    fn named<'a>(&'a self, name: &'a str) -> SecretFuture<'a> {
        Box::pin(async move { Ok(self.vars.get(&variable(name)).map(value_of)) })
    }

    fn direct<'a>(&'a self, address: &'a str) -> SecretFuture<'a> {
        Box::pin(async move {
            if self.confined && !address.starts_with(VARIABLE) {
                let why = format!(
                    "a variable for secrets begins with {VARIABLE}, and definitions are confined (`confine` of [security])"
                );
                return Err(SecretError::not_found(address, why));
            }
            Ok(self.vars.get(address).map(value_of))
        })
    }
}

/// What the names of variables for secrets begin with.
const VARIABLE: &str = "STEPWELL_SECRET_";

/// The variable that holds a secret.
pub(super) fn variable(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
            _ => '_',
        })
        .collect();
    format!("{VARIABLE}{name}")
}

/// Secrets in a folder, one file each, `NAME` or `NAME.json`.
#[derive(Debug)]
pub(super) struct FileProvider {
    pub(super) folder: PathBuf,
}

impl Provider for FileProvider {
    fn scheme(&self) -> &'static str {
        "secretfile"
    }

    fn named<'a>(&'a self, name: &'a str) -> SecretFuture<'a> {
        Box::pin(async move {
            // Whatever leads elsewhere is no name of a file here.
            let is_safe = !name.is_empty()
                && !name.starts_with('.')
                && !name.contains(['/', '\\', '\0'])
                && name.len() <= 200;
            if !is_safe {
                return Ok(None);
            }
            for file in [name.to_owned(), format!("{name}.json")] {
                match read(&self.folder.join(&file)) {
                    Ok(text) => return Ok(Some(value_of(text))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(SecretError::provider(name, error.to_string())),
                }
            }
            Ok(None)
        })
    }

    fn direct<'a>(&'a self, address: &'a str) -> SecretFuture<'a> {
        self.named(address)
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = std::fs::File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if about.permissions().mode() & 0o077 != 0 {
        tracing::warn!(
            file = %path.display(),
            "others can read this secret; `chmod 600` it"
        );
    }
    let mut text = String::new();
    file.take(SECRET_BYTES as u64 + 1)
        .read_to_string(&mut text)?;
    if text.len() > SECRET_BYTES {
        return Err(io::Error::other("it has more than 64 KiB"));
    }
    // Editors end a file with a line's end that is not part of the secret.
    let end = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(end);
    Ok(text)
}

/// A mapping if the text is one in JSON, else the text.
pub(super) fn value_of(text: String) -> Json {
    if text.trim_start().starts_with('{')
        && let Ok(value @ Json::Object(_)) = serde_json::from_str(&text)
    {
        return value;
    }
    Json::String(text)
}
