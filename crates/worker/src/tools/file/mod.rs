//! The tool `file`: reads, writes, lists and deletes files below one directory, on threads for blocking work. A path
//! never leads out of the directory, a file is written as a whole or not at all, and every action may be repeated.

#[cfg(test)]
mod tests;

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use stepwell_kernel::keys;
use stepwell_kernel::plan::ErrorClass;
use tokio_util::sync::CancellationToken;

use crate::file_rules::FileRules;
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{TaskContext, Tool, ToolCall, ToolFuture, kind_of};

const FILE_NOT_FOUND: &str = "FILE_NOT_FOUND";
const FILE_EXISTS: &str = "FILE_EXISTS";
/// The path leads out of the directory, or contains `..`.
const FILE_OUTSIDE: &str = "FILE_OUTSIDE";
/// A directory, a device, or a directory that is a file.
const FILE_TYPE: &str = "FILE_TYPE";
const FILE_TOO_LARGE: &str = "FILE_TOO_LARGE";
/// The content is not what `format` says.
const FILE_FORMAT: &str = "FILE_FORMAT";
const FILE_DENIED: &str = "FILE_DENIED";
/// The disk is full or broken.
const FILE_IO: &str = "FILE_IO";

/// What the name of a file that is not complete begins with.
const PART: &str = ".stepwell-part-";

/// Bytes between two looks at whether the task must stop.
const BLOCK: usize = 1 << 20;

/// What an entry of a list counts against the limit of a result, besides its path.
const ENTRY_BYTES: usize = 100;

/// The tool `file`: reads, writes, lists and deletes files below one directory.
#[derive(Debug, Default)]
pub struct FileTool {
    /// Where a relative `root` begins; the process's directory if none.
    pub directory: Option<PathBuf>,
    /// Which directories may be a `root`.
    pub files: FileRules,
}

impl Tool for FileTool {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let task = match self.read_task(call, cx) {
                Ok(task) => task,
                Err(error) => return error.into(),
            };
            // Cancelled when this future ends or is dropped: the thread then stops at its next block.
            let _guard = task.stop.clone().drop_guard();
            let stop = task.stop.clone();
            let mut thread = tokio::task::spawn_blocking(move || task.work());
            let why = tokio::select! {
                biased;
                done = &mut thread => return outcome(done),
                why = cx.stopped() => why,
            };
            stop.cancel();
            match tokio::time::timeout(cx.limits.grace, thread).await {
                // It was faster than the request to stop, and what is done is done.
                Ok(Ok(Ok(result))) => TaskOutcome::ok(result),
                _ => why.error().into(),
            }
        })
    }
}

fn outcome(done: Result<Result<Json, ToolError>, tokio::task::JoinError>) -> TaskOutcome {
    let crashed = |error| ToolError::new(ErrorClass::Unknown, FILE_IO, format!("{error}"));
    let done = done.map_err(crashed).flatten();
    done.map_or_else(TaskOutcome::failed, TaskOutcome::ok)
}

impl FileTool {
    fn read_task(&self, call: &ToolCall, cx: &TaskContext) -> Result<FileTask, ToolError> {
        let action = match call.text("action")? {
            Some("read") => Action::Read(Format::read(call.text("format")?)?),
            Some("write") => Action::Write {
                content: content(call.fields.get("content"))?,
                overwrite: call.flag("overwrite")?.unwrap_or(true),
            },
            Some("list") => Action::List {
                recursive: call.flag("recursive")?.unwrap_or_default(),
            },
            Some("delete") => Action::Delete,
            other => {
                let given = other.unwrap_or("missing");
                return Err(field(format!(
                    "`action` must be read, write, list or delete, it is {given}"
                )));
            }
        };
        let path = match (call.text("path")?, &action) {
            (Some(path), _) => path,
            (None, Action::List { .. }) => ".",
            (None, Action::Read(_) | Action::Write { .. } | Action::Delete) => {
                return Err(field("`path` is missing"));
            }
        };
        let root = PathBuf::from(call.text("root")?.unwrap_or("."));
        let root = match &self.directory {
            Some(directory) => directory.join(root),
            None => root,
        };
        // What is below the root stays below it, so the root is all that is to be judged.
        let root = self.files.check_for(&root, &root.join(path))?;
        let limit = cx.limits.result_bytes;
        if let Action::Write { content, .. } = &action
            && content.len() > limit
        {
            return Err(too_large(path, limit));
        }
        let key = format!("{}|{}", cx.run_id, cx.task_key);
        Ok(FileTask {
            action,
            root,
            path: path.to_owned(),
            limit,
            part: format!("{PART}{}", &keys::sha256_hex(&key)[..16]),
            stop: CancellationToken::new(),
        })
    }
}

