//! What may be ordered with what: the guards around `<` and its kin, and the tests named
//! after them. As in Python, values of different kinds have no order.

use std::cmp::Ordering;
use std::collections::HashMap;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};

use crate::expr::value::type_error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparable {
    Number,
    Text,
    List,
}

/// The kind of the left side of each comparison under way, by its place in the source.
#[derive(Debug, Default)]
struct Compared(HashMap<u32, Comparable>);

fn compared<'s>(state: &'s mut State<'_, '_>) -> &'s mut HashMap<u32, Comparable> {
    &mut state.get_or_insert_extension_with(Compared::default).0
}

fn comparable(value: &Value) -> Result<Comparable, Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Bool => Ok(Comparable::Number),
        ValueKind::String => Ok(Comparable::Text),
        ValueKind::Seq | ValueKind::Iterable => Ok(Comparable::List),
        ValueKind::Undefined => Err(Error::new(
            ErrorKind::UndefinedError,
            "cannot order an undefined value; give it one with `| default(0)`",
        )),
        kind => Err(type_error(format!(
            "cannot order a {kind}; give it a value with `| default(0, true)`"
        ))),
    }
}

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("_o", |value: Value| comparable(&value).map(|_| value));
    env.add_filter("_l", left);
    env.add_filter("_r", right);
    // Named tests order like the operators do, so they refuse what those refuse.
    for name in ["lt", "lessthan", "<"] {
        env.add_test(name, |a: Value, b: Value| {
            order(&a, &b).map(Ordering::is_lt)
        });
    }
    for name in ["gt", "greaterthan", ">"] {
        env.add_test(name, |a: Value, b: Value| {
            order(&a, &b).map(Ordering::is_gt)
        });
    }
    for name in ["le", "<="] {
        env.add_test(name, |a: Value, b: Value| {
            order(&a, &b).map(Ordering::is_le)
        });
    }
    for name in ["ge", ">="] {
        env.add_test(name, |a: Value, b: Value| {
            order(&a, &b).map(Ordering::is_ge)
        });
    }
}

fn left(state: &mut State<'_, '_>, value: Value, id: u32) -> Result<Value, Error> {
    let kind = comparable(&value)?;
    compared(state).insert(id, kind);
    Ok(value)
}

fn right(state: &mut State<'_, '_>, value: Value, id: u32) -> Result<Value, Error> {
    let kind = comparable(&value)?;
    match compared(state).remove(&id) {
        Some(left) if left != kind => Err(type_error(format!(
            "cannot order a {left:?} and a {kind:?}; convert one with `| int`, \
             `| float` or `| string`"
        ))),
        _ => Ok(value),
    }
}

fn order(a: &Value, b: &Value) -> Result<Ordering, Error> {
    if comparable(a)? != comparable(b)? {
        return Err(type_error("cannot order values of different kinds"));
    }
    Ok(a.cmp(b))
}
