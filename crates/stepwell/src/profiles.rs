//! The sections `[profiles.NAME]`: servers that commands work on, each with its address and where its token is. They are
//! in the file of the user, `~/.config/stepwell/config.toml`, and in `stepwell.toml`; a name that both have means the one
//! of the user, so that the file of a project cannot send a token elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::settings;

/// The profiles of a file, by name.
pub type Profiles = BTreeMap<String, Profile>;

/// A server that commands can work on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The address: `https://stepwell.example.com`.
    pub server: String,
    /// Where the token is. The token itself is never in the file.
    pub token: Option<TokenPlace>,
    /// The tenant that commands act for; absent: that of the token, else all tenants.
    pub tenant: Option<String>,
    /// A file with certificates that are trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// Send the token also without TLS to another machine.
    #[serde(default)]
    pub allow_http: bool,
}

/// Where a token is: in a variable of the environment, or in a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "TokenTable")]
pub enum TokenPlace {
    Env(String),
    File(PathBuf),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenTable {
    Place {
        env: Option<String>,
        file: Option<PathBuf>,
    },
    /// Someone has written the token itself.
    Other(serde::de::IgnoredAny),
}

impl TryFrom<TokenTable> for TokenPlace {
    type Error = String;

    fn try_from(table: TokenTable) -> Result<TokenPlace, String> {
        let help =
            "write where the token is: token = {env = \"NAME\"} or token = {file = \"/path\"}";
        match table {
            TokenTable::Place {
                env: Some(env),
                file: None,
            } => Ok(TokenPlace::Env(env)),
            TokenTable::Place {
                env: None,
                file: Some(file),
            } => Ok(TokenPlace::File(file)),
            TokenTable::Place { .. } => Err(help.to_owned()),
            // The text is not repeated: it may be a token.
            TokenTable::Other(_) => Err(format!("a token does not belong into this file; {help}")),
        }
    }
}

impl TokenPlace {
    /// Reads the token from its place, without the spaces around it.
    pub fn read(&self) -> Result<String, TokenUnreadable> {
        let found = match self {
            TokenPlace::Env(name) => std::env::var(name).map_err(|_| "it is not set".to_owned()),
            TokenPlace::File(path) => {
                std::fs::read_to_string(path).map_err(|error| error.to_string())
            }
        };
        let token = found.and_then(|text| match text.trim() {
            "" => Err("it is empty".to_owned()),
            text if text.contains(char::is_whitespace) => {
                Err("it has more than one word".to_owned())
            }
            text => Ok(text.to_owned()),
        });
        token.map_err(|why| TokenUnreadable {
            place: self.to_string(),
            why,
        })
    }
}

impl fmt::Display for TokenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenPlace::Env(name) => write!(f, "the variable {name}"),
            TokenPlace::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

/// A token that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the token cannot be read from {place}: {why}")]
pub struct TokenUnreadable {
    place: String,
    why: String,
}

/// The file of the user.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserFile {
    #[serde(default)]
    profiles: Profiles,
}

/// The path of the file of the user, if the user has a home.
#[must_use]
pub fn user_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|it| !it.is_empty());
    let folder = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(&set("HOME")?).join(".config")));
    Some(folder?.join("stepwell/config.toml"))
}

/// The profiles of the file of the user; none if it is not there.
pub fn of_user() -> Result<Profiles, String> {
    let Some(path) = user_file() else {
        return Ok(Profiles::new());
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Profiles::new()),
        Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
    };
    let read = toml::from_str::<UserFile>(&text);
    let read = read.map_err(|error| {
        let why = settings::fault(&text, &error);
        format!("{} cannot be used: {why}", path.display())
    });
    read.map(|file| file.profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profiles, String> {
        let file = toml::from_str::<UserFile>(text);
        file.map(|it| it.profiles)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_profile_says_where_its_token_is_and_never_has_it() {
        let all = "[profiles.prod]\nserver = 'https://a'\ntoken = {env = 'T'}\ntenant = 'acme'\nca = 'ca.pem'\n\
                   [profiles.dev]\nserver = 'http://127.0.0.1:7117'\n[profiles.f]\nserver = 'https://b'\n\
                   token = {file = '/run/t'}";
        let all = read(all).unwrap();
        assert_eq!(all["prod"].token, Some(TokenPlace::Env("T".into())));
        assert_eq!(all["f"].token, Some(TokenPlace::File("/run/t".into())));
        assert_eq!(all["dev"].token, None);
        let wrong = read("[profiles.a]\nserver = 'https://a'\ntoken = 'swt_1_secret'").unwrap_err();
        assert!(wrong.contains("does not belong into this file"), "{wrong}");
        for wrong in [
            "[profiles.a]\ntoken = {env = 'T'}",
            "[profiles.a]\nserver = 'https://a'\ntoken = {}",
            "[profiles.a]\nserver = 'https://a'\ntoken = {env = 'T', file = 'f'}",
            "[profiles.a]\nserver = 'https://a'\ntenants = 'x'",
            "[profile.a]",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_read_is_said_with_its_place() {
        let error = TokenPlace::Env("STEPWELL_NO_SUCH_TOKEN".into())
            .read()
            .unwrap_err();
        assert!(
            error.to_string().contains("STEPWELL_NO_SUCH_TOKEN"),
            "{error}"
        );
    }
}
