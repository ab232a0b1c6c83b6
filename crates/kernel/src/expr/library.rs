//! The filters, tests, functions and methods a template may use.
//!
//! Everything that can make something bigger than what it was given charges the
//! evaluation's [`Meter`] for it, so memory is bounded no matter what is combined.
//! Nothing here may read a clock, the environment, a file or a random number.

use std::collections::HashMap;
use std::sync::OnceLock;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters, tests};

use super::value::{JsonRef, Room, json_text, to_json, to_text, too_large, type_error};
use super::{FUEL, MAX_RANGE, MAX_WORK};

/// What one evaluation has used so far.
#[derive(Debug, Default)]
struct Meter {
    work: usize,
    /// The kind of the left side of each comparison under way, by its place in the source.
    compared: HashMap<u32, Comparable>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparable {
    Number,
    Text,
    List,
}

fn meter<'s>(state: &'s mut State<'_, '_>) -> &'s mut Meter {
    state.get_or_insert_extension_with(Meter::default)
}

fn charge(state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
    let meter = meter(state);
    meter.work = meter.work.saturating_add(bytes);
    if meter.work > MAX_WORK {
        return Err(too_large(format_args!(
            "the template builds more than {} MiB while it runs",
            MAX_WORK >> 20
        )));
    }
    Ok(())
}

/// A rough size in memory, not looking inside lists.
fn weight(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            value.len().unwrap_or(1024).saturating_mul(24)
        }
        _ => 1,
    }
}

fn charge_value(state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    charge(state, weight(value))
}

fn text_out(state: &mut State<'_, '_>, text: String) -> Result<Value, Error> {
    charge(state, text.len())?;
    Ok(Value::from(text))
}

/// The environment all templates share; a template with statements clones it (a few
/// reference counts) to hold its own compiled code.
pub(super) fn environment() -> &'static Environment<'static> {
    static SHARED: OnceLock<Environment<'static>> = OnceLock::new();
    SHARED.get_or_init(build)
}

/// Whether there is a filter, or a test, of this name.
pub(super) fn knows(name: &str, test: bool) -> bool {
    // The engine has no way to ask. Without arguments every one of them only complains.
    let mut state = environment().empty_state();
    let called = if test {
        state.perform_test(name, &[]).map(drop)
    } else {
        state.apply_filter(name, &[]).map(drop)
    };
    called
        .map_err(|e| e.kind())
        .err()
        .is_none_or(|kind| !matches!(kind, ErrorKind::UnknownTest | ErrorKind::UnknownFilter))
}

fn build() -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Chainable);
    env.set_fuel(Some(FUEL));
    env.set_debug(false);
    env.set_recursion_limit(100);
    env.set_formatter(|out, state, value| {
        if let Some(text) = value.as_str() {
            return out.write_str(text).map_err(Error::from);
        }
        let text = to_text(value)?;
        charge(state, text.len())?;
        out.write_str(&text).map_err(Error::from)
    });
    env.set_unknown_method_callback(method);
    add_guards(&mut env);
    add_filters(&mut env);
    add_tests(&mut env);
    env.add_function("range", range);
    env.add_function("dict", minijinja::functions::dict);
    env.add_function("namespace", minijinja::functions::namespace);
    env
}

/// Filters the scanner splices in around operators; see `scan.rs`.
fn add_guards(env: &mut Environment<'static>) {
    env.add_filter("_g", |state: &mut State<'_, '_>, value: Value| {
        charge_value(state, &value).map(|()| value)
    });
    env.add_filter("_s", |state: &mut State<'_, '_>, value: Value| {
        match value.kind() {
            // A number may still be an operand of arithmetic that binds tighter.
            ValueKind::String | ValueKind::Undefined | ValueKind::Number => {
                charge_value(state, &value).map(|()| value)
            }
            _ => text_out(state, to_text(&value)?),
        }
    });
    env.add_filter("_m", |value: Value| match value.kind() {
        ValueKind::Number | ValueKind::Bool | ValueKind::Undefined | ValueKind::None => Ok(value),
        kind => Err(type_error(format!(
            "`*` multiplies numbers, not a {kind}; convert it with `| int` or `| float`"
        ))),
    });
    env.add_filter("_n", |state: &mut State<'_, '_>, value: Value| {
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
    });
    env.add_filter("_k", settle);
    env.add_filter("_o", |value: Value| comparable(&value).map(|_| value));
    env.add_filter("_l", |state: &mut State<'_, '_>, value: Value, id: u32| {
        let kind = comparable(&value)?;
        meter(state).compared.insert(id, kind);
        Ok::<_, Error>(value)
    });
    env.add_filter("_r", |state: &mut State<'_, '_>, value: Value, id: u32| {
        let kind = comparable(&value)?;
        match meter(state).compared.remove(&id) {
            Some(left) if left != kind => Err(type_error(format!(
                "cannot order a {left:?} and a {kind:?}; convert one with `| int`, \
                 `| float` or `| string`"
            ))),
            _ => Ok(value),
        }
    });
}

