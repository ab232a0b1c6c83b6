//! Maintenance: what belongs to the store as a whole.

use super::Result;

/// The store as a whole.
pub trait Maintenance {
    /// The secret that completion tokens are made with. It is made once and never changes, so that a
    /// token which was given out before a crash is accepted after it.
    ///
    /// Durable on return: the secret.
    ///
    /// Crash before the return: no token was made with a secret that is not durable.
    ///
    /// Twice: the same secret.
    fn secret(&self) -> Result<[u8; 32]>;

    /// Looks for damage: the database's own check, and the rows against each other.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the findings of then.
    fn check(&self) -> Result<Health>;

    /// How many bytes the store takes on disk; zero in memory.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the size of then.
    fn bytes(&self) -> Result<u64>;
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The version of the schema.
    pub schema: i64,
    /// How many runs there are.
    pub runs: u64,
    /// How many have not ended.
    pub open: u64,
    /// What is wrong, in words; empty if nothing is.
    pub problems: Vec<String>,
}
