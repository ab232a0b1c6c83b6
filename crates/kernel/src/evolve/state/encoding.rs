//! A state as bytes, so that the log before it need not be read. The bytes are a shortcut, never the
//! truth: bytes that cannot be decoded are ignored and the log is folded instead.

use super::State;
use crate::plan::Plan;

/// The number of the encoding. Raise it with every change of what `State` holds or of how that is
/// written; bytes with another number are ignored.
pub const FORMAT: i32 = 1;

impl State {
    /// The state as bytes that `decode` of the same format reads back exactly.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Every key is a text or a number, so there is a JSON form; empty bytes are never decoded.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads an encoded state of a run of this plan. `None` if the bytes have another format, cannot be
    /// read, or belong to a plan of another size.
    #[must_use]
    pub fn decode(version: i32, bytes: &[u8], plan: &Plan) -> Option<State> {
        if version != FORMAT {
            return None;
        }
        let state: State = serde_json::from_slice(bytes).ok()?;
        let fits = state.steps.len() == plan.len() && state.marks.len() == plan.net().edges.len();
        fits.then_some(state)
    }
}

/// Optional JSON values. JSON writes both "no value" and "the value null" as null; here a value is put
/// into a list of one.
pub(super) mod maybe {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value as Json;

    #[allow(
        clippy::ref_option,
        reason = "serde's with passes a reference to the field"
    )]
    pub(in super::super) fn serialize<S: Serializer>(
        value: &Option<Arc<Json>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(|value| [value]).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Arc<Json>>, D::Error> {
        let value = Option::<[Arc<Json>; 1]>::deserialize(deserializer)?;
        Ok(value.map(|[value]| value))
    }
}
