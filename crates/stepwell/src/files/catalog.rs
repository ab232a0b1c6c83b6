//! Finds the definitions of child runs in files near the file of the parent.
//!
//! A child is named by its path relative to the file of the parent, with or without the file extension,
//! or by the name that the child definition declares (`metadata.path`, `metadata.name` and others). Names
//! are searched in the directory of the parent and then in the working directory, including
//! subdirectories. The search has limits, so that it also ends in `/`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepwell_dialects::tree::{self, Node};
use stepwell_engine::port::Catalog;
use stepwell_kernel::plan::Plan;

use super::{Definition, read};

/// How many levels of subdirectories are searched.
const MAX_DEPTH: usize = 5;
/// How many files are read.
const MAX_FILES: usize = 500;
/// How many directory entries are listed.
const MAX_ENTRIES: usize = 20_000;

const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// A catalog of the definitions in files near the file of the parent.
#[derive(Debug, Default)]
pub struct Files {
    /// Loaded files; none for a file with errors.
    plans: RefCell<HashMap<PathBuf, Option<Arc<Plan>>>>,
    /// The declared names of the definitions in a directory.
    names: RefCell<HashMap<PathBuf, HashMap<String, PathBuf>>>,
}

impl Catalog for Files {
    fn find(&self, from: &Plan, path: &str) -> Option<Arc<Plan>> {
        let file = from.net().source.uri.strip_prefix("file:")?;
        let folder = match Path::new(file).parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let direct = candidates(&folder, path)
            .into_iter()
            .find(|it| it.is_file())
            .and_then(|found| self.load(&found));
        let named = |folder: &Path| self.load(&self.named(folder, path)?);
        direct
            .or_else(|| named(&folder))
            .or_else(|| named(Path::new(".")))
    }
}

/// The path as written and with each file extension.
fn candidates(folder: &Path, path: &str) -> Vec<PathBuf> {
    let exact = folder.join(path.strip_prefix("./").unwrap_or(path));
    let mut all = vec![exact.clone()];
    for ending in ENDINGS {
        let mut name = exact.clone().into_os_string();
        name.push(format!(".{ending}"));
        all.push(name.into());
    }
    all
}

impl Files {
    fn load(&self, path: &Path) -> Option<Arc<Plan>> {
        if let Some(known) = self.plans.borrow().get(path) {
            return known.clone();
        }
        let plan = Definition::open(&path.to_string_lossy()).into_plan();
        let plan = plan.ok().map(Arc::new);
        self.plans
            .borrow_mut()
            .insert(path.to_owned(), plan.clone());
        plan
    }

    fn named(&self, folder: &Path, name: &str) -> Option<PathBuf> {
        let mut names = self.names.borrow_mut();
        let index = names
            .entry(folder.to_owned())
            .or_insert_with(|| index(folder));
        index.get(name).cloned()
    }
}

/// The declared names with their files; for equal names the first file in path order is used.
fn index(folder: &Path) -> HashMap<String, PathBuf> {
    let mut names = HashMap::new();
    for path in files_below(folder) {
        let Ok(source) = read(&path.to_string_lossy()) else {
            continue;
        };
        let Ok(root) = tree::parse(&source) else {
            continue;
        };
        for name in own_names(&root) {
            names.entry(name).or_insert_with(|| path.clone());
        }
    }
    names
}

fn own_names(root: &Node) -> Vec<String> {
    let text = |node: Option<&Node>| node.and_then(Node::as_str).map(str::to_owned);
    let metadata = root.get("metadata");
    let inside = ["path", "name", "planId"].map(|key| text(metadata.and_then(|it| it.get(key))));
    let outside = ["workflowId", "workflowType", "planId"].map(|key| text(root.get(key)));
    inside.into_iter().chain(outside).flatten().collect()
}

/// The files in a folder and its subfolders whose endings are those of definitions, breadth first, sorted by name. Hidden
/// files and folders and the packages of `node_modules` are left out.
#[must_use]
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut entries = 0;
    let mut level = vec![folder.to_owned()];
    for _ in 0..=MAX_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            let listed = fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = listed
                .take(MAX_ENTRIES.saturating_sub(entries))
                .map(|entry| entry.path())
                .collect();
            entries += paths.len();
            paths.sort();
            for path in paths {
                let hidden = path
                    .file_name()
                    .is_none_or(|name| name.to_string_lossy().starts_with('.'));
                let ending = path.extension().and_then(|it| it.to_str());
                if hidden || path.is_symlink() || path.ends_with("node_modules") {
                    continue;
                }
                if path.is_dir() {
                    next.push(path);
                } else if path.is_file()
                    && ending.is_some_and(|it| ENDINGS.contains(&it))
                    && files.len() < MAX_FILES
                {
                    files.push(path);
                }
            }
        }
        level = next;
    }
    files
}
