//! Laws that hold for every plan and every sequence of commands, whatever the language.

mod commands;
mod nets;
mod world;

use proptest::prelude::*;

use nets::any_net;
use world::World;

/// `PROPTEST_CASES` makes a long night of it.
fn config() -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: wanted.and_then(|text| text.parse().ok()).unwrap_or(256),
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_command_in_every_state_keeps_the_laws(
        net in any_net(),
        choices in prop::collection::vec(any::<u64>(), 1..90),
    ) {
        let mut world = World::new(net);
        for choice in choices {
            world.step(choice);
        }
        world.check_tokens();
    }

    #[test]
    fn a_run_whose_work_is_done_always_ends(net in any_net(), seed in any::<u64>()) {
        let mut world = World::new(net);
        world.drive_to_the_end(seed);
        world.check_tokens();
    }

    #[test]
    fn any_prefix_of_the_log_continues_to_the_same_log(
        net in any_net(),
        choices in prop::collection::vec(any::<u64>(), 1..50),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut world = World::new(net);
        for choice in &choices {
            world.step(*choice);
        }
        world.replay_from(cut.index(world.decisions() + 1));
    }
}

proptest! {
    // Each case writes and reads every state of its history.
    #![proptest_config(ProptestConfig { cases: config().cases / 8, ..config() })]

    #[test]
    fn what_is_written_down_reads_back_at_every_point(
        net in any_net(),
        choices in prop::collection::vec(any::<u64>(), 1..40),
    ) {
        let mut world = World::new(net);
        for choice in &choices {
            world.step(*choice);
            // Nets whose tokens multiply say nothing new here, only later.
            if world.plan_and_log().1.len() > 200 {
                break;
            }
        }
        world.freeze_everywhere();
    }
}

proptest! {
    #![proptest_config(config())]

    /// The hash of a plan is that of its canonical JSON, also where numbers are larger than a double holds.
    #[test]
    fn the_hash_of_a_plan_is_that_of_its_tree(net in any_net(), large in any::<u64>()) {
        for workload in [serde_json::Value::Null, serde_json::json!({ "é": large, "b": [1.0, "\n"] })] {
            let net = stepwell_kernel::plan::Net { workload, ..net.clone() };
            let tree = serde_json::to_value(&net).unwrap();
            let canonical = serde_json_canonicalizer::to_string(&tree).unwrap();
            let plan = stepwell_kernel::plan::Plan::new(net).unwrap();
            prop_assert_eq!(plan.hash(), stepwell_kernel::keys::sha256_hex(&canonical));
        }
    }
}

/// The generators must reach everything, or the laws say little.
#[test]
fn random_runs_reach_every_kind_of_event() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<&'static str, u32>::new();
    for seed in 0..600u64 {
        let net = any_net().new_tree(&mut runner).expect("a net").current();
        let mut world = World::new(net);
        let mut mixer = seed;
        for _ in 0..80 {
            mixer = mixer
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            world.step(mixer);
        }
        for kind in world.kinds() {
            *seen.entry(kind).or_default() += 1;
        }
    }
    assert_eq!(seen.len(), 40, "{seen:#?}");
}
