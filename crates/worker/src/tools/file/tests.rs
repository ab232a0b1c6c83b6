//! The tool `file` on real files: what it reads and writes, paths that lead out, files that are none, limits, and
//! what a repeated or interrupted attempt leaves.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tempfile::TempDir;

use super::{FileTool, PART};
use crate::testing::calls::{call, code, cx, cx_for, cx_within, failed, ok};
use crate::tool::Tool as _;

fn tool() -> (TempDir, FileTool) {
    let folder = tempfile::tempdir().unwrap();
    let directory = Some(folder.path().to_owned());
    (
        folder,
        FileTool {
            directory,
            ..FileTool::default()
        },
    )
}

async fn write(files: &FileTool, path: &str, content: Json) -> Json {
    let fields = json!({ "action": "write", "path": path, "content": content });
    ok(files, &call(fields)).await
}

async fn read(files: &FileTool, path: &str) -> Json {
    ok(files, &call(json!({ "action": "read", "path": path }))).await["content"].clone()
}

async fn code_of(files: &FileTool, fields: Json) -> String {
    code(files, &call(fields)).await
}

/// The names in a directory, parts of files included.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_is_written_is_read_again() {
    let (folder, files) = tool();
    for (content, shown) in [
        (json!("grüße\n"), json!("grüße\n")),
        (json!(""), json!("")),
        (json!({"base64": "/wD+"}), json!({"base64": "/wD+"})),
        (
            json!({"a": [1, null]}),
            json!("{\n  \"a\": [\n    1,\n    null\n  ]\n}\n"),
        ),
        (json!(7), json!("7\n")),
    ] {
        write(&files, "a/b/c.txt", content.clone()).await;
        assert_eq!(read(&files, "a/b/c.txt").await, shown, "{content}");
    }
    assert_eq!(
        names(&folder.path().join("a/b")),
        ["c.txt"],
        "no part is left"
    );
    let written = write(&files, "x", json!("abc")).await;
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(written, json!({ "path": "x", "size": 3, "sha256": sha256 }));
    let parsed = json!({ "action": "read", "path": "a/b/c.txt", "format": "json" });
    assert_eq!(ok(&files, &call(parsed)).await["content"], 7);
}

#[tokio::test]
async fn content_that_is_not_of_its_format_is_an_error() {
    let (_folder, files) = tool();
    write(&files, "bytes", json!({"base64": "/wD+"})).await;
    for format in ["text", "json"] {
        let fields = json!({ "action": "read", "path": "bytes", "format": format });
        assert_eq!(code_of(&files, fields).await, "FILE_FORMAT", "{format}");
    }
}

#[tokio::test]
async fn a_path_never_leads_out_of_its_directory() {
    let (folder, files) = tool();
    std::fs::create_dir(folder.path().join("root")).unwrap();
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::write(folder.path().join("other/secret"), "s").unwrap();
    symlink("../other", folder.path().join("root/link")).unwrap();
    symlink("../other/secret", folder.path().join("root/file")).unwrap();
    symlink("/etc", folder.path().join("root/etc")).unwrap();
    for path in [
        "../other/secret",
        "a/../../other/secret",
        "..",
        "/etc/passwd",
        "link/secret",
        "link/new",
        "file",
        "etc/passwd",
    ] {
        for action in ["read", "write", "delete", "list"] {
            let fields = json!({ "action": action, "path": path, "root": "root", "content": "x" });
            assert_eq!(
                code_of(&files, fields).await,
                "FILE_OUTSIDE",
                "{action} {path}"
            );
        }
    }
    assert_eq!(names(&folder.path().join("other")), ["secret"]);
    assert_eq!(
        std::fs::read(folder.path().join("other/secret")).unwrap(),
        b"s"
    );
    // A link that stays inside is followed, one that leads nowhere is not written through.
    std::fs::write(folder.path().join("root/real"), "r").unwrap();
    symlink("real", folder.path().join("root/inside")).unwrap();
    symlink("../other/new", folder.path().join("root/dangling")).unwrap();
    symlink("loop", folder.path().join("root/loop")).unwrap();
    assert_eq!(read(&files, "root/inside").await, "r");
    let dangling = json!({ "action": "write", "path": "dangling", "root": "root", "content": "x" });
    assert_eq!(code_of(&files, dangling).await, "FILE_NOT_FOUND");
    let endless = json!({ "action": "read", "path": "loop", "root": "root" });
    assert_eq!(code_of(&files, endless).await, "FILE_TYPE");
    assert_eq!(names(&folder.path().join("other")), ["secret"]);
}

