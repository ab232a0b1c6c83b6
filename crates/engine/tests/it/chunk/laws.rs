//! Random plans and runs: the kernel's own generators, of which only some are needed here.
#![allow(dead_code, reason = "the kernel's laws need the rest")]

#[path = "../../../../kernel/tests/it/laws/commands.rs"]
mod commands;
#[path = "../../../../kernel/tests/it/laws/nets.rs"]
mod nets;
#[path = "../../../../kernel/tests/it/laws/world.rs"]
mod world;

use proptest::strategy::Strategy;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::{Net, Plan};

pub(super) fn any_net() -> impl Strategy<Value = Net> {
    nets::any_net()
}

/// Plays a random run and hands its plan and log over.
pub(super) fn play(net: Net, choices: &[u64], see: impl FnOnce(&Plan, &[Event])) {
    let mut world = world::World::new(net);
    for choice in choices {
        world.step(*choice);
        // Nets whose tokens multiply say nothing new here, only later.
        if world.plan_and_log().1.len() > 200 {
            break;
        }
    }
    let (plan, log) = world.plan_and_log();
    see(plan, log);
}
