//! The filters, tests, functions and methods a template may use, and the environment they
//! make up.
//!
//! Everything that can make something bigger than what it was given charges the
//! evaluation's [`meter`] for it, so memory is bounded no matter what is combined.
//! Nothing here may read a clock, the environment, a file or a random number.

mod collections;
mod guarding;
mod guards;
mod meter;
mod methods;
mod numbers;
mod ordering;
mod text;

use std::sync::OnceLock;

use minijinja::value::{ArgType, FunctionArgs, FunctionResult, Kwargs, Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters, tests};

use super::FUEL;
use super::value::{STRICT, nothing_written, null_written, to_text};
use meter::{charge, charge_value};
pub(super) use methods::METHODS;

/// The environment all templates share; a template with statements clones it (a few
/// reference counts) to hold its own compiled code.
pub(super) fn environment() -> &'static Environment<'static> {
    static SHARED: OnceLock<Environment<'static>> = OnceLock::new();
    SHARED.get_or_init(build)
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
        let text = text_of(state, value)?;
        charge(state, text.len())?;
        out.write_str(&text).map_err(Error::from)
    });
    env.set_unknown_method_callback(methods::method);
    env.add_filter("default", default);
    env.add_filter("d", default);
    guarded(&mut env, "bool", filters::bool);
    collections::add(&mut env);
    guarding::add(&mut env);
    guards::add(&mut env);
    numbers::add(&mut env);
    ordering::add(&mut env);
    text::add(&mut env);
    add_tests(&mut env);
    env
}

/// Whether there is a filter of this name.
pub(super) fn knows_filter(name: &str) -> bool {
    // The engine has no way to ask. Without arguments every one of them only complains.
    let called = environment().empty_state().apply_filter(name, &[]);
    called.map_or_else(|e| e.kind() != ErrorKind::UnknownFilter, |_| true)
}

/// Whether there is a test of this name.
pub(super) fn knows_test(name: &str) -> bool {
    let called = environment().empty_state().perform_test(name, &[]);
    called.map_or_else(|e| e.kind() != ErrorKind::UnknownTest, |_| true)
}

/// Adds one of the engine's own filters, run between two charges.
fn guarded<F, Rv, Args>(env: &mut Environment<'static>, name: &'static str, inner: F)
where
    F: minijinja::functions::Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let inner = Value::from_function(inner);
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

/// An optional argument that may be given by position or by name.
fn argument<T>(given: Option<T>, kwargs: &Kwargs, name: &'static str) -> Result<Option<T>, Error>
where
    T: for<'a> ArgType<'a, Output = T>,
{
    match given {
        Some(given) => Ok(Some(given)),
        None => kwargs.get(name),
    }
}

fn is_strict(state: &State<'_, '_>) -> bool {
    state.lookup(STRICT).is_some_and(|it| it.is_true())
}

/// Refuses to make a text from undefined or null in a strict scope.
fn check_has_text(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    match is_missing(value) && is_strict(state) {
        true if value.is_none() => Err(null_written()),
        true => Err(nothing_written()),
        false => Ok(()),
    }
}

/// How a value prints inside text; every filter that makes a text of a value asks here.
fn text_of(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    check_has_text(state, value)?;
    to_text(value)
}

fn is_missing(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

/// In a strict scope a default without a value gives nothing, and null gives null; otherwise both give an empty text.
fn default(
    state: &mut State<'_, '_>,
    value: Value,
    given: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    if given.len() > 2 {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let named = |name: &'static str| match kwargs.has(name) {
        true => kwargs.get::<Value>(name).map(Some),
        false => Ok(None),
    };
    let (other, boolean) = (named("default_value")?, named("boolean")?);
    kwargs.assert_all_used()?;
    let other = given.first().cloned().or(other);
    let boolean = given.get(1).cloned().or(boolean);
    if value.is_undefined() || (boolean.is_some_and(|it| it.is_true()) && !value.is_true()) {
        let other = other.filter(|it| !is_missing(it) || is_strict(state));
        return Ok(other.unwrap_or_else(|| Value::from("")));
    }
    Ok(value)
}

/// The tests that are the engine's own; those that order are in `ordering.rs`.
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
}
