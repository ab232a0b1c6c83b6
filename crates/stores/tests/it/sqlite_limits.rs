//! Faults that the system makes, not the file: permissions, and a limit on the size of files. They
//! hold for a process, so each is met in a child: this program again, for one test.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use stepwell_engine::store::{
    AppendResult, Commits as _, Maintenance as _, RunNo, RunReader as _, StoreErrorKind,
};
use stepwell_stores::sqlite::{Mode, SqliteStore};

use crate::place::Place;
use crate::sqlite::quick;
use crate::sqlite_faults::{batch, create, plan, refused, with_mode};

/// Names the directory to a child.
const PLACE: &str = "STEPWELL_TEST_PLACE";

/// The directory, in a child only.
fn given() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// Lets a child do one test in the directory.
fn pass_on(mut child: Command, test: &str, place: &Place) {
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    child.args([&name, "--exact", "--nocapture"]);
    let output = child.env(PLACE, place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("1 passed"), "{said}");
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_may_not_be_written_is_said_and_can_be_read() {
    if let Some(place) = given() {
        let file = place.join("file/s.db");
        refused(&file, quick(), StoreErrorKind::ReadOnly, "permissions");
        let directory = place.join("directory/s.db");
        refused(&directory, quick(), StoreErrorKind::ReadOnly, "permissions");
        for path in [file, directory] {
            let store = SqliteStore::open(path, with_mode(Mode::ReadOnly)).unwrap();
            assert_eq!(store.find("run_1").unwrap(), Some(RunNo(1)));
        }
        let none = place.join("directory/none.db");
        refused(&none, quick(), StoreErrorKind::Unusable, "permissions");
        let deep = place.join("directory/deep/none.db");
        refused(&deep, quick(), StoreErrorKind::Unusable, "permissions");
        let hidden = place.join("hidden/s.db");
        refused(&hidden, quick(), StoreErrorKind::Unusable, "permissions");
        return;
    }
    let place = Place::new();
    for name in ["file", "directory", "hidden"] {
        let path = place.at(name).join("s.db");
        let store = SqliteStore::open(&path, quick()).unwrap();
        let made = create(plan(&store), 1, "[]");
        store.commit(&batch(1, vec![made])).unwrap();
    }
    allow(&place.at("file/s.db-lock"), 0o666);
    allow(&place.at("file/s.db"), 0o444);
    allow(&place.at("file"), 0o777);
    // A store is made for its owner only; here others may read it.
    for name in ["directory/s.db", "directory/s.db-lock"] {
        allow(&place.at(name), 0o644);
    }
    allow(&place.at("directory"), 0o555);
    allow(&place.at("hidden"), 0o000);
    // Nothing is forbidden to root, so the child runs as another user.
    let program = place.at("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut child = Command::new(&program);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        child.uid(65_534).gid(65_534);
    }
    child.current_dir("/");
    pass_on(
        child,
        "what_may_not_be_written_is_said_and_can_be_read",
        &place,
    );
    for name in ["directory", "hidden"] {
        allow(&place.at(name), 0o755);
    }
}

#[test]
fn a_disk_that_takes_no_more_is_full_until_it_takes_more() {
    if let Some(place) = given() {
        let store = SqliteStore::open(place.join("s.db"), quick()).unwrap();
        let plan = plan(&store);
        let body = format!("[\"{}\"]", "x".repeat(3_000));
        let mut next = 1;
        let error = loop {
            match store.commit(&batch(next, vec![create(plan, next, &body)])) {
                Ok(outcomes) => assert_eq!(outcomes, [AppendResult::Committed]),
                Err(error) => break error,
            }
            next += 1;
        };
        assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
        assert!(next > 10, "{next}");
        assert!(store.load(RunNo(next - 1)).unwrap().is_some());
        assert!(store.load(RunNo(next)).unwrap().is_none());
        let raised = Command::new("prlimit")
            .args([
                "--fsize=unlimited",
                "--pid",
                &std::process::id().to_string(),
            ])
            .status();
        assert!(raised.unwrap().success());
        for no in next..next + 50 {
            let outcomes = store
                .commit(&batch(no, vec![create(plan, no, &body)]))
                .unwrap();
            assert_eq!(outcomes, [AppendResult::Committed]);
        }
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        return;
    }
    let place = Place::new();
    let mut child = Command::new("sh");
    // With the signal ignored, a file that would grow too large is an error of the write.
    child.args(["-c", "trap '' XFSZ; ulimit -S -f 2000; exec \"$@\"", "sh"]);
    child.arg(std::env::current_exe().unwrap());
    pass_on(
        child,
        "a_disk_that_takes_no_more_is_full_until_it_takes_more",
        &place,
    );
}
