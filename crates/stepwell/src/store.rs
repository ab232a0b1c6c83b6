//! The option `--store`, and how the address of the store is shown.

use std::sync::Arc;

use clap::Args;
use stepwell_engine::store::{Result, Store, StoreError, StoreErrorKind};
use stepwell_stores::{Address, OpenMode, without_password};

/// The default store, relative to the working directory.
const DEFAULT: &str = "sqlite:.stepwell/stepwell.db";

/// The environment variable with the store for commands without `--store`.
const VARIABLE: &str = "STEPWELL_STORE";

/// The option for the store.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Store of the runs: sqlite:PATH, postgresql://USER:PASSWORD@HOST/DATABASE[?schema=NAME]
    /// or memory: [default: the variable STEPWELL_STORE, else sqlite:.stepwell/stepwell.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl StoreArgs {
    /// The value of `--store` on the command line.
    pub(crate) fn named(&self) -> Option<&str> {
        self.store.as_deref()
    }

    fn url(&self) -> String {
        let set = || std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
        let url = self.store.clone().or_else(set);
        url.unwrap_or_else(|| DEFAULT.to_owned())
    }

    pub(crate) fn address(&self) -> Result<Address> {
        Address::parse(&self.url())
    }

    /// Opens the store for reading; also works while another process owns it.
    pub(crate) fn read(&self) -> Result<Arc<dyn Store>> {
        self.address()?.open(OpenMode::ReadOnly)
    }

    /// Opens an existing store as its owner; does not create a store.
    pub(crate) fn own_existing(&self) -> Result<Arc<dyn Store>> {
        let address = self.address()?;
        if let Address::Sqlite(path) = &address
            && !path.exists()
        {
            // Returns the error that the file does not exist.
            return address.open(OpenMode::ReadOnly);
        }
        address.open(OpenMode::Own)
    }

    /// Opens the store as its owner, or as a guest if another process owns it.
    pub(crate) fn own_or_visit(&self) -> Result<(Arc<dyn Store>, OpenMode)> {
        match self.own_existing() {
            Ok(store) => Ok((store, OpenMode::Own)),
            Err(StoreError {
                kind: StoreErrorKind::Held,
                ..
            }) => {
                let store = self.address()?.open(OpenMode::Guest)?;
                Ok((store, OpenMode::Guest))
            }
            Err(error) => Err(error),
        }
    }

    /// The address of the store without its password.
    pub(crate) fn shown(&self) -> String {
        without_password(&self.url())
    }

    /// ` --store URL` for commands that are shown to the user.
    pub(crate) fn flag(&self) -> String {
        match &self.store {
            Some(url) => format!(" --store {}", word(&without_password(url))),
            None => String::new(),
        }
    }
}

/// Quotes one word for a shell.
pub(crate) fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+~%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_shells_want_it() {
        assert_eq!(word("it's"), "'it'\\''s'");
    }
}
