//! The real binary, as people and scripts call it.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod bench;
mod check;
mod durable;
mod embedded;
mod examples;
mod hostile;
#[path = "../../../bus/tests/it/listener.rs"]
mod listener;
mod outbox;
#[cfg(unix)]
mod postgres_access;
mod redis;
mod run;
mod runs;
mod small_commands;
mod stderr;
mod test_store;
mod unusable_store;
mod view;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a call came to.
#[derive(Debug)]
struct Call {
    code: i32,
    out: String,
    err: String,
}

impl Call {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Calls the binary in the workspace's root.
fn stepwell(args: &[&str]) -> Call {
    stepwell_with(args, b"")
}

/// Calls it with something on standard input.
fn stepwell_with(args: &[&str], input: &[u8]) -> Call {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(args)
        .current_dir(root())
        .env_remove("NO_COLOR")
        // What is not about a store leaves nothing behind.
        .env("STEPWELL_STORE", "memory:")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // On a thread of its own, or a full pipe would stop both.
    let feed = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    Call {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file that only this test has.
fn scratch(name: &str, bytes: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

const MOCK: [&str; 3] = ["--engine", "mock", "--virtual-time"];

/// Runs a definition in virtual time.
fn mock(file: &str, more: &[&str]) -> Call {
    let args: Vec<&str> = ["run", file].into_iter().chain(MOCK).collect();
    stepwell(&[&args[..], more].concat())
}