/// Lists a template may put inside each other before it is told to stop.
const MAX_NESTED: usize = 64;

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

/// Runs one of the engine's own filters between two charges.
fn guarded(env: &mut Environment<'static>, name: &'static str, inner: Value) {
    env.add_filter(
        name,
        move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            for arg in args.iter().filter(|arg| !arg.is_kwargs()) {
                charge_value(state, arg)?;
            }
            let out = inner.call(state, &args)?;
            charge_value(state, &out)?;
            Ok::<_, Error>(out)
        },
    );
}

fn add_filters(env: &mut Environment<'static>) {
    for (name, inner) in [
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("bool", Value::from_function(filters::bool)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("first", Value::from_function(first)),
        ("groupby", Value::from_function(filters::groupby)),
        ("last", Value::from_function(last)),
        ("list", Value::from_function(filters::list)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("reverse", Value::from_function(filters::reverse)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("sum", Value::from_function(filters::sum)),
        ("unique", Value::from_function(filters::unique)),
    ] {
        guarded(env, name, inner);
    }
    env.add_filter("round", round);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("items", |value: Value| pairs(&value));
    env.add_filter("string", |state: &mut State<'_, '_>, value: Value| {
        if value.kind() == ValueKind::String {
            return Ok(value);
        }
        text_out(state, to_text(&value)?)
    });
    env.add_filter("safe", |value: Value| value);
    env.add_filter("lower", |state: &mut State<'_, '_>, value: Value| {
        text_out(state, to_text(&value)?.to_lowercase())
    });
    env.add_filter("upper", |state: &mut State<'_, '_>, value: Value| {
        text_out(state, to_text(&value)?.to_uppercase())
    });
    env.add_filter("capitalize", |state: &mut State<'_, '_>, value: Value| {
        let text = to_text(&value)?;
        let mut chars = text.chars();
        let head: String = chars
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .collect();
        text_out(state, head + &chars.as_str().to_lowercase())
    });
    env.add_filter("title", |state: &mut State<'_, '_>, value: Value| {
        let text = filters::title(to_text(&value)?.into());
        text_out(state, text)
    });
    env.add_filter(
        "trim",
        |state: &mut State<'_, '_>, value: Value, chars: Option<Value>| {
            let text = to_text(&value)?;
            strip(state, &text, chars.as_ref(), true, true)
        },
    );
    env.add_filter(
        "replace",
        |state: &mut State<'_, '_>, value: Value, from: Value, to: Value, count: Option<usize>| {
            let (text, from, to) = (to_text(&value)?, to_text(&from)?, to_text(&to)?);
            replace(state, &text, &from, &to, count)
        },
    );
    env.add_filter("join", join);
    env.add_filter("tojson", tojson);
    env.add_filter("urlencode", |state: &mut State<'_, '_>, value: Value| {
        let text = to_text(&value)?;
        let mut out = String::with_capacity(text.len());
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
        text_out(state, out)
    });
    env.add_filter(
        "batch",
        |state: &mut State<'_, '_>, value: Value, count: usize, fill: Option<Value>| {
            charge_value(state, &value)?;
            // Filling up the last batch makes `count` items out of one.
            charge(state, count.saturating_mul(24))?;
            filters::batch(state, value, count, fill)
        },
    );
}

fn add_tests(env: &mut Environment<'static>) {
    env.add_test("defined", tests::is_defined);
    env.add_test("undefined", tests::is_undefined);
    env.add_test("none", tests::is_none);
    env.add_test("boolean", tests::is_boolean);
    env.add_test("odd", tests::is_odd);
    env.add_test("even", tests::is_even);
    env.add_test("divisibleby", tests::is_divisibleby);
    env.add_test("number", tests::is_number);
    env.add_test("integer", tests::is_integer);
    env.add_test("float", tests::is_float);
    env.add_test("string", tests::is_string);
    env.add_test("sequence", tests::is_sequence);
    env.add_test("iterable", tests::is_iterable);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("startingwith", tests::is_startingwith);
    env.add_test("endingwith", tests::is_endingwith);
    env.add_test("lower", tests::is_lower);
    env.add_test("upper", tests::is_upper);
    env.add_test("sameas", tests::is_sameas);
    env.add_test("true", tests::is_true);
    env.add_test("false", tests::is_false);
    env.add_test("in", tests::is_in);
    for name in ["eq", "equalto", "=="] {
        env.add_test(name, tests::is_eq);
    }
    for name in ["ne", "!="] {
        env.add_test(name, tests::is_ne);
    }
    // Named tests order like the operators do, so they refuse what those refuse.
    for (names, wanted) in [
        (["lt", "lessthan", "<"], [std::cmp::Ordering::Less; 2]),
        (["gt", "greaterthan", ">"], [std::cmp::Ordering::Greater; 2]),
        (
            ["le", "le", "<="],
            [std::cmp::Ordering::Less, std::cmp::Ordering::Equal],
        ),
        (
            ["ge", "ge", ">="],
            [std::cmp::Ordering::Greater, std::cmp::Ordering::Equal],
        ),
    ] {
        for name in names {
            env.add_test(name, move |a: Value, b: Value| {
                if comparable(&a)? != comparable(&b)? {
                    return Err(type_error("cannot order values of different kinds"));
                }
                Ok(wanted.contains(&a.cmp(&b)))
            });
        }
    }
}

fn is_missing(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

fn default(
    value: Value,
    other: Option<Value>,
    boolean: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let other = match other {
        Some(other) => other,
        None => kwargs
            .get::<Option<Value>>("default_value")?
            .unwrap_or_else(|| Value::from("")),
    };
    let boolean = match boolean {
        Some(boolean) => boolean,
        None => kwargs.get::<Option<bool>>("boolean")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let replace = value.is_undefined() || (boolean && !value.is_true());
    Ok(if replace { other } else { value })
}

/// Jinja2's `int`: whatever does not read as a number is the default, 0.
fn int(
    value: Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0)),
    };
    let base = base
        .map_or_else(|| kwargs.get::<Option<u32>>("base"), |b| Ok(Some(b)))?
        .unwrap_or(10);
    kwargs.assert_all_used()?;
    let whole = |float: f64| {
        // Past 2^63 the cast would saturate and quietly change the number.
        (float.is_finite() && float.abs() < 9.2e18).then(|| Value::from(float.trunc() as i64))
    };
    Ok(match value.kind() {
        ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        ValueKind::Number if value.is_integer() => Some(value),
        ValueKind::Number => whole(f64::try_from(value)?),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default().trim().replace('_', "");
            let digits = match base {
                16 => text.trim_start_matches("0x"),
                8 => text.trim_start_matches("0o"),
                2 => text.trim_start_matches("0b"),
                _ => &text,
            };
            let exact = (2..=36)
                .contains(&base)
                .then(|| i64::from_str_radix(digits, base).ok())
                .flatten();
            exact
                .map(Value::from)
                .or_else(|| {
                    digits
                        .parse::<u64>()
                        .ok()
                        .filter(|_| base == 10)
                        .map(Value::from)
                })
                .or_else(|| text.parse::<f64>().ok().and_then(whole))
        }
        _ => None,
    }
    .unwrap_or(default))
}

/// Jinja2's `float`: whatever does not read as a number is the default, 0.0.
fn float(value: Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0.0)),
    };
    kwargs.assert_all_used()?;
    let float = match value.as_str() {
        Some(text) => text.trim().parse::<f64>().ok().filter(|f| f.is_finite()),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        // `as_i64` and the checked conversion refuse integers a float cannot hold exactly.
        None if value.is_integer() => to_text(&value)?.parse().ok(),
        None if value.is_number() => f64::try_from(value).ok(),
        None => None,
    };
    Ok(float.map_or(default, Value::from))
}

