//! What one evaluation has built so far, and the limit on it.
//!
//! Only bytes are counted here; instructions are the engine's fuel, and the size of a
//! result is counted in `value.rs`.

use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

use crate::expr::MAX_WORK;
use crate::expr::value::too_large;

#[derive(Debug, Default)]
struct Meter {
    work: usize,
}

/// Counts bytes about to be built; an error once they are too many.
pub(super) fn charge(state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
    let meter = state.get_or_insert_extension_with(Meter::default);
    meter.work = meter.work.saturating_add(bytes);
    if meter.work > MAX_WORK {
        return Err(too_large(format_args!(
            "the template builds more than {} MiB while it runs",
            MAX_WORK >> 20
        )));
    }
    Ok(())
}

/// Charges for a value, not looking inside lists.
pub(super) fn charge_value(state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let weight = match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            value.len().unwrap_or(1024).saturating_mul(24)
        }
        _ => 1,
    };
    charge(state, weight)
}

/// Charges for a text and makes it a value.
pub(super) fn text_out(state: &mut State<'_, '_>, text: String) -> Result<Value, Error> {
    charge(state, text.len())?;
    Ok(Value::from(text))
}
