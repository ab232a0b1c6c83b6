//! The kernel's laws on the plans of real definitions: any sequence of commands on any example. The
//! fuzz target `decide` does the same with coverage to guide it.

#[path = "../../../kernel/tests/it/laws/commands.rs"]
mod commands;
#[path = "../../../kernel/tests/it/laws/world.rs"]
#[expect(dead_code, reason = "the kernel's own tests ask it for more")]
mod world;

use proptest::prelude::*;
use stepwell_dialects::load;
use stepwell_kernel::plan::Net;
use world::World;

fn nets() -> Vec<Net> {
    let languages = ["actions", "dag", "plan", "playbook", "linear"];
    let net = |(_, text): (String, String)| {
        let loaded = load(&crate::source(&text));
        loaded.plan.expect("an example loads").net().clone()
    };
    languages
        .into_iter()
        .flat_map(crate::examples)
        .map(net)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_command_on_every_example_keeps_the_laws(
        net in prop::sample::select(nets()),
        choices in prop::collection::vec(any::<u64>(), 1..80),
    ) {
        let mut world = World::new(net);
        for choice in choices {
            world.step(choice);
        }
        world.check_tokens();
    }

    #[test]
    fn every_example_whose_work_is_done_ends(net in prop::sample::select(nets()), seed in any::<u64>()) {
        let mut world = World::new(net);
        world.drive_to_the_end(seed);
        world.check_tokens();
    }
}
