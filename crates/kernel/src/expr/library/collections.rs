//! Filters of lists and mappings, most of them the engine's own between two charges.

use minijinja::{Environment, Error, State, Value, filters};

use super::meter::{charge, charge_value};
use super::{guarded, is_missing};
use crate::expr::value::type_error;

pub(super) fn add(env: &mut Environment<'static>) {
    guarded(env, "attr", filters::attr);
    guarded(env, "dictsort", filters::dictsort);
    guarded(env, "first", first);
    guarded(env, "groupby", filters::groupby);
    guarded(env, "last", last);
    guarded(env, "list", filters::list);
    guarded(env, "map", filters::map);
    guarded(env, "max", filters::max);
    guarded(env, "min", filters::min);
    guarded(env, "reject", filters::reject);
    guarded(env, "rejectattr", filters::rejectattr);
    guarded(env, "reverse", filters::reverse);
    guarded(env, "select", filters::select);
    guarded(env, "selectattr", filters::selectattr);
    guarded(env, "sort", filters::sort);
    guarded(env, "sum", filters::sum);
    guarded(env, "unique", filters::unique);
    env.add_filter("batch", batch);
    env.add_filter("items", |value: Value| pairs(&value));
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_function("dict", minijinja::functions::dict);
    env.add_function("namespace", minijinja::functions::namespace);
}

fn batch(
    state: &mut State<'_, '_>,
    value: Value,
    count: usize,
    fill: Option<Value>,
) -> Result<Value, Error> {
    charge_value(state, &value)?;
    // Filling up the last batch makes `count` items out of one.
    charge(state, count.saturating_mul(24))?;
    filters::batch(state, value, count, fill)
}

fn length(value: Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    value
        .len()
        .ok_or_else(|| type_error(format!("a {} has no length", value.kind())))
}

fn first(value: Value) -> Result<Value, Error> {
    if is_missing(&value) {
        Ok(Value::UNDEFINED)
    } else {
        filters::first(&value)
    }
}

fn last(value: Value) -> Result<Value, Error> {
    if is_missing(&value) {
        Ok(Value::UNDEFINED)
    } else {
        filters::last(value)
    }
}

/// The keys and values of a mapping, side by side.
pub(super) fn pairs(value: &Value) -> Result<Value, Error> {
    if is_missing(value) {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    filters::items(value)
}