fn round(
    value: Value,
    precision: Option<i32>,
    method: Option<String>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let precision = precision
        .map_or_else(|| kwargs.get::<Option<i32>>("precision"), |p| Ok(Some(p)))?
        .unwrap_or(0);
    let method = method.map_or_else(|| kwargs.get::<Option<String>>("method"), |m| Ok(Some(m)))?;
    kwargs.assert_all_used()?;
    let number = float(
        value.clone(),
        Some(Value::UNDEFINED),
        Kwargs::from_iter(Vec::<(String, Value)>::new()),
    )?;
    if number.is_undefined() || value.kind() == ValueKind::String {
        return Err(type_error(format!(
            "cannot round a {}; convert it with `| float`",
            value.kind()
        )));
    }
    let number = f64::try_from(number)?;
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

fn length(value: Value) -> Result<usize, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(0),
        _ => value
            .len()
            .ok_or_else(|| type_error(format!("a {} has no length", value.kind()))),
    }
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

fn join(
    state: &mut State<'_, '_>,
    value: Value,
    joiner: Option<Value>,
    attribute: Option<String>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let joiner = match joiner {
        Some(joiner) => to_text(&joiner)?,
        None => kwargs.get::<Option<String>>("d")?.unwrap_or_default(),
    };
    let attribute = attribute.map_or_else(
        || kwargs.get::<Option<String>>("attribute"),
        |a| Ok(Some(a)),
    )?;
    kwargs.assert_all_used()?;
    if is_missing(&value) {
        return Ok(Value::from(""));
    }
    let mut out = String::new();
    if let Some(text) = value.as_str() {
        charge(state, text.len().saturating_mul(joiner.len() + 1))?;
        for (i, c) in text.chars().enumerate() {
            if i > 0 {
                out.push_str(&joiner);
            }
            out.push(c);
        }
        return Ok(Value::from(out));
    }
    for (i, item) in value.try_iter()?.checked().enumerate() {
        let mut item = item?;
        if let Some(attribute) = &attribute {
            item = item.get_attr(attribute)?;
        }
        let text = to_text(&item)?;
        charge(state, text.len() + joiner.len() + 1)?;
        if i > 0 {
            out.push_str(&joiner);
        }
        out.push_str(&text);
    }
    Ok(Value::from(out))
}