#[tokio::test]
async fn fields_that_cannot_be_used_are_refused() {
    let (_folder, files) = tool();
    for fields in [
        json!({}),
        json!({ "action": "move", "path": "a" }),
        json!({ "action": "read" }),
        json!({ "action": "read", "path": 7 }),
        json!({ "action": "read", "path": "a\u{0}b" }),
        json!({ "action": "read", "path": "a", "format": "csv" }),
        json!({ "action": "write", "path": "a" }),
        json!({ "action": "write", "path": "a", "content": {"base64": "%"} }),
        json!({ "action": "write", "path": "a", "content": {"base64": 7} }),
        json!({ "action": "write", "path": "a", "content": "", "overwrite": "maybe" }),
        json!({ "action": "list", "recursive": 3 }),
        json!({ "action": "write", "path": "x".repeat(5000), "content": "" }),
    ] {
        assert_eq!(
            code_of(&files, fields.clone()).await,
            "TOOL_FIELD",
            "{fields}"
        );
    }
}

#[tokio::test]
async fn what_is_no_file_is_told_so() {
    let (folder, files) = tool();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    write(&files, "file", json!("x")).await;
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for (action, path) in [
        ("read", "folder"),
        ("read", "."),
        ("write", "folder"),
        ("write", "."),
        ("write", "file/below"),
        ("delete", "folder"),
        ("list", "file"),
        ("read", "pipe"),
        ("write", "pipe"),
        ("delete", "pipe"),
    ] {
        let fields = json!({ "action": action, "path": path, "content": "x" });
        assert_eq!(
            code_of(&files, fields).await,
            "FILE_TYPE",
            "{action} {path}"
        );
    }
    for (action, path) in [("read", "none"), ("read", "none/below"), ("list", "none")] {
        let fields = json!({ "action": action, "path": path });
        assert_eq!(
            code_of(&files, fields).await,
            "FILE_NOT_FOUND",
            "{action} {path}"
        );
    }
    let fields = json!({ "action": "list", "root": "none" });
    assert_eq!(code_of(&files, fields).await, "FILE_NOT_FOUND");
}

#[tokio::test]
async fn a_file_that_exists_is_replaced_or_kept() {
    let (folder, files) = tool();
    write(&files, "a", json!("one")).await;
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.path().join("a"), mode).unwrap();
    write(&files, "a", json!("two")).await;
    assert_eq!(read(&files, "a").await, "two");
    let mode = std::fs::metadata(folder.path().join("a"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640, "its permissions stay");
    let keep = |content: &str| {
        call(json!({ "action": "write", "path": "a", "content": content, "overwrite": false }))
    };
    let refused = failed(&files, &keep("three")).await.error.unwrap();
    assert_eq!(
        (&*refused.code, refused.class),
        ("FILE_EXISTS", ErrorClass::Conflict)
    );
    assert_eq!(read(&files, "a").await, "two");
    // An attempt that was repeated after a crash finds what it wrote itself.
    ok(&files, &keep("two")).await;
    assert_eq!(names(folder.path()), ["a"]);
}

#[tokio::test]
async fn an_attempt_after_a_crash_replaces_what_the_crash_left() {
    let (folder, files) = tool();
    let fields = json!({ "action": "write", "path": "a", "content": "new", "overwrite": false });
    let task = files.read_task(&call(fields.clone()), &cx()).unwrap();
    let part = folder.path().join(&task.part);
    assert!(task.part.starts_with(PART));
    // Killed while it wrote.
    std::fs::write(&part, "ne").unwrap();
    let list = call(json!({ "action": "list" }));
    assert_eq!(ok(&files, &list).await["count"], 0, "a part is not listed");
    ok(&files, &call(fields.clone())).await;
    assert_eq!(names(folder.path()), ["a"]);
    // Killed between the name and the end: the part is a second name of the file.
    std::fs::hard_link(folder.path().join("a"), &part).unwrap();
    ok(&files, &call(fields)).await;
    assert_eq!(read(&files, "a").await, "new");
    assert_eq!(names(folder.path()), ["a"]);
    // What someone else put there is not written through.
    std::fs::write(folder.path().join("victim"), "v").unwrap();
    symlink("victim", &part).unwrap();
    write(&files, "b", json!("b")).await;
    assert_eq!(read(&files, "victim").await, "v");
}