/// What to do with a file or a directory.
enum Action {
    Read(Format),
    Write { content: Vec<u8>, overwrite: bool },
    List { recursive: bool },
    Delete,
}

/// How the content of a file is shown.
#[derive(Clone, Copy)]
enum Format {
    /// Text if it is UTF-8, else `{"base64": …}`.
    Auto,
    Text,
    Json,
}

impl Format {
    fn read(word: Option<&str>) -> Result<Format, ToolError> {
        match word {
            None => Ok(Format::Auto),
            Some("text") => Ok(Format::Text),
            Some("json") => Ok(Format::Json),
            Some(other) => Err(field(format!(
                "`format` must be text or json, it is {other}"
            ))),
        }
    }

    fn show(self, bytes: &[u8], path: &str) -> Result<Json, ToolError> {
        let wrong = |what: &str, why: &dyn std::fmt::Display| {
            ToolError::invalid(FILE_FORMAT, format!("{path} is not {what}: {why}"))
        };
        match self {
            Format::Json => serde_json::from_slice(bytes).map_err(|error| wrong("JSON", &error)),
            Format::Auto | Format::Text => match (std::str::from_utf8(bytes), self) {
                (Ok(text), _) => Ok(json!(text)),
                (Err(error), Format::Text) => Err(wrong("text in UTF-8", &error)),
                (Err(_), Format::Auto | Format::Json) => {
                    Ok(json!({ "base64": STANDARD.encode(bytes) }))
                }
            },
        }
    }
}

fn field(message: impl Into<String>) -> ToolError {
    ToolError::invalid("TOOL_FIELD", message)
}

/// The bytes to write: text as it is, `{base64: …}` as bytes, any other value as JSON.
fn content(given: Option<&Json>) -> Result<Vec<u8>, ToolError> {
    match given {
        None => Err(field(
            "`content` is missing; an empty file is `content: \"\"`",
        )),
        Some(Json::String(text)) => Ok(text.clone().into_bytes()),
        Some(Json::Object(map)) if map.len() == 1 && map.contains_key("base64") => {
            let Some(Json::String(text)) = map.get("base64") else {
                let kind = map.get("base64").map_or("missing", kind_of);
                return Err(field(format!(
                    "`base64` of `content` must be text, it is {kind}"
                )));
            };
            let bytes = STANDARD.decode(text);
            bytes.map_err(|error| field(format!("`base64` of `content` is invalid: {error}")))
        }
        Some(value) => Ok(format!("{value:#}\n").into_bytes()),
    }
}

fn too_large(path: &str, limit: usize) -> ToolError {
    let message = format!("{path} is larger than the {limit} bytes that a task may have");
    ToolError::invalid(FILE_TOO_LARGE, message)
}

/// The error of a task for an error of the system.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the errors of the standard library; every other one may pass"
)]
fn of_system(error: &io::Error, action: &str, path: &str) -> ToolError {
    let (class, code) = match error.kind() {
        io::ErrorKind::NotFound => (ErrorClass::Validation, FILE_NOT_FOUND),
        io::ErrorKind::AlreadyExists => (ErrorClass::Conflict, FILE_EXISTS),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorClass::Auth, FILE_DENIED)
        }
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            (ErrorClass::Validation, FILE_TYPE)
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            return field(format!("`path` cannot be used: {error}"));
        }
        // Links that lead to each other.
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            (ErrorClass::Validation, FILE_TYPE)
        }
        _ => (ErrorClass::Transient, FILE_IO),
    };
    ToolError::new(class, code, format!("cannot {action} {path}: {error}"))
}

