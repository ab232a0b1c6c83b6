//! Which store a command works on, and how its address is shown.

use std::sync::Arc;

use clap::Args;
use stepwell_engine::store::{Result, Store, StoreError, StoreErrorKind};
use stepwell_stores::{Address, OpenMode, without_password};

/// Where runs are kept if nobody says otherwise: below the directory where the command is called.
const DEFAULT: &str = "sqlite:.stepwell/stepwell.db";

/// The default, for whoever has no `--store`.
const VARIABLE: &str = "STEPWELL_STORE";

/// Where the runs are.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Where the runs are kept: sqlite:PATH, postgresql://USER:PASSWORD@HOST/DATABASE[?schema=NAME]
    /// or memory: [default: the variable STEPWELL_STORE, else sqlite:.stepwell/stepwell.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl StoreArgs {
    /// The store that was named on the command line.
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

    /// For reading, also beside an owner.
    pub(crate) fn read(&self) -> Result<Arc<dyn Store>> {
        self.address()?.open(OpenMode::ReadOnly)
    }

    /// For everything; one that must be there is not made.
    pub(crate) fn own_existing(&self) -> Result<Arc<dyn Store>> {
        let address = self.address()?;
        if let Address::Sqlite(path) = &address
            && !path.exists()
        {
            // Says that it is not there.
            return address.open(OpenMode::ReadOnly);
        }
        address.open(OpenMode::Own)
    }

    /// For commands: as owner, or where someone else is that, as a guest.
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

    /// The store for people, without a password.
    pub(crate) fn shown(&self) -> String {
        without_password(&self.url())
    }

    /// ` --store URL` where a command that goes on needs it.
    pub(crate) fn flag(&self) -> String {
        match &self.store {
            Some(url) => format!(" --store {}", word(&without_password(url))),
            None => String::new(),
        }
    }
}

/// A word of a command line, as a shell takes it.
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
