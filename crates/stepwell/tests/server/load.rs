//! A server under load, bounded: the same command as the long measurement, with fewer clients and less time.

use std::process::Command;

use serde_json::Value;

fn measured(args: &[&str]) -> (bool, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["bench", "server", "-o", "json"])
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    let figures = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{err}"));
    (output.status.success(), figures)
}

#[test]
fn clients_start_and_watch_runs_beside_slow_readers_without_an_error() {
    let (succeeded, figures) = measured(&[
        "--clients",
        "40",
        "--seconds",
        "4",
        "--slow-readers",
        "20",
        "--streams",
        "0",
    ]);
    let load = &figures["load"];
    assert!(succeeded, "{figures}");
    assert_eq!(load["failures"], 0, "{figures}");
    assert_eq!(load["slowReadersDropped"], 0, "{figures}");
    assert!(load["startsPerSecond"].as_f64() > Some(0.0), "{figures}");
    assert!(load["stepsPerSecond"].as_f64() > Some(0.0), "{figures}");
    assert!(load["firstStepMs"]["p99"].as_f64() > Some(0.0), "{figures}");
    let resident = load["residentMb"].as_array().unwrap().iter();
    let resident: Vec<f64> = resident.map(|it| it.as_f64().unwrap()).collect();
    // Generous, for a build without optimisation: buffers of readers that do not read grow by far more.
    assert_eq!(resident.len(), 9, "{figures}");
    assert!(resident[8] < resident[0] + 500.0, "{figures}");
}

#[test]
fn idle_streams_are_open_at_the_same_time_and_cost_little_memory() {
    let (succeeded, figures) = measured(&["--streams", "300", "--seconds", "0"]);
    let streams = &figures["streams"];
    assert!(succeeded, "{figures}");
    assert_eq!(streams["opened"], 300, "{figures}");
    assert!(streams["openFiles"].as_u64() > Some(300), "{figures}");
    // Threads and connections of the store included, which many streams share.
    assert!(streams["kbEach"].as_f64() < Some(1_024.0), "{figures}");
    assert!(figures["load"].is_null(), "{figures}");
}

#[test]
fn the_help_of_the_measurement_teaches_its_forms() {
    let help = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["bench", "server", "--help"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(text.contains("--clients 500 --seconds 120 --slow-readers 200"));
}
