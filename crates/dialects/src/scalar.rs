//! What an unquoted word means: the YAML 1.2 core schema.
//!
//! Here: null, booleans, integers, floats and the core tags. Not here: where
//! words come from. `yes`, `no`, `on` and `off` are text, as YAML 1.2 says.

use crate::codes;
use crate::problem::Problems;
use crate::source::Span;
use crate::tree::Value;
use crate::words::quote;

/// The tags of the core schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoreTag {
    Str,
    Int,
    Float,
    Bool,
    Null,
    Map,
    Seq,
}

impl CoreTag {
    /// The tag with this full name; the non-specific `!` stands for text.
    pub(crate) fn from_name(name: &str) -> Option<CoreTag> {
        if name == "!" {
            return Some(CoreTag::Str);
        }
        match name.strip_prefix("tag:yaml.org,2002:")? {
            "str" => Some(CoreTag::Str),
            "int" => Some(CoreTag::Int),
            "float" => Some(CoreTag::Float),
            "bool" => Some(CoreTag::Bool),
            "null" => Some(CoreTag::Null),
            "map" => Some(CoreTag::Map),
            "seq" => Some(CoreTag::Seq),
            _ => None,
        }
    }
}

/// Why a scalar has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadScalar {
    /// An integer outside of 64 bits.
    TooLarge,
    /// Infinity, not-a-number, or a float that overflows to infinity.
    NotFinite,
    /// The tag asks for something the text is not.
    TagMismatch,
}

impl BadScalar {
    pub(crate) fn report(self, text: &str, span: Span, problems: &mut Problems) {
        let text = quote(text);
        match self {
            BadScalar::TooLarge => problems
                .error(
                    codes::SOURCE_BAD_NUMBER,
                    span,
                    format!("{text} does not fit a 64-bit integer"),
                )
                .help("put it in quotes if it is not for counting"),
            BadScalar::NotFinite => problems
                .error(
                    codes::SOURCE_BAD_NUMBER,
                    span,
                    format!("{text} is not a finite number"),
                )
                .help("put it in quotes if it is meant as text"),
            BadScalar::TagMismatch => problems
                .error(
                    codes::SOURCE_BAD_TAG,
                    span,
                    format!("{text} is not what its tag says"),
                )
                .help("remove the tag, or correct the value"),
        };
    }
}

/// The value of a scalar. `plain` says that it was not quoted.
pub(crate) fn resolve(text: &str, plain: bool, tag: Option<CoreTag>) -> Result<Value, BadScalar> {
    match tag {
        None if plain => core(text),
        None | Some(CoreTag::Str) => Ok(Value::Str(text.to_owned())),
        Some(CoreTag::Map | CoreTag::Seq) => Err(BadScalar::TagMismatch),
        Some(tag) => match (tag, core(text)?) {
            // An integer is a float where a float is asked for.
            (CoreTag::Float, Value::Int(_)) => float(text),
            (CoreTag::Float, value @ Value::Float(_))
            | (CoreTag::Int, value @ Value::Int(_))
            | (CoreTag::Bool, value @ Value::Bool(_))
            | (CoreTag::Null, value @ Value::Null) => Ok(value),
            _ => Err(BadScalar::TagMismatch),
        },
    }
}

fn core(text: &str) -> Result<Value, BadScalar> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return Err(BadScalar::NotFinite),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Err(BadScalar::NotFinite);
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            let int = i64::from_str_radix(digits, radix);
            return int.map(Value::Int).map_err(|_| BadScalar::TooLarge);
        }
    }
    if !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit()) {
        let int = text.parse().map(Value::Int);
        return int.map_err(|_| BadScalar::TooLarge);
    }
    if looks_like_float(unsigned) {
        return float(text);
    }
    Ok(Value::Str(text.to_owned()))
}

fn float(text: &str) -> Result<Value, BadScalar> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Value::Float(value)),
        _ => Err(BadScalar::NotFinite),
    }
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, the sign already taken.
fn looks_like_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digit = !whole.is_empty() || !fraction.is_empty();
    let exponent_ok = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    has_digit && digits(whole) && digits(fraction) && exponent_ok
}
