//! Kills of the process, and of the server of the engine.

use super::{KILLED, Line, SHORT, Trial, count, ended_within, wait};
use crate::engines::text;
use anyhow::{Result, ensure};
use std::process::Child;
use std::time::{Duration, Instant};

impl Trial {
    /// The process is killed again and again, and each time another one goes on.
    pub(in crate::engines) fn process_kills(&self, kills: usize) -> Result<String> {
        let file = self.chain(
            "killed",
            10 + kills,
            "sleep 0.3; echo $STEPWELL_STEP_ID >> effects",
        )?;
        let mut seed = 41;
        let mut said = String::new();
        for store in self.stores("killed") {
            let (run, engine) = ("run_killed", self.server.engine());
            let mut done = 0;
            let begun = Instant::now();
            let mut child = self.begin(
                &[
                    &file, "--store", &store, "--run-id", run, "--engine", &engine,
                ],
                "killed.log",
            )?;
            // A process that is killed before the run is there leaves nothing to continue.
            self.until(&store, run, SHORT, |events| {
                count(events, "RunStarted") == 1
            })?;
            loop {
                let patience = match done < kills {
                    true => Duration::from_millis(random(&mut seed, 1_500)),
                    false => KILLED,
                };
                // Every second time a step is in flight, so that it is lost.
                if done < kills && done % 2 == 0 {
                    self.until_step(&store, run, &mut child)?;
                }
                if let Some(status) = ended_within(&mut child, patience)? {
                    ensure!(status.success(), "the run ended with {status}");
                    break;
                }
                ensure!(done < kills, "the run does not end after {kills} kills");
                child.kill()?;
                child.wait()?;
                done += 1;
                child = self.resume(run, &store, &engine)?;
            }
            self.whole(&store, run, 10 + kills)?;
            said.push_str(&format!(
                "{done} kills in {:.0} s; ",
                begun.elapsed().as_secs_f64()
            ));
        }
        Ok(format!("{said}every step completed once"))
    }

    /// Waits until another step has begun, or the process has ended.
    fn until_step(&self, store: &str, run: &str, child: &mut Child) -> Result<()> {
        let begun =
            |events: &[Line]| count(events, "StepStarted") + count(events, "StepExecutionStarted");
        let (before, until) = (begun(&self.events(store, run)?), Instant::now() + SHORT);
        while child.try_wait()?.is_none() && begun(&self.events(store, run)?) == before {
            ensure!(Instant::now() < until, "no further step begins");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The server is killed again and again, and comes back.
    pub(in crate::engines) fn server_kills(&self, kills: usize) -> Result<String> {
        let steps = 10 + 2 * kills;
        let file = self.chain("orphaned", steps, "sleep 0.3")?;
        let store = text(&self.folder.join("orphaned.db"));
        let (run, engine) = ("run_orphaned", self.server.engine());
        let args = [
            &*file, "--store", &store, "--run-id", run, "--engine", &engine,
        ];
        let mut child = self.begin(&args, "orphaned.log")?;
        let (mut done, mut seed, begun) = (0, 17, Instant::now());
        while done < kills {
            if ended_within(
                &mut child,
                Duration::from_millis(500 + random(&mut seed, 1_500)),
            )?
            .is_some()
            {
                break;
            }
            self.server.kill()?;
            std::thread::sleep(Duration::from_millis(random(&mut seed, 1_500)));
            self.server.again()?;
            done += 1;
        }
        let status = wait(&mut child, KILLED)?;
        ensure!(status.success(), "the run ended with {status}");
        self.whole(&store, run, steps)?;
        Ok(format!(
            "{done} kills in {:.0} s; every step completed once",
            begun.elapsed().as_secs_f64()
        ))
    }
}

/// The next number below `limit`: the same in every run of the task.
fn random(seed: &mut u64, limit: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % limit.max(1)
}
