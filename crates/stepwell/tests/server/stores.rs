//! The stores that a test of access runs on: SQLite in the folder of the server, and PostgreSQL if the tests have one. The
//! folder of a server on PostgreSQL has a file with the address, so that commands and later servers find it there.

use std::path::Path;

use tempfile::TempDir;

use crate::harness::TestServer;

/// The file with the address of the store.
const FILE: &str = "store-address";

/// The store of a folder, if it is not the one in the folder.
pub(crate) fn store_of(folder: &Path) -> Option<String> {
    std::fs::read_to_string(folder.join(FILE)).ok()
}

/// Puts a password into the address of the store, if it has room for one. The server of the tests lets everyone in.
pub(crate) fn set_password(folder: &Path, password: &str) {
    if let Some(store) = store_of(folder) {
        let store = store.replacen('@', &format!(":{password}@"), 1);
        std::fs::write(folder.join(FILE), store).unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Sqlite,
    Postgres,
}

impl Place {
    /// A server with a configuration file; none if there is no such store here.
    pub(crate) fn server(self, config: &str) -> Option<TestServer> {
        let folder = self.folder()?;
        std::fs::write(folder.path().join("stepwell.toml"), config).unwrap();
        Some(TestServer::in_folder(folder, &[]))
    }

    /// A server that asks for tokens.
    pub(crate) fn controlled(self) -> Option<TestServer> {
        self.server("[server]\naccess = 'tokens'\n")
    }

    /// The folder of a server to be.
    pub(crate) fn folder(self) -> Option<TempDir> {
        let folder = tempfile::tempdir().unwrap();
        match self {
            Place::Sqlite => Some(folder),
            Place::Postgres => {
                let Some(store) = TestServer::postgres_store() else {
                    eprintln!("not run on PostgreSQL: STEPWELL_TEST_POSTGRES is not set");
                    return None;
                };
                std::fs::write(folder.path().join(FILE), store).unwrap();
                Some(folder)
            }
        }
    }
}

/// Makes two tests of each function that takes a [`Place`].
macro_rules! on_each_store {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::stores::Place;

            #[test]
            fn on_sqlite() {
                super::$name(Place::Sqlite);
            }

            #[test]
            fn on_postgres() {
                super::$name(Place::Postgres);
            }
        })*
    };
}

pub(crate) use on_each_store;
