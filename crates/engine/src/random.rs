//! Random bytes of the system, for secrets and for numbers that no two processes share. No other file of the engine or
//! of the stores makes random values.

use crate::store::{StoreError, StoreErrorKind};

/// Bytes from the random source of the system.
pub fn bytes<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("the system gives no random bytes: {error}");
        StoreError::new(StoreErrorKind::Unavailable, message)
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_calls_give_different_bytes() {
        assert_ne!(bytes::<32>().unwrap(), bytes::<32>().unwrap());
    }
}
