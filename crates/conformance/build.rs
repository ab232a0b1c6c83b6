//! Builds the scenario files of `conformance` and the numbered statements into the library, so that an installed
//! binary has the whole kit.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let root: PathBuf = env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("no CARGO_MANIFEST_DIR")?
        .into();
    let kit = root.join("../../conformance");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../conformance");
    println!("cargo::rerun-if-changed=../../docs/conformance/statements.tsv");
    let mut files = Vec::new();
    collect(&kit, "", &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for (name, text) in &files {
        table.push_str(&format!("    ({name:?}, {text:?}),\n"));
    }
    table.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    fs::write(Path::new(&out).join("scenarios.rs"), table)?;
    let statements = fs::read_to_string(root.join("../../docs/conformance/statements.tsv"))?;
    fs::write(Path::new(&out).join("statements.tsv"), statements)?;
    Ok(())
}

/// The scenario files below a folder, by their paths from it with `/`.
fn collect(
    folder: &Path,
    prefix: &str,
    files: &mut Vec<(String, String)>,
) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|it| it.to_str()) else {
            continue;
        };
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else if path.extension().is_some_and(|it| it == "yaml") {
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    Ok(())
}
