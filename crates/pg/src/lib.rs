//! How to connect to PostgreSQL, for the store and for the tool `postgres`: the parameters that libpq
//! documents, read from an address, a service file and the `PG*` variables; TLS; several hosts.
//!
//! - `parameters`: what can be said, and where from; `conninfo`: reading an address; `files`: the
//!   password file and the service file.
//! - `tls`: encryption, and how much of the server's certificate is checked; `certificate`: what is read of a
//!   certificate that is trusted as it is.
//! - `connector`: makes connections.
//!
//! No statement of the engine or of a task is here, and no pool.
//!
//! ```
//! use stepwell_pg::{Connector, Environment, Parameters};
//!
//! let address = "postgresql://me@db1,db2:5433/orders?sslmode=verify-full&target_session_attrs=primary";
//! let parameters = Parameters::parse(address)?.with_defaults(&Environment::none())?;
//! let connector = Connector::new(&parameters)?;
//! assert_eq!(connector.hosts(), ["db1:5433", "db2:5433"]);
//! # Ok::<(), stepwell_pg::ParameterError>(())
//! ```

#![warn(clippy::wildcard_enum_match_arm)]

mod certificate;
mod connector;
mod conninfo;
mod files;
mod parameters;
mod tls;

pub use connector::{CancelHandle, ConnectError, Connected, Connector, Messages};
pub use parameters::{Environment, NAMES, ParameterError, Parameters};
