//! Lists the pages of `docs/errors` for `stepwell explain`, so that a new page needs no line here.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let root: PathBuf = env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("no CARGO_MANIFEST_DIR")?
        .into();
    let folder = root.join("../../docs/errors");
    println!("cargo::rerun-if-changed=build.rs");
    // Its parent, so that the folder's own coming is noticed too.
    println!("cargo::rerun-if-changed=../../docs");
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let path = entry?.path().canonicalize()?;
        if path.extension().is_some_and(|it| it == "md")
            && let Some(code) = path.file_stem().and_then(|it| it.to_str())
            && code
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        {
            pages.push((code.to_owned(), path));
        }
    }
    pages.sort();
    let mut table = String::from("&[\n");
    for (code, path) in &pages {
        let path = path.to_str().ok_or("a path that is not UTF-8")?;
        table.push_str(&format!("    ({code:?}, include_str!({path:?})),\n"));
    }
    table.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    fs::write(Path::new(&out).join("error_pages.rs"), table)?;
    Ok(())
}
