//! What a call becomes for the interpreter.

use serde_json::{Value as Json, json};

use super::{PythonOptions, reply};
use crate::outcome::ToolError;
use crate::tool::{TaskContext, ToolCall, kind_of};
use crate::tools::process::environment;
use stepwell_kernel::codes;

/// The request as `step.py` reads it.
pub(super) fn encode(
    options: &PythonOptions,
    call: &ToolCall,
    cx: &TaskContext,
) -> Result<Vec<u8>, ToolError> {
    let code = call
        .text("code")?
        .ok_or_else(|| ToolError::invalid(codes::TOOL_FIELD, "`code` is missing"))?;
    let request = json!({
        "code": dedented(code),
        "args": call.args,
        "libs": libs(call)?,
        "env": environment(&options.process, call, cx)?,
        "cwd": options.process.directory(call)?,
        "result_bytes": cx.limits.result_bytes,
        "memory_bytes": options.memory_bytes,
        // Cut here, after secrets were taken out; half a secret would not be recognised.
        "text_chars": reply::LONGEST_TEXT + cx.redactor.longest(),
    });
    Ok(request.to_string().into_bytes())
}

/// Without the indentation that all lines share: flow texts in YAML keep it. Lines keep their numbers.
fn dedented(code: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let first = code.lines().find(|line| !line.trim().is_empty());
    let shared = first.map_or(0, indent);
    let all = shared > 0
        && code
            .lines()
            .all(|line| line.trim().is_empty() || indent(line) >= shared);
    if !all {
        return code.to_owned();
    }
    let cut = |line: &str| line.get(shared..).unwrap_or("").to_owned();
    code.lines().map(cut).collect::<Vec<_>>().join("\n")
}

/// A name (or nothing: its own), a module, and what of the module is meant, if not all of it.
type Lib = (Option<String>, String, Option<String>);

fn libs(call: &ToolCall) -> Result<Vec<Lib>, ToolError> {
    let wrong = |found: &Json| {
        ToolError::invalid(
            codes::TOOL_FIELD,
            format!(
                "`libs` must name modules, as `{{np: numpy}}`, `{{D: {{from: decimal, import: Decimal}}}}` \
                 or `[json]`; there is {}",
                kind_of(found)
            ),
        )
    };
    let named = |(alias, lib): (&String, &Json)| -> Result<Lib, ToolError> {
        let text = |key: &str| lib.get(key).and_then(Json::as_str).map(str::to_owned);
        let (module, part) = match lib {
            Json::String(module) => (module.clone(), None),
            Json::Null => (alias.clone(), None),
            other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_)) => {
                (text("from").ok_or_else(|| wrong(other))?, text("import"))
            }
        };
        Ok((Some(alias.clone()), module, part))
    };
    let mut all = Vec::new();
    match call.fields.get("libs") {
        None | Some(Json::Null) => {}
        Some(Json::Object(map)) => {
            for entry in map {
                all.push(named(entry)?);
            }
        }
        Some(Json::Array(list)) => {
            for item in list {
                match item {
                    Json::String(module) => all.push((None, module.clone(), None)),
                    Json::Object(map) => {
                        for entry in map {
                            all.push(named(entry)?);
                        }
                    }
                    other @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_)) => {
                        return Err(wrong(other));
                    }
                }
            }
        }
        Some(Json::String(module)) => all.push((None, module.clone(), None)),
        Some(other) => return Err(wrong(other)),
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_indentation_goes_and_lines_stay_where_they_were() {
        assert_eq!(dedented("\n  a = 1\n\n  b = 2"), "\na = 1\n\nb = 2");
        assert_eq!(dedented("if x:\n  y = 1"), "if x:\n  y = 1");
        assert_eq!(dedented("  a\n b"), "  a\n b");
    }
}
