//! The options `--store` and `--store-patience`, and how the address of the store is shown.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use stepwell_engine::store::{Patience, PatientStore, Result, Store, StoreError, StoreErrorKind};
use stepwell_stores::sqlite::exposed;
use stepwell_stores::{Address, OpenMode, without_password};

use crate::log;
use crate::patience::StorePatience;

/// The default store, relative to the working directory.
const DEFAULT: &str = "sqlite:.stepwell/stepwell.db";

/// The environment variable with the store for commands without `--store`.
const VARIABLE: &str = "STEPWELL_STORE";

/// The environment variable with the patience for commands without `--store-patience`.
const PATIENCE_VARIABLE: &str = "STEPWELL_STORE_PATIENCE";

/// The options for the store.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Store of the runs: sqlite:PATH, postgresql://USER:PASSWORD@HOST/DATABASE[?schema=NAME]
    /// or memory: [default: the variable STEPWELL_STORE, else sqlite:.stepwell/stepwell.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How long to wait for a store or a server that does not answer, or for a store that another process owns: a duration such as
    /// 30s, 0, or forever [default: the variable STEPWELL_STORE_PATIENCE, else 1m]
    #[arg(long, value_name = "DURATION")]
    store_patience: Option<StorePatience>,
}

/// An open store, and the patience of the command that opened it.
pub(crate) struct OpenStore {
    store: Arc<dyn Store>,
    pub(crate) patience: Arc<Patience>,
}

impl fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStore").finish_non_exhaustive()
    }
}

impl OpenStore {
    /// The same patience with another store.
    pub(crate) fn with(self, store: Arc<dyn Store>) -> OpenStore {
        OpenStore { store, ..self }
    }

    /// The store itself, for who waits in another way.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// The store for this command: its calls wait until they are answered.
    pub(crate) fn patient(&self) -> Arc<dyn Store> {
        self.waiting()
    }

    fn waiting(&self) -> Arc<PatientStore> {
        let patience = Arc::clone(&self.patience);
        Arc::new(PatientStore::new(Arc::clone(&self.store), patience))
    }

    /// Starts something that opens the store by itself and then tries again by itself, such as an engine: only its
    /// first calls wait.
    pub(crate) fn start<T, E>(
        &self,
        start: impl FnOnce(Arc<dyn Store>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let store = self.waiting();
        let started = start(Arc::clone(&store) as Arc<dyn Store>);
        store.only_notes();
        started
    }
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

    /// Whether an option or a variable names the store.
    pub(crate) fn is_chosen(&self) -> bool {
        let set = || std::env::var_os(VARIABLE).is_some_and(|it| !it.is_empty());
        self.store.is_some() || set()
    }

    fn patience(&self) -> Result<Arc<Patience>> {
        Ok(self.stated_patience()?.start())
    }

    /// How long to wait for what does not answer; absent: forever.
    pub(crate) fn limit(&self) -> Result<Option<Duration>> {
        Ok(self.stated_patience()?.limit())
    }

    fn stated_patience(&self) -> Result<StorePatience> {
        let set = || {
            std::env::var(PATIENCE_VARIABLE)
                .ok()
                .filter(|it| !it.is_empty())
        };
        match (self.store_patience, set()) {
            (Some(limit), _) => Ok(limit),
            (None, None) => Ok(StorePatience::default()),
            (None, Some(text)) => text.parse().map_err(|help| {
                let what = format!("the variable {PATIENCE_VARIABLE} is {text:?}; {help}");
                StoreError::new(StoreErrorKind::Unusable, what)
            }),
        }
    }

    /// Opens a store, which is waited for.
    pub(crate) fn open(&self, address: &Address, mode: OpenMode) -> Result<OpenStore> {
        self.open_if(address, mode, |_| true)
    }

    /// Opens a store, which is waited for after errors of kinds that may pass and that `waits` allows.
    fn open_if(
        &self,
        address: &Address,
        mode: OpenMode,
        waits: impl Fn(StoreErrorKind) -> bool,
    ) -> Result<OpenStore> {
        let patience = self.patience()?;
        // A file or a folder that may not be written stays so; a server may be read-only until a failover is over.
        let is_server = matches!(address, Address::Postgres { .. });
        let passes = |kind: StoreErrorKind| {
            let stays = kind == StoreErrorKind::ReadOnly && !is_server;
            let passes = kind == StoreErrorKind::Held || kind.may_pass();
            passes && !stays && waits(kind)
        };
        let store = patience.keep_store(passes, || address.open(mode))?;
        if let Address::Sqlite(path) = address {
            self.warn_if_exposed(path);
        }
        Ok(OpenStore { store, patience })
    }

    /// A store has the inputs and outputs of all runs in it: others should not read it.
    fn warn_if_exposed(&self, path: &Path) {
        let open = exposed(path);
        if !open.is_empty() {
            let files: Vec<String> = open.iter().map(|it| it.display().to_string()).collect();
            log::line(&format!(
                "warning: other users can read {}; `stepwell db protect{}` takes their rights away",
                files.join(", "),
                self.flag(),
            ));
        }
    }

    /// Opens the store for reading; also works while another process owns it.
    pub(crate) fn read(&self) -> Result<Arc<dyn Store>> {
        Ok(self.open(&self.address()?, OpenMode::ReadOnly)?.patient())
    }

    /// Opens an existing store beside its owner: to read, to send messages, and for snapshots and alerts.
    pub(crate) fn visit(&self) -> Result<Arc<dyn Store>> {
        Ok(self.open(&self.existing()?, OpenMode::Guest)?.patient())
    }

    /// The address of a store that is there, if that can be said without opening it. Else the error.
    fn existing(&self) -> Result<Address> {
        let address = self.address()?;
        if let Address::Sqlite(path) = &address
            && !path.exists()
        {
            // Returns the error that the file does not exist.
            address.open(OpenMode::ReadOnly)?;
        }
        Ok(address)
    }

    /// Opens an existing store as its owner; does not create a store. Waits for another owner.
    pub(crate) fn own_existing(&self) -> Result<OpenStore> {
        self.open(&self.existing()?, OpenMode::Own)
    }

    /// Opens an existing store as its owner, unless another process owns it.
    pub(crate) fn own_if_free(&self) -> Result<Option<OpenStore>> {
        self.own_unless_held(&self.existing()?)
    }

    fn own_unless_held(&self, address: &Address) -> Result<Option<OpenStore>> {
        match self.open_if(address, OpenMode::Own, |kind| kind != StoreErrorKind::Held) {
            Ok(store) => Ok(Some(store)),
            Err(StoreError {
                kind: StoreErrorKind::Held,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the store as its owner, or as a guest if another process owns it.
    pub(crate) fn own_or_visit(&self) -> Result<(OpenStore, OpenMode)> {
        self.existing()?;
        self.own_new_or_visit()
    }

    /// The same, and creates a store that is not there.
    pub(crate) fn own_new_or_visit(&self) -> Result<(OpenStore, OpenMode)> {
        let address = self.address()?;
        match self.own_unless_held(&address)? {
            Some(store) => Ok((store, OpenMode::Own)),
            None => Ok((self.open(&address, OpenMode::Guest)?, OpenMode::Guest)),
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