#[tokio::test]
async fn a_delete_may_be_repeated() {
    let (_folder, files) = tool();
    write(&files, "a", json!("x")).await;
    let delete = call(json!({ "action": "delete", "path": "a" }));
    assert_eq!(ok(&files, &delete).await["deleted"], true);
    assert_eq!(ok(&files, &delete).await["deleted"], false);
}

#[tokio::test]
async fn a_list_is_sorted_and_follows_no_link() {
    let (folder, files) = tool();
    for path in ["b", "a/2", "a/1", "a/deep/3"] {
        write(&files, path, json!(path)).await;
    }
    symlink("/", folder.path().join("link")).unwrap();
    let paths = |listed: &Json| -> Vec<String> {
        let entries = listed["entries"].as_array().unwrap().iter();
        entries
            .map(|it| {
                format!(
                    "{} {}",
                    it["type"].as_str().unwrap(),
                    it["path"].as_str().unwrap()
                )
            })
            .collect()
    };
    let flat = ok(&files, &call(json!({ "action": "list" }))).await;
    assert_eq!(paths(&flat), ["directory a", "file b", "link link"]);
    let below = json!({ "action": "list", "path": "a", "recursive": "true" });
    let below = ok(&files, &call(below)).await;
    assert_eq!(
        paths(&below),
        ["file a/1", "file a/2", "directory a/deep", "file a/deep/3"]
    );
    assert_eq!(below["count"], 4);
    assert_eq!(below["entries"][0]["size"], 3);
    assert!(below["entries"][0]["modified_ms"].as_u64().unwrap() > 1_600_000_000_000);
}

#[tokio::test]
async fn nothing_is_larger_than_the_limit() {
    let (folder, files) = tool();
    write(&files, "large", json!("x".repeat(1001))).await;
    for at in 0..20 {
        write(&files, &format!("many/{at}"), json!("")).await;
    }
    let small = cx_within(1000);
    for fields in [
        json!({ "action": "read", "path": "large" }),
        json!({ "action": "write", "path": "new", "content": "x".repeat(1001) }),
        json!({ "action": "list", "path": "many" }),
    ] {
        let outcome = files.run(&call(fields.clone()), &small).await;
        assert_eq!(outcome.error.unwrap().code, "FILE_TOO_LARGE", "{fields}");
    }
    assert!(!folder.path().join("new").exists());
}

#[tokio::test]
async fn a_task_that_is_stopped_leaves_nothing() {
    let (folder, files) = tool();
    let content = "x".repeat(8 << 20);
    let big = call(json!({ "action": "write", "path": "big", "content": content }));
    let cancelled = cx();
    cancelled.cancelled.cancel();
    let begun = Instant::now();
    for cx in [cancelled, cx_for(Duration::ZERO)] {
        let outcome = files.run(&big, &cx).await;
        // It may have been faster than the request to stop; then it is there as a whole.
        match outcome.error {
            Some(_) => assert_eq!(names(folder.path()), Vec::<String>::new()),
            None => assert_eq!(names(folder.path()), ["big"]),
        }
        let _ = std::fs::remove_file(folder.path().join("big"));
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    let task = files.read_task(&big, &cx()).unwrap();
    task.stop.cancel();
    assert_eq!(task.work().unwrap_err().code, "TASK_CANCELLED");
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[tokio::test]
async fn a_full_disk_may_be_tried_again_and_a_forbidden_file_not() {
    let full = super::of_system(&std::io::ErrorKind::StorageFull.into(), "write", "a");
    assert_eq!((&*full.code, full.is_retryable()), ("FILE_IO", true));
    let denied = super::of_system(&std::io::ErrorKind::PermissionDenied.into(), "read", "a");
    assert_eq!(
        (&*denied.code, denied.class),
        ("FILE_DENIED", ErrorClass::Auth)
    );
    assert!(!denied.is_retryable());
}