/// Plain JSON: it is spliced into SQL and shell, where HTML escapes would be data.
fn tojson(
    state: &mut State<'_, '_>,
    value: Value,
    indent: Option<usize>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let indent = indent.map_or_else(|| kwargs.get::<Option<usize>>("indent"), |i| Ok(Some(i)))?;
    kwargs.assert_all_used()?;
    let Some(indent) = indent else {
        return text_out(state, json_text(&value)?);
    };
    let json = to_json(&value, &mut Room::new(), 0)?;
    let indent = vec![b' '; indent.min(8)];
    let mut out = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(
        &mut out,
        serde_json::ser::PrettyFormatter::with_indent(&indent),
    );
    serde::Serialize::serialize(&json, &mut writer).map_err(|e| type_error(e.to_string()))?;
    text_out(state, String::from_utf8_lossy(&out).into_owned())
}

fn replace(
    state: &mut State<'_, '_>,
    text: &str,
    from: &str,
    to: &str,
    count: Option<usize>,
) -> Result<Value, Error> {
    let count = count.unwrap_or(usize::MAX);
    let found = if from.is_empty() {
        text.len() + 1
    } else {
        text.len() / from.len()
    };
    // Charged before it is built: `'aaaa' | replace('a', big)` could not be afterwards.
    let found = found.min(text.matches(from).take(count).count());
    charge(
        state,
        text.len().saturating_add(found.saturating_mul(to.len())),
    )?;
    Ok(Value::from(text.replacen(from, to, count)))
}

