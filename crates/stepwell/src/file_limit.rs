//! How many files and connections this process may have open: as many as the system allows. The usual limit of 1,024 is
//! for programs that use `select`, and no server does.

#[cfg(unix)]
use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as the system allows. Says how many files may be open; none if there is no limit.
#[cfg(unix)]
pub(crate) fn raise() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(not(unix))]
pub(crate) fn raise() -> Option<u64> {
    None
}
