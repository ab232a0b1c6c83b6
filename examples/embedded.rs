//! The whole engine inside a program: a definition, a handler in Rust, a run that survives the process.
//!
//! ```sh
//! cargo run --example embedded
//! ```

use serde::{Deserialize, Serialize};
use serde_json::json;
use stepwell::{Failure, Job, Output, Stepwell};

#[derive(Deserialize)]
struct Order {
    id: u32,
    amount: f64,
}

#[derive(Serialize)]
struct Receipt {
    order: u32,
    charged: f64,
}

async fn charge(job: Job, order: Order) -> Result<Output<Receipt>, Failure> {
    if order.amount > 1_000.0 {
        return Err(Failure::dead("too much for one card"));
    }
    job.log
        .note(&format!("charging under the key {}", job.idempotency_key));
    Ok(Output(Receipt {
        order: order.id,
        charged: order.amount,
    }))
}

fn main() -> Result<(), stepwell::Error> {
    let stepwell = Stepwell::at("sqlite:.stepwell/embedded.db")
        .on("payments", "charge", charge)
        .open()?;
    let run = stepwell.start(
        "examples/dag/embedded.yaml",
        json!({ "id": 7, "amount": 12.5 }),
    )?;
    println!("{} ended with {}", run.id(), run.wait()?.output);
    stepwell.stop()
}