fn strip(
    state: &mut State<'_, '_>,
    text: &str,
    chars: Option<&Value>,
    start: bool,
    end: bool,
) -> Result<Value, Error> {
    let chars = match chars {
        Some(chars) if !is_missing(chars) => Some(to_text(chars)?),
        _ => None,
    };
    let gone = |c: char| {
        chars
            .as_ref()
            .map_or(c.is_whitespace(), |chars| chars.contains(c))
    };
    let text = if start {
        text.trim_start_matches(gone)
    } else {
        text
    };
    let text = if end {
        text.trim_end_matches(gone)
    } else {
        text
    };
    text_out(state, text.to_owned())
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

fn pairs(value: &Value) -> Result<Value, Error> {
    if is_missing(value) {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    filters::items(value)
}

/// Python's methods on text and mappings.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let unknown = || {
        Err(Error::new(
            ErrorKind::UnknownMethod,
            format!("a {} has no method `{name}`", value.kind()),
        ))
    };
    charge(state, 1)?;
    let arg = |i: usize| args.get(i).map(to_text).transpose();
    let need = |i: usize| {
        arg(i)?.ok_or_else(|| {
            Error::new(
                ErrorKind::MissingArgument,
                format!("`{name}` needs more arguments"),
            )
        })
    };
    if let Some(text) = value.as_str() {
        return match name {
            "lower" => text_out(state, text.to_lowercase()),
            "upper" => text_out(state, text.to_uppercase()),
            "title" | "capitalize" => state.apply_filter(name, std::slice::from_ref(value)),
            "strip" => strip(state, text, args.first(), true, true),
            "lstrip" => strip(state, text, args.first(), true, false),
            "rstrip" => strip(state, text, args.first(), false, true),
            "startswith" => Ok(Value::from(text.starts_with(&need(0)?))),
            "endswith" => Ok(Value::from(text.ends_with(&need(0)?))),
            "replace" => {
                let count = args.get(2).and_then(Value::as_usize);
                replace(state, text, &need(0)?, &need(1)?, count)
            }
            "split" => {
                let limit = args
                    .get(1)
                    .and_then(Value::as_usize)
                    .map_or(usize::MAX, |n| n.saturating_add(1));
                charge(state, text.len().saturating_mul(25))?;
                let parts: Vec<Value> = match args.first().filter(|a| !is_missing(a)) {
                    None => text.split_whitespace().map(Value::from).collect(),
                    Some(by) => {
                        let by = to_text(by)?;
                        if by.is_empty() {
                            return Err(type_error("cannot split by an empty text"));
                        }
                        text.splitn(limit, by.as_str()).map(Value::from).collect()
                    }
                };
                Ok(Value::from(parts))
            }
            "splitlines" => {
                charge(state, text.len().saturating_mul(25))?;
                Ok(Value::from(
                    text.lines().map(Value::from).collect::<Vec<_>>(),
                ))
            }
            "join" => match args.first() {
                Some(items) => join(
                    state,
                    items.clone(),
                    Some(value.clone()),
                    None,
                    Kwargs::from_iter(Vec::<(String, Value)>::new()),
                ),
                None => need(0).map(Value::from),
            },
            "find" => {
                let at = text.find(&need(0)?);
                Ok(at.map_or(Value::from(-1), |at| {
                    Value::from(text.get(..at).map_or(0, |s| s.chars().count()))
                }))
            }
            "count" => Ok(Value::from(text.matches(&need(0)?).count())),
            "isdigit" => Ok(Value::from(
                !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()),
            )),
            _ => unknown(),
        };
    }
    let mapping = value.kind() == ValueKind::Map;
    match name {
        // On undefined too, so that `ctx.missing.get('x')` chains like `ctx.missing.x`.
        "get" if mapping || value.is_undefined() => {
            let found = match args.first() {
                Some(key) if mapping => value.get_item(key)?,
                _ => Value::UNDEFINED,
            };
            let other = args.get(1).cloned().unwrap_or_else(|| Value::from(()));
            Ok(if found.is_undefined() { other } else { found })
        }
        "items" if mapping || value.is_undefined() => {
            charge_value(state, value)?;
            pairs(value)
        }
        "keys" if mapping || value.is_undefined() => {
            charge_value(state, value)?;
            Ok(Value::from(value.try_iter()?.collect::<Vec<_>>()))
        }
        "values" if mapping || value.is_undefined() => {
            charge_value(state, value)?;
            let values: Result<Vec<_>, _> =
                value.try_iter()?.map(|key| value.get_item(&key)).collect();
            Ok(Value::from(values?))
        }
        _ => unknown(),
    }
}
