//! Any sequence of commands on any example's plan keeps the kernel's laws.
#![no_main]

#[path = "../../crates/kernel/tests/it/laws/commands.rs"]
mod commands;
#[path = "../../crates/kernel/tests/it/laws/world.rs"]
mod world;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use stepwell_dialects::{Source, load};
use stepwell_kernel::plan::Net;
use world::World;

/// The nets of all examples, read once.
fn nets() -> &'static [Net] {
    static NETS: OnceLock<Vec<Net>> = OnceLock::new();
    NETS.get_or_init(|| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
        let mut nets = Vec::new();
        for folder in std::fs::read_dir(root).expect("the examples").flatten() {
            for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let bytes = std::fs::read(file.path()).expect("an example");
                let source = Source::from_bytes("example", &bytes).expect("an example is text");
                nets.push(load(&source).plan.expect("an example loads").net().clone());
            }
        }
        nets.sort_by(|a, b| a.plan_id.cmp(&b.plan_id));
        nets
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let nets = nets();
    let mut world = World::new(nets[*first as usize % nets.len()].clone());
    for chunk in rest.chunks(4).take(120) {
        let mut choice = [0u8; 8];
        choice[..chunk.len()].copy_from_slice(chunk);
        world.step(u64::from_le_bytes(choice).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    world.check_tokens();
});
