//! The bounded part of `cargo xtask db-faults`: a PostgreSQL behind a proxy that cuts, delays, silences and truncates,
//! whose connections are ended and which is restarted, under real processes.

use std::process::Command;

const FAULTS: &str = env!("CARGO_BIN_EXE_stepwell-faults");

fn count() -> String {
    std::env::var("STEPWELL_DB_FAULTS").unwrap_or_else(|_| "40".into())
}

#[test]
fn nothing_is_lost_or_doubled_when_the_database_fails() {
    let output = Command::new(FAULTS)
        .args(["database", "--count", &count(), "--lanes", "1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{said}{complaint}");
    assert!(output.status.success());
    let counted = format!("| postgres | {} |", count());
    assert!(said.contains(&counted), "every fault has happened");
}

/// A test that finds nothing must be able to find something: work that the log does not know is named.
#[test]
fn an_effect_that_the_log_does_not_know_is_found() {
    use stepwell_engine::store::MemoryStore;
    use stepwell_sim::verdict;

    let folder = std::env::temp_dir().join(format!("stepwell-verdict-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let witness = folder.join("witness");
    std::fs::write(&witness, "run_x step a 1\n").unwrap();
    let found = verdict::judge(&MemoryStore::default(), &witness, 1).unwrap();
    assert_eq!(
        found.violations(),
        [
            "lost: 1 of 1 runs that were asked for",
            "doubled: the log does not know the effect \"run_x step a 1\"",
        ]
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
