//! The bounded part of `cargo xtask corrupt`: copies of a real store are damaged at random, and every damage is noticed
//! or harmless.

use std::path::PathBuf;

use super::root;

#[path = "../../../sim/src/corrupt/mod.rs"]
#[allow(
    dead_code,
    reason = "the program of `cargo xtask corrupt` uses the rest"
)]
mod corrupt;

fn corruptions(count: u64, only: Option<&str>, postgres: bool) -> corrupt::Corruptions {
    let server = || std::env::var("STEPWELL_TEST_POSTGRES").ok();
    corrupt::Corruptions {
        program: PathBuf::from(env!("CARGO_BIN_EXE_stepwell")),
        examples: root().join("examples"),
        seed: 9,
        count,
        lanes: 2,
        limit: None,
        only: only.map(str::to_owned),
        postgres: postgres.then(server).flatten(),
    }
}

#[test]
fn every_damage_is_noticed_or_harmless() {
    let report = corruptions(24, None, false).run(&mut |line| println!("{line}"));
    let report = report.unwrap();
    println!("{}", report.table());
    assert_eq!(report.count(), 24);
    assert_eq!(report.silent(), [""; 0]);
}