/// A task that is ready for its thread.
struct FileTask {
    action: Action,
    root: PathBuf,
    /// As the task gives it, for messages.
    path: String,
    limit: usize,
    /// The name of the file that is written before it gets its own name. It is the same for each attempt, so an
    /// attempt replaces what a crash has left.
    part: String,
    stop: CancellationToken,
}

impl FileTask {
    fn work(&self) -> Result<Json, ToolError> {
        let root = fs::canonicalize(&self.root);
        let root = root.map_err(|error| {
            let root = self.root.display().to_string();
            of_system(&error, "use the directory", &root)
        })?;
        let target = self.resolve(&root)?;
        match &self.action {
            Action::Read(format) => self.read(&target, *format),
            Action::Write { content, overwrite } => self.write(&target, content, *overwrite),
            Action::List { recursive } => self.list(&target, &root, *recursive),
            Action::Delete => self.delete(&target),
        }
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> ToolError {
        move |error| of_system(&error, action, &self.path)
    }

    /// The real path of the target, whose last parts need not exist. It is below the root, links included.
    fn resolve(&self, root: &Path) -> Result<PathBuf, ToolError> {
        let outside = || {
            let message = format!(
                "{} leads out of the directory {}",
                self.path,
                self.root.display()
            );
            ToolError::invalid(FILE_OUTSIDE, message)
        };
        let mut real = root.to_owned();
        for part in Path::new(&self.path).components() {
            let name = match part {
                Component::CurDir => continue,
                Component::Normal(name) => name,
                // Behind a link, `..` is not the directory that is written before it.
                Component::ParentDir => {
                    let message = format!(
                        "{} contains `..`, which can lead out of the directory {}; write the path without it",
                        self.path,
                        self.root.display()
                    );
                    return Err(ToolError::invalid(FILE_OUTSIDE, message));
                }
                Component::RootDir | Component::Prefix(_) => return Err(outside()),
            };
            real.push(name);
            // A link that leads nowhere cannot be followed, so nothing may be written through it.
            match fs::symlink_metadata(&real) {
                Ok(found) if found.is_symlink() => {
                    real = fs::canonicalize(&real).map_err(self.failed("follow"))?;
                    if !real.starts_with(root) {
                        return Err(outside());
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(of_system(&error, "look at", &self.path)),
            }
        }
        Ok(real)
    }

    fn stopped(&self) -> Result<(), ToolError> {
        match self.stop.is_cancelled() {
            // The outcome is that of the caller, who has gone already.
            true => Err(ToolError::new(
                ErrorClass::Cancelled,
                "TASK_CANCELLED",
                "it was cancelled",
            )),
            false => Ok(()),
        }
    }

    fn of_type(&self, wanted: &str) -> ToolError {
        ToolError::invalid(FILE_TYPE, format!("{} is not a {wanted}", self.path))
    }

    /// The bytes of a file, up to the limit.
    fn bytes(&self, target: &Path) -> Result<Vec<u8>, ToolError> {
        let found = fs::metadata(target).map_err(self.failed("read"))?;
        // Opening a pipe or a device could wait forever.
        if !found.is_file() {
            return Err(self.of_type("file"));
        }
        let mut file = File::open(target).map_err(self.failed("read"))?;
        let mut bytes = Vec::new();
        loop {
            self.stopped()?;
            let mut block = (&mut file).take(BLOCK as u64);
            let read = block.read_to_end(&mut bytes).map_err(self.failed("read"))?;
            if bytes.len() > self.limit {
                return Err(too_large(&self.path, self.limit));
            }
            if read == 0 {
                return Ok(bytes);
            }
        }
    }

    fn read(&self, target: &Path, format: Format) -> Result<Json, ToolError> {
        let bytes = self.bytes(target)?;
        let content = format.show(&bytes, &self.path)?;
        let sha256 = keys::hex(&Sha256::digest(&bytes));
        Ok(json!({ "path": self.path, "size": bytes.len(), "sha256": sha256, "content": content }))
    }

    /// Writes to a file beside the target, which then gets the name of the target.
    fn write(&self, target: &Path, content: &[u8], overwrite: bool) -> Result<Json, ToolError> {
        let before = fs::metadata(target).ok();
        let is_file = before.as_ref().is_none_or(Metadata::is_file);
        let Some(folder) = target.parent().filter(|_| is_file) else {
            return Err(self.of_type("file"));
        };
        fs::create_dir_all(folder).map_err(self.failed("write"))?;
        let part = Part(folder.join(&self.part));
        // What a crash has left may be a second name of the target, so it is not written to.
        drop(Part(part.0.clone()));
        let mut file = File::create_new(&part.0).map_err(self.failed("write"))?;
        if let Some(before) = before {
            let kept = file.set_permissions(before.permissions());
            kept.map_err(self.failed("write"))?;
        }
        for block in content.chunks(BLOCK) {
            self.stopped()?;
            file.write_all(block).map_err(self.failed("write"))?;
        }
        file.sync_all().map_err(self.failed("write"))?;
        self.stopped()?;
        let named = match overwrite {
            true => fs::rename(&part.0, target),
            // Unlike a rename, a second name is refused if the name is taken.
            false => fs::hard_link(&part.0, target),
        };
        match named {
            Ok(()) => {}
            // The attempt before may have written it.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && self.bytes(target).is_ok_and(|found| found == content) => {}
            Err(error) => return Err(of_system(&error, "write", &self.path)),
        }
        // The name is durable when its directory is.
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(self.failed("write"))?;
        let sha256 = keys::hex(&Sha256::digest(content));
        Ok(json!({ "path": self.path, "size": content.len(), "sha256": sha256 }))
    }

    fn delete(&self, target: &Path) -> Result<Json, ToolError> {
        let deleted = match fs::metadata(target) {
            Ok(found) if !found.is_file() => return Err(self.of_type("file")),
            Ok(_) => fs::remove_file(target),
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => Ok(json!({ "path": self.path, "deleted": true })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(json!({ "path": self.path, "deleted": false }))
            }
            Err(error) => Err(of_system(&error, "delete", &self.path)),
        }
    }

    /// The entries of a directory, sorted by path. Links are listed and not followed.
    fn list(&self, target: &Path, root: &Path, recursive: bool) -> Result<Json, ToolError> {
        let found = fs::metadata(target).map_err(self.failed("list"))?;
        if !found.is_dir() {
            return Err(self.of_type("directory"));
        }
        let mut budget = self.limit;
        let mut entries = Vec::new();
        let mut open = vec![target.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder).map_err(self.failed("list"))? {
                self.stopped()?;
                let path = entry.map_err(self.failed("list"))?.path();
                if is_part(&path) {
                    continue;
                }
                let found = match fs::symlink_metadata(&path) {
                    Ok(found) => found,
                    // Deleted since the directory was read.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(of_system(&error, "list", &self.path)),
                };
                let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
                budget = budget
                    .checked_sub(ENTRY_BYTES + shown.len())
                    .ok_or_else(|| too_large(&format!("the list of {}", self.path), self.limit))?;
                entries.push((shown.into_owned(), found));
                if recursive && entries.last().is_some_and(|(_, found)| found.is_dir()) {
                    open.push(path);
                }
            }
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        let entries: Vec<Json> = entries
            .iter()
            .map(|(path, found)| entry(path, found))
            .collect();
        Ok(json!({ "path": self.path, "count": entries.len(), "entries": entries }))
    }
}

fn entry(path: &str, found: &Metadata) -> Json {
    let kind = match found.file_type() {
        it if it.is_dir() => "directory",
        it if it.is_file() => "file",
        it if it.is_symlink() => "link",
        _ => "other",
    };
    let modified = found.modified().ok();
    let modified = modified.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    let modified = modified.and_then(|it| u64::try_from(it.as_millis()).ok());
    json!({ "path": path, "type": kind, "size": found.len(), "modified_ms": modified })
}

/// Whether a file is one that some task is writing.
fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PART))
}

/// A file that is not complete. It is removed, unless it got its own name.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // Not there any more after a rename.
        let _ = fs::remove_file(&self.0);
    }
}
