//! Lists the explanations of error codes for `stepwell explain`, so that a new code needs no line here.

mod error_pages;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let root: PathBuf = env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("no CARGO_MANIFEST_DIR")?
        .into();
    let docs = root.join("../../docs");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=error_pages.rs");
    // Cargo looks at all files below.
    println!("cargo::rerun-if-changed=../../docs");
    let mut pages = BTreeMap::new();
    for (name, text) in read(&docs.join("errors"))? {
        if error_pages::is_code(&name) {
            pages.insert(name, text);
        }
    }
    for (_, text) in read(&docs.join("tools"))? {
        pages.extend(error_pages::sections(&text));
    }
    let mut table = String::from("&[\n");
    for (code, text) in &pages {
        table.push_str(&format!("    ({code:?}, {text:?}),\n"));
    }
    table.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    fs::write(Path::new(&out).join("error_pages.rs"), table)?;
    Ok(())
}

/// The documents of a folder by their names. A folder that does not exist has none.
fn read(folder: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "md")
            && let Some(name) = path.file_stem().and_then(|it| it.to_str())
        {
            found.push((name.to_owned(), fs::read_to_string(&path)?));
        }
    }
    Ok(found)
}
