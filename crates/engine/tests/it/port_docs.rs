//! Every method of the store port says what it means for crash recovery.

use std::fs;
use std::path::Path;

/// The trait files of the port: everything in `src/store` that declares a `pub trait`.
fn traits() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    // How stores are compared and how a store is waited for are no parts of the port.
    let beside = ["dump.rs", "patience.rs", "mod.rs"];
    let files = files.filter(|path| !beside.iter().any(|name| path.ends_with(name)));
    let texts = files.map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    texts
        .filter(|(_, text)| text.contains("\npub trait "))
        .collect()
}

#[test]
fn every_method_says_what_a_crash_means() {
    let traits = traits();
    assert!(traits.len() > 10, "{}", traits.len());
    for (file, text) in traits {
        let mut doc = String::new();
        let port = text.split("#[cfg(test)]").next().unwrap_or_default();
        let mut is_port = false;
        for line in port.lines() {
            if line.starts_with("pub trait ") || line == "}" {
                is_port = line != "}";
            }
            if !is_port {
                continue;
            }
            if let Some(said) = line.strip_prefix("    ///") {
                doc.push_str(said);
                doc.push('\n');
            } else if let Some(method) = line.strip_prefix("    fn ") {
                for word in ["Durable on return:", "Crash", "Twice:"] {
                    assert!(doc.contains(word), "{file}: `{method}` has no `{word}`");
                }
                doc.clear();
            } else if line.is_empty() {
                doc.clear();
            }
        }
    }
}
