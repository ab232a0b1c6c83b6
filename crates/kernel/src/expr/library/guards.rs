//! Guards: filters that the scanner splices in around operators and assignments, so that
//! nothing grows or nests without being charged for. Where they go is decided in
//! `scan/guards.rs`; those around `<` are in `ordering.rs`. No template names one itself.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, State, Value};

use super::meter::{charge, charge_value, text_out};
use super::{check_has_text, text_of};
use crate::expr::value::{JsonRef, too_large, type_error};

/// Lists a template may put inside each other before it is told to stop.
const MAX_NESTED: usize = 64;

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("_g", |state: &mut State<'_, '_>, value: Value| {
        charge_value(state, &value).map(|()| value)
    });
    env.add_filter("_s", operand_of_concatenation);
    env.add_filter("_m", operand_of_multiplication);
    env.add_filter("_n", assigned);
    env.add_filter("_k", settle);
}

fn operand_of_concatenation(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    check_has_text(state, &value)?;
    match value.kind() {
        // A number may still be an operand of arithmetic that binds tighter.
        ValueKind::String | ValueKind::Undefined | ValueKind::Number => {
            charge_value(state, &value).map(|()| value)
        }
        _ => {
            let text = text_of(state, &value)?;
            text_out(state, text)
        }
    }
}

fn operand_of_multiplication(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Bool | ValueKind::Undefined | ValueKind::None => Ok(value),
        kind => Err(type_error(format!(
            "`*` multiplies numbers, not a {kind}; convert it with `| int` or `| float`"
        ))),
    }
}

/// A namespace may be kept in a variable, though not inside something that is.
fn assigned(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    if !is_namespace(&value) {
        return settle(state, value);
    }
    let mut lazy = false;
    for key in value.try_iter()? {
        inspect(state, &value.get_item(&key)?, 0, &mut lazy)?;
    }
    if lazy {
        return Err(type_error("add `| list` to what goes into a namespace"));
    }
    Ok(value)
}

fn is_namespace(value: &Value) -> bool {
    let object = value.as_object();
    object.is_some_and(|o| o.type_name().ends_with("::Namespace"))
}

/// Makes a value fit to be kept: not too deep, not too big when written out, with nothing
/// lazy in it, and no namespace, which could come to contain itself. The engine recurses
/// over all of these when it compares or drops a value.
fn settle(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let mut lazy = false;
    inspect(state, &value, 0, &mut lazy)?;
    if lazy {
        rebuild(state, &value)
    } else {
        Ok(value)
    }
}

fn inspect(
    state: &mut State<'_, '_>,
    value: &Value,
    depth: usize,
    lazy: &mut bool,
) -> Result<(), Error> {
    charge(state, 8)?;
    if depth > MAX_NESTED {
        return Err(too_large(format_args!(
            "a variable is nested more than {MAX_NESTED} deep"
        )));
    }
    if is_namespace(value) {
        return Err(type_error(
            "a namespace cannot be put inside something else",
        ));
    }
    // What came from the scope is neither lazy nor the template's doing.
    if value.downcast_object_ref::<JsonRef>().is_some() {
        return Ok(());
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            *lazy |= value.kind() == ValueKind::Iterable;
            for item in value.try_iter()?.checked() {
                inspect(state, &item?, depth + 1, lazy)?;
            }
        }
        ValueKind::Map => {
            for key in value.try_iter()?.checked() {
                inspect(state, &value.get_item(&key?)?, depth + 1, lazy)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Copies the lists a template made, down to what is not one. Only called on what
/// [`inspect`] let through, which bounds the recursion.
fn rebuild(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    charge(state, 8)?;
    if value.downcast_object_ref::<JsonRef>().is_some() {
        return Ok(value.clone());
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let mut out = Vec::new();
            for item in value.try_iter()?.checked() {
                out.push(rebuild(state, &item?)?);
            }
            Ok(Value::from(out))
        }
        ValueKind::Map => {
            let mut out = Vec::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                let item = rebuild(state, &value.get_item(&key)?)?;
                out.push((key, item));
            }
            Ok(Value::from_pairs(out))
        }
        _ => Ok(value.clone()),
    }
}
