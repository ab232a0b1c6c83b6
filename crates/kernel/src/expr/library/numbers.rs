//! Filters and functions of numbers: conversion as Jinja2 does it, rounding, `range`.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, Value, filters};

use super::{argument, guarded};
use crate::expr::MAX_RANGE;
use crate::expr::value::{to_text, too_large, type_error};

pub(super) fn add(env: &mut Environment<'static>) {
    guarded(env, "abs", filters::abs);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("round", round);
    env.add_function("range", range);
}

/// Jinja2's `int`: whatever does not read as a number is the default, 0.
fn int(
    value: Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?;
    let base = argument(base, &kwargs, "base")?.unwrap_or(10);
    kwargs.assert_all_used()?;
    let int = match value.kind() {
        ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        ValueKind::Number if value.is_integer() => Some(value),
        ValueKind::Number => whole(f64::try_from(value)?),
        ValueKind::String => read_int(value.as_str().unwrap_or_default(), base),
        _ => None,
    };
    Ok(int.or(default).unwrap_or_else(|| Value::from(0)))
}

fn read_int(text: &str, base: u32) -> Option<Value> {
    let text = text.trim().replace('_', "");
    let digits = match base {
        16 => text.trim_start_matches("0x"),
        8 => text.trim_start_matches("0o"),
        2 => text.trim_start_matches("0b"),
        _ => &text,
    };
    let exact = || i64::from_str_radix(digits, base).ok();
    let exact = (2..=36).contains(&base).then(exact).flatten();
    let unsigned = || digits.parse::<u64>().ok().filter(|_| base == 10);
    exact
        .map(Value::from)
        .or_else(|| unsigned().map(Value::from))
        .or_else(|| text.parse().ok().and_then(whole))
}

/// The integer part, unless past 2^63 the cast would saturate and quietly change it.
fn whole(float: f64) -> Option<Value> {
    (float.is_finite() && float.abs() < 9.2e18).then(|| Value::from(float.trunc() as i64))
}

/// Jinja2's `float`: whatever does not read as a number is the default, 0.0.
fn float(value: Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?;
    kwargs.assert_all_used()?;
    let float = match value.as_str() {
        Some(text) => text.trim().parse::<f64>().ok().filter(|f| f.is_finite()),
        None => to_float(&value)?,
    };
    Ok(float
        .map(Value::from)
        .or(default)
        .unwrap_or_else(|| Value::from(0.0)))
}

fn to_float(value: &Value) -> Result<Option<f64>, Error> {
    Ok(match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        // `as_i64` and the checked conversion refuse integers a float cannot hold exactly.
        ValueKind::Number if value.is_integer() => to_text(value)?.parse().ok(),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    })
}

fn round(
    value: Value,
    precision: Option<i32>,
    method: Option<String>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let precision = argument(precision, &kwargs, "precision")?.unwrap_or(0);
    let method = argument(method, &kwargs, "method")?;
    kwargs.assert_all_used()?;
    let Some(number) = to_float(&value)? else {
        return Err(type_error(format!(
            "cannot round a {}; convert it with `| float`",
            value.kind()
        )));
    };
    let scale = 10f64.powi(precision.clamp(-300, 300));
    let scaled = number * scale;
    let rounded = match method.as_deref() {
        None | Some("common") => scaled.round_ties_even(),
        Some("ceil") => scaled.ceil(),
        Some("floor") => scaled.floor(),
        Some(other) => {
            return Err(type_error(format!(
                "unknown rounding `{other}`; use common, ceil or floor"
            )));
        }
    };
    // So far apart that scaling overflows, there is nothing to round.
    let out = rounded / scale;
    Ok(Value::from(if out.is_finite() { out } else { number }))
}

fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, stop) = second.map_or((0, first), |stop| (first, stop));
    let step = i128::from(step.unwrap_or(1));
    if step == 0 {
        return Err(type_error("`range` needs a step other than 0"));
    }
    let span = i128::from(stop) - i128::from(start);
    let count = if (span > 0) == (step > 0) && span != 0 {
        (span.abs() + step.abs() - 1) / step.abs()
    } else {
        0
    };
    if count > MAX_RANGE as i128 {
        return Err(too_large(format_args!(
            "`range` makes at most {MAX_RANGE} numbers"
        )));
    }
    let numbers = (0..count).filter_map(|i| i64::try_from(i128::from(start) + i * step).ok());
    Ok(Value::from(numbers.collect::<Vec<i64>>()))
}
