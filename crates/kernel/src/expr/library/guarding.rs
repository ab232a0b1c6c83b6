//! Filters that make a value from outside safe where it would mean something: in a command line, in a path,
//! or where only certain values may stand.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::meter::text_out;
use super::text_of;
use crate::expr::value::to_text;

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("quote", quote);
    env.add_filter("filename", filename);
    env.add_filter("one_of", one_of);
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// One word for a shell, whatever is in it; a list is several words.
fn quote(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let words = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let mut words = Vec::new();
            for item in value.try_iter()? {
                words.push(word(&text_of(state, &item)?)?);
            }
            words.join(" ")
        }
        _ => word(&text_of(state, &value)?)?,
    };
    text_out(state, words)
}

fn word(text: &str) -> Result<String, Error> {
    if text.contains('\0') {
        return Err(refused(
            "quote: the value has a zero byte, which no program can be given".into(),
        ));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    // A word that begins with a dash may be taken for an option with or without quotes.
    Ok(match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    })
}

/// The value if it is the name of a file without a directory.
fn filename(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let text = text_of(state, &value)?;
    let why = match text.as_str() {
        "" => "it is empty",
        "." | ".." => "it is a directory",
        text if text.contains(['/', '\\']) => "it has a directory in it",
        text if text.starts_with(['-', '~']) => "it begins with `-` or `~`",
        text if text.contains(char::is_control) => "it has a control character in it",
        _ => return text_out(state, text),
    };
    Err(refused(format!(
        "filename: {text:?} is no name of a file: {why}"
    )))
}

/// The value if it is in the list.
fn one_of(value: Value, allowed: Value) -> Result<Value, Error> {
    if allowed.kind() != ValueKind::Seq {
        return Err(refused(
            "one_of: write the allowed values as a list, as one_of(['a', 'b'])".into(),
        ));
    }
    for item in allowed.try_iter()? {
        if item == value {
            return Ok(value);
        }
    }
    let (text, allowed) = (to_text(&value)?, to_text(&allowed)?);
    let shown: String = text.chars().take(100).collect();
    Err(refused(format!("one_of: {shown:?} is none of {allowed}")))
}
