//! Snapshots of the state with a seal: the hash of the last event that the state contains, from which the
//! hash chain goes on, and a hash over everything. A snapshot whose seal does not fit is not used; the
//! state is then folded from the whole log.

use sha2::{Digest as _, Sha256};
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::{FORMAT, State};

use crate::store::StateSnapshot;

/// Added to the version of the state's format: a snapshot with a seal. Older programs do not know the
/// version and fold the log.
const SEALED: i32 = 1 << 16;

/// Bytes after the state: the hash of its last event, and the seal.
const HASH: usize = 32;

/// The state of a run whose last event has this hash.
pub(super) fn seal(state: &State, hash: &[u8; HASH]) -> StateSnapshot {
    let mut body = state.encode();
    body.extend_from_slice(hash);
    let (version, seq) = (FORMAT + SEALED, state.seq());
    let seal = seal_of(version, seq, state.run_id(), &body);
    body.extend_from_slice(&seal);
    StateSnapshot { seq, version, body }
}

/// The state of a snapshot and the hash of its last event, if the seal fits.
pub(super) fn open(frozen: &StateSnapshot, run_id: &str, plan: &Plan) -> Option<(State, String)> {
    let (sealed, seal) = frozen.body.split_last_chunk::<HASH>()?;
    if seal_of(frozen.version, frozen.seq, run_id, sealed) != *seal {
        return None;
    }
    let (state, hash) = sealed.split_last_chunk::<HASH>()?;
    let state = State::decode(frozen.version.checked_sub(SEALED)?, state, plan)?;
    let fits = state.seq() == frozen.seq && state.run_id() == run_id;
    fits.then(|| (state, hex(hash)))
}

/// Whether a snapshot is as it was sealed. Those of older programs have no seal, and nobody uses them.
pub(crate) fn is_whole(frozen: &StateSnapshot, run_id: &str, plan: &Plan) -> bool {
    frozen.version < SEALED || open(frozen, run_id, plan).is_some()
}

fn seal_of(version: i32, seq: u64, run_id: &str, sealed: &[u8]) -> [u8; HASH] {
    let mut hasher = Sha256::new();
    hasher.update(version.to_be_bytes());
    hasher.update(seq.to_be_bytes());
    hasher.update((run_id.len() as u64).to_be_bytes());
    hasher.update(run_id);
    hasher.update(sealed);
    hasher.finalize().into()
}
