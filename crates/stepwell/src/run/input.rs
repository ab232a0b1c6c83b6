//! The run's parameters from the command line and from a file.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value as Json};
use stepwell_dialects::words::quote;
use stepwell_dialects::{Problem, Source, problem, tree};
use stepwell_kernel::event::Patch;

use crate::term::stderr_paint;
use crate::usage;
use stepwell::files::read;

/// The file's parameters with those of the command line over them.
pub(crate) fn params(file: Option<&Path>, inputs: &[String]) -> Result<Json> {
    let mut params = match file {
        Some(path) => from_file(path)?,
        None => Map::new(),
    };
    for input in inputs {
        let (key, value) = pair("--input", input)?;
        let path: Vec<&str> = key.split('.').collect();
        if path.iter().any(|part| part.is_empty()) {
            return usage(format!(
                "--input {}: a part of the key is empty",
                quote(input)
            ));
        }
        if !set(&mut params, &path, value) {
            return usage(format!(
                "--input {}: the value above {} is not a mapping",
                quote(input),
                quote(key)
            ));
        }
    }
    Ok(Json::Object(params))
}

/// Changes of the run's ctx: keys as they are, since ctx is flat.
pub(super) fn patch(patches: &[String]) -> Result<Patch> {
    let pairs = patches.iter().map(|it| pair("--patch", it));
    pairs
        .map(|it| it.map(|(key, value)| (key.to_owned(), value)))
        .collect()
}

fn pair<'t>(flag: &str, text: &'t str) -> Result<(&'t str, Json)> {
    match text.split_once('=') {
        // What is no JSON is text: `name=Ada` must not need quotes.
        Some((key, value)) if !key.is_empty() => Ok((
            key,
            serde_json::from_str(value).unwrap_or_else(|_| Json::from(value)),
        )),
        _ => usage(format!("{flag} {}: write KEY=VALUE", quote(text))),
    }
}

fn from_file(path: &Path) -> Result<Map<String, Json>> {
    let name = path.to_string_lossy();
    let refuse = |source: &Source, problems: &[Problem]| {
        let text = problem::render(source, problems, stderr_paint().0);
        usage(format!(
            "the input file cannot be used\n{}",
            text.trim_end()
        ))
    };
    let source = match read(&name) {
        Ok(source) => source,
        Err((name, problem)) => return refuse(&Source::unreadable(name), &[problem]),
    };
    match tree::parse(&source).map(|node| node.to_json()) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => usage(format!("the input file {} is not a mapping", quote(&name))),
        Err(problems) => refuse(&source, &problems),
    }
}

/// Sets the value at a path, making mappings on the way. False if something else is in the way.
fn set(map: &mut Map<String, Json>, path: &[&str], value: Json) -> bool {
    match path {
        [] => false,
        [last] => {
            map.insert((*last).to_owned(), value);
            true
        }
        [first, rest @ ..] => {
            let inner = map
                .entry((*first).to_owned())
                .or_insert_with(|| Json::Object(Map::new()));
            inner
                .as_object_mut()
                .is_some_and(|map| set(map, rest, value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(inputs: &[&str]) -> Result<String> {
        let inputs: Vec<String> = inputs.iter().map(|it| (*it).to_owned()).collect();
        params(None, &inputs).map(|params| params.to_string())
    }

    #[test]
    fn values_are_json_or_text_and_dots_nest() {
        let params = of(&["a.b=1", "a.c=x y", "d=[true]", "e==", "f=\"1\"", "a.b=2"]).unwrap();
        assert_eq!(
            params,
            r#"{"a":{"b":2,"c":"x y"},"d":[true],"e":"=","f":"1"}"#
        );
    }

    #[test]
    fn keys_that_cannot_be_meant_are_refused() {
        for bad in [&["novalue"][..], &["=1"], &["a..b=1"], &["a=1", "a.b=2"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
