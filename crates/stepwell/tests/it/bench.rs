//! `bench tools`: a short run of each tool, and what is refused.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Call, stepwell};

/// Measures a tool for a moment, on a file that only this test has.
fn bench(tool: &str, more: &[&str]) -> Call {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let name = format!("bench-{}-{call}.db", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let args = ["bench", "tools", tool, "--seconds", "0.1", "--store"];
    let call = stepwell(&[&args[..], &[path.to_str().unwrap()], more].concat());
    for left in [path.clone(), path.with_extension("data")] {
        assert!(!left.exists(), "{} is left behind", left.display());
    }
    call
}

fn measured(tool: &str) -> serde_json::Value {
    let call = bench(tool, &["--at-a-time", "2", "-o", "json"]);
    assert_eq!(call.code, 0, "{call:?}");
    let figures = call.json();
    assert_eq!(figures["tool"], tool);
    assert_eq!(figures["sync"], "synchronous=FULL");
    assert_eq!(figures["atATime"], 2);
    assert!(figures["stepsPerSecond"].as_f64() > Some(0.0), "{figures}");
    assert!(figures["stepMs"]["p50"].as_f64() > Some(0.0), "{figures}");
    figures
}

#[test]
fn steps_that_do_nothing_are_measured() {
    for tool in ["noop", "handler"] {
        let figures = measured(tool);
        assert!(figures.get("alone").is_none(), "{figures}");
    }
}

#[test]
fn each_tool_stands_beside_itself_alone() {
    for tool in ["shell", "http", "sqlite"] {
        let figures = measured(tool);
        let alone = figures["alone"]["callsPerSecond"].as_f64();
        assert!(alone > Some(0.0), "{figures}");
    }
}

#[test]
fn python_is_measured_warm_and_cold() {
    for tool in ["python", "python-cold"] {
        let figures = measured(tool);
        assert!(figures["alone"]["callMs"]["p50"].as_f64() > Some(0.0));
    }
}

#[test]
fn postgres_is_measured_where_there_is_a_server() {
    let call = bench("postgres", &["-o", "json"]);
    assert_eq!(call.code, 0, "{call:?}");
    let has_server = std::env::var("STEPWELL_TEST_POSTGRES").is_ok_and(|it| !it.is_empty());
    let figures = call.json();
    match has_server {
        true => assert!(figures["stepsPerSecond"].as_f64() > Some(0.0), "{figures}"),
        false => assert!(figures["leftOut"].is_string(), "{figures}"),
    }
}

#[test]
fn people_are_told_the_sync_mode_and_the_share_of_the_tool() {
    let call = bench("shell", &["--sync", "off"]);
    assert_eq!(call.code, 0, "{call:?}");
    for wanted in [
        "synchronous=OFF",
        "8 concurrent steps",
        "steps/s",
        "tool alone",
    ] {
        assert!(call.out.contains(wanted), "{wanted}: {}", call.out);
    }
}

#[test]
fn a_step_that_fails_fails_the_bench() {
    let address = ["--postgres", "postgresql://nobody@127.0.0.1:1/none"];
    let call = bench("postgres", &address);
    assert_eq!(call.code, 1, "{call:?}");
    assert!(call.err.contains("PG_UNREACHABLE"), "{}", call.err);
}

#[test]
fn help_names_every_tool() {
    let call = stepwell(&["bench", "tools", "--help"]);
    assert_eq!(call.code, 0);
    for tool in [
        "noop",
        "handler",
        "shell",
        "python-cold",
        "http",
        "postgres",
        "sqlite",
    ] {
        assert!(
            call.out.contains(&format!("  {tool} ")),
            "{tool}: {}",
            call.out
        );
    }
    assert!(stepwell(&["bench", "--help"]).out.contains("bench tools"));
}

#[test]
fn wrong_usage_is_said_before_anything_is_measured() {
    for (args, said) in [
        (&["tools", "perl"][..], "python-cold"),
        (&["tools", "noop", "--at-a-time", "0"], "at-a-time"),
        (&["tools", "noop", "--seconds", "0"], "--seconds"),
        (&["chain-11"], "chain-10"),
    ] {
        let call = stepwell(&[&["bench"], args].concat());
        assert_eq!(call.code, 2, "{call:?}");
        assert!(call.err.contains(said), "{said}: {}", call.err);
    }
}

#[test]
fn a_store_that_is_there_is_not_touched() {
    let path = super::scratch("bench-there.db", b"mine");
    let call = stepwell(&["bench", "tools", "noop", "--store", &path]);
    assert_eq!(call.code, 2, "{call:?}");
    assert_eq!(std::fs::read(path).unwrap(), b"mine");
}
