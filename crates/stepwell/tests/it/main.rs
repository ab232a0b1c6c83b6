//! The real binary, as people and scripts call it.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod bench;
mod business_keys;
mod by_reference;
mod call;
mod check;
mod conformance;
// Only the standard library is in it, so it can be included here as it is.
#[cfg(unix)]
#[path = "../../../../xtask/src/cluster.rs"]
#[allow(dead_code, reason = "xtask uses the rest")]
mod cluster;
mod corruptions;
mod damage;
mod durable;
#[cfg(unix)]
mod effects_page;
mod embedded;
mod embedded_servers;
mod examples;
mod gone_files;
mod hostile;
#[path = "../../../bus/tests/it/listener.rs"]
mod listener;
mod long;
mod names;
mod newer_version;
mod outbox;
#[cfg(unix)]
mod patience;
mod people;
#[cfg(unix)]
#[path = "../../../stores/tests/it/pgbouncer.rs"]
mod pgbouncer;
#[cfg(unix)]
mod postgres_access;
mod private_files;
#[cfg(unix)]
#[path = "../../../sim/src/proxy.rs"]
#[allow(dead_code, unreachable_pub, reason = "the simulator uses the rest")]
mod proxy;
mod run;
mod runs;
mod small_commands;
mod stderr;
mod test_store;
mod tool_pages;
mod unusable_store;
mod view;
mod watch;

use call::Call;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    call_in(&root(), args, input)
}

/// Calls it in another directory.
fn stepwell_in(folder: &Path, args: &[&str]) -> Call {
    call_in(folder, args, b"")
}

fn call_in(folder: &Path, args: &[&str], input: &[u8]) -> Call {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(args)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        // What is not about a store leaves nothing behind.
        .env("STEPWELL_STORE", "memory:")
        // A test of patience asks for it.
        .env("STEPWELL_STORE_PATIENCE", "0")
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
    Call::of(output)
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
