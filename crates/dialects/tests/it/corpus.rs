//! Real playbooks, kept beside the checkout and not part of it, load without errors.

use std::path::{Path, PathBuf};

use stepwell_dialects::problem::render;
use stepwell_dialects::{Severity, Source, load};

/// The real playbooks, or nothing if they are not there.
fn playbooks() -> Vec<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/playbooks");
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    files
}

#[test]
fn every_real_playbook_loads_without_errors() {
    let files = playbooks();
    if files.is_empty() {
        println!("SKIPPED: THERE IS NO CORPUS BESIDE THE CHECKOUT, NO REAL PLAYBOOK WAS READ");
        return;
    }
    let mut bad = String::new();
    for file in &files {
        let bytes = std::fs::read(file).expect("a corpus file can be read");
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let source = Source::from_bytes(name, &bytes).expect("UTF-8");
        let loaded = load(&source);
        let shown = render(&source, &loaded.problems, false);
        if loaded.plan.is_none()
            || loaded
                .problems
                .iter()
                .any(|it| it.severity == Severity::Error)
        {
            bad.push_str(&shown);
        } else if !shown.is_empty() {
            println!("{shown}");
        }
    }
    assert!(bad.is_empty(), "{bad}");
}
