//! Programs and SQL that stand in files of their own: read right before the task is done.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};
use stepwell_dialects::tools::{self, ToolKind};

use crate::file_rules::FileRules;
use crate::outcome::ToolError;
use stepwell_kernel::codes;

/// Nobody writes longer scripts by hand.
const MAX_BYTES: u64 = 4 << 20;

/// Puts a script in the place where its kind of task looks for it.
pub(super) fn bring(
    kind: &str,
    fields: &mut Map<String, Json>,
    definition: &str,
    files: &FileRules,
) -> Result<(), ToolError> {
    let Some(script) = fields.remove("script") else {
        return Ok(());
    };
    let text = |key: &str| script.get(key).and_then(Json::as_str);
    let source = match text("type") {
        Some("inline") => text("code").unwrap_or_default().to_owned(),
        _ => load(text("uri").unwrap_or_default(), definition, files)?,
    };
    let kind = tools::find(kind);
    let Some(field) = kind.and_then(ToolKind::script_field) else {
        let message = "this kind of task takes no `script`; compile the definition again";
        return Err(ToolError::invalid(codes::PIPELINE_BROKEN, message));
    };
    let is_program = kind.and_then(ToolKind::program_field) == Some(field);
    let text = match is_program {
        true => json!(source),
        false => json!([source]),
    };
    fields.insert(field.to_owned(), text);
    Ok(())
}

/// Reads a file beside the definition, or else from the worker's own directory.
fn load(uri: &str, definition: &str, files: &FileRules) -> Result<String, ToolError> {
    let path = uri.strip_prefix("file://").unwrap_or(uri);
    let beside = definition
        .strip_prefix("file:")
        .and_then(|it| Some(Path::new(it).parent()?.join(path)));
    let places: Vec<PathBuf> = beside.into_iter().chain([PathBuf::from(path)]).collect();
    let wrong = |why: &str| {
        let message = format!("the script `{path}` cannot be read: {why}");
        ToolError::invalid(codes::TOOL_FIELD, message)
    };
    // Judged before it is looked at: whether a file is there is not told of one that may not be read.
    let (mut allowed, mut denied) = (Vec::new(), None);
    for place in &places {
        match files.check(place) {
            Ok(place) => allowed.push(place),
            Err(error) => denied = Some(error),
        }
    }
    if let (true, Some(error)) = (allowed.is_empty(), denied) {
        return Err(error);
    }
    let Some(place) = allowed.iter().find(|it| it.is_file()) else {
        return Err(wrong(
            "there is no such file beside the definition, nor in the worker's directory",
        ));
    };
    let mut source = String::new();
    fs::File::open(place)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut source))
        .map_err(|error| wrong(&error.to_string()))?;
    match source.len() as u64 > MAX_BYTES {
        true => Err(wrong("it is larger than 4 MiB")),
        false => Ok(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_found_beside_its_definition() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("hello.sql"), "SELECT 1").unwrap();
        let definition = format!("file:{}/flow.yaml", folder.path().display());
        let script = json!({"script": {"type": "file", "uri": "./hello.sql"}});
        let mut fields = script.as_object().cloned().unwrap();
        bring("postgres", &mut fields, &definition, &FileRules::Everywhere).unwrap();
        assert_eq!(Json::Object(fields), json!({"commands": ["SELECT 1"]}));
        let mut lost = script.as_object().cloned().unwrap();
        let error = bring(
            "postgres",
            &mut lost,
            "file:elsewhere/flow.yaml",
            &FileRules::Everywhere,
        )
        .unwrap_err();
        assert!(error.message.contains("hello.sql"), "{error}");
    }

    #[test]
    fn a_script_that_stands_in_the_definition_is_the_program() {
        let script = json!({"script": {"type": "inline", "code": "result = 1"}});
        let mut fields = script.as_object().cloned().unwrap();
        bring("python", &mut fields, "", &FileRules::Below(Vec::new())).unwrap();
        assert_eq!(Json::Object(fields), json!({"code": "result = 1"}));
    }
}
