//! A `stepwell serve` that a task starts, and that ends with its value.

use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A server that ends with its value.
pub(crate) struct Served {
    child: Child,
    pub(crate) url: String,
}

impl Served {
    /// In a folder, with more arguments. The warnings of the server are printed.
    pub(crate) fn start(program: &Path, folder: &Path, args: &[&str]) -> Result<Served> {
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start stepwell serve")?;
        let err = child.stderr.take().context("no standard error")?;
        let (tell, told) = mpsc::channel();
        // Read to the end, so that the server never waits for its log to be read.
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                match line.split_once("serving on ") {
                    Some((_, url)) => drop(tell.send(url.trim().to_owned())),
                    None => eprintln!("server: {line}"),
                }
            }
        });
        match told.recv_timeout(Duration::from_secs(60)) {
            Ok(url) => Ok(Served { child, url }),
            Err(_) => {
                let _ = child.kill();
                bail!("stepwell serve did not start")
            }
        }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
