//! Handlers for the conformance kit: what only a program that embeds the engine can do, such as waiting inside of a
//! step and being called again when the wait is over. Scenarios start it on the store of `STEPWELL_STORE`:
//!
//! - `program: FILE KEY` starts a run of FILE with KEY, or finds the run that was started with KEY before, prints its id,
//!   works until the run has ended and prints how.
//! - `program: FILE KEY COUNT` does the same with COUNT runs, with the keys KEY-1, KEY-2 and so on.
//! - `program: serve` starts nothing and works until there is a file `stop`.
//!
//! Each call of a handler is a line of the file `handled`. `STEPWELL_APP` names the program there.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use stepwell::{Failure, Job, Reply, Stepwell};

/// How often a file is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for the event `paid` and announces that; says how the wait ended. While the file `hold` has text, the call
/// after a wait that ran out takes a minute.
async fn wait(job: Job, input: Json) -> Result<Reply, Failure> {
    let task = format!("{:?}", job.task);
    if job.payload.is_some() {
        note(&job, "paid")?;
        return Reply::done("paid");
    }
    note(&job, &task)?;
    if task == "ReadyStep" {
        let millis = input["timeoutMs"].as_u64().unwrap_or(300);
        let announced = json!({ "type": "order.awaited", "order": "o-1" });
        let reply = Reply::wait_for("paid").within(Duration::from_millis(millis));
        return Ok(reply.sending(announced));
    }
    hold().await;
    Reply::done("too late")
}

/// Works for `workMs`, fails in the first `failures` attempts, or for good with the message `dead`. While the file
/// `hold` has text, it takes a minute. Its line has the program, the attempt and the idempotency key.
async fn work(job: Job, input: Json) -> Result<Reply, Failure> {
    let app = std::env::var("STEPWELL_APP").unwrap_or_else(|_| "kit".to_owned());
    let (attempt, key) = (job.attempt, &job.idempotency_key);
    note(&job, &format!("{app} attempt {attempt} {key}"))?;
    hold().await;
    let millis = input["workMs"].as_u64().unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(millis)).await;
    if let Some(message) = input["dead"].as_str() {
        return Err(Failure::dead(message));
    }
    match u64::from(attempt) <= input["failures"].as_u64().unwrap_or(0) {
        true => Err(Failure::retry("not yet").after(Duration::from_millis(1))),
        false => Reply::done(app),
    }
}

async fn hold() {
    for _ in 0..1_200 {
        // An empty file holds nobody: a scenario can write one.
        if std::fs::read("hold").unwrap_or_default().is_empty() {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn note(job: &Job, what: &str) -> Result<(), Failure> {
    // One call: other programs write to the same file.
    let line = format!("{} {what} {}\n", job.operation, job.execution);
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open("handled")
        .and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|error| Failure::dead(error.to_string()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let store = std::env::var("STEPWELL_STORE")?;
    let stepwell = Stepwell::at(&store)
        .on("kit", "WAIT", wait)
        .on("kit", "WORK", work)
        .on("kit", "kit:work", work)
        .on("kit", "kit:undo", work)
        // One at a time, so that there is something to share.
        .limit("kit", 1)
        .open()?;
    let done = match args[..] {
        ["serve"] => {
            println!("ready");
            while !Path::new("stop").exists() {
                std::thread::sleep(LOOK);
            }
            true
        }
        [file, key] => start(&stepwell, file, &[key.to_owned()])?,
        [file, key, count] => {
            let keys: Vec<String> = (1..=count.parse::<u32>()?)
                .map(|number| format!("{key}-{number}"))
                .collect();
            start(&stepwell, file, &keys)?
        }
        _ => return Err("write the file of a definition and a key, or serve".into()),
    };
    stepwell.stop()?;
    match done {
        true => Ok(()),
        false => Err("a run did not succeed".into()),
    }
}

/// Starts a run for each key and waits for all of them: whether all succeeded.
fn start(stepwell: &Stepwell, file: &str, keys: &[String]) -> Result<bool, stepwell::Error> {
    let mut runs = Vec::new();
    for key in keys {
        let run = stepwell.start_once(key, file, json!({}))?;
        println!("{}", run.id());
        runs.push(run);
    }
    let mut done = true;
    for run in runs {
        match run.wait() {
            Ok(ended) => println!("ended: {}", ended.output),
            Err(error) => {
                println!("error: {error}");
                done = false;
            }
        }
    }
    Ok(done)
}
