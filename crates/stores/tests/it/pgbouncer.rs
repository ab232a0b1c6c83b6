//! A pgbouncer for tests, in transaction mode: it gives every transaction another connection. Other crates include this
//! file, so only the standard library is in it.
//!
//! Tests that need it fail without the program pgbouncer (Debian package pgbouncer).

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running pgbouncer; it ends when this is dropped.
pub(crate) struct Pgbouncer {
    process: Child,
    pub(crate) port: u16,
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

impl Pgbouncer {
    /// Starts one for the database `postgres` of a server on this machine, to which it connects as the user
    /// `postgres`. Its settings are written into `folder`. Tries again where another test was given the same free port
    /// a moment before.
    pub(crate) fn start(folder: &Path, server_port: &str, connections: u32) -> Pgbouncer {
        for _ in 0..5 {
            let mut pooler = Pgbouncer::try_start(folder, server_port, connections);
            std::thread::sleep(Duration::from_millis(200));
            if matches!(pooler.process.try_wait(), Ok(None)) {
                return pooler;
            }
        }
        panic!("pgbouncer ends as soon as it is started");
    }

    fn try_start(folder: &Path, server_port: &str, connections: u32) -> Pgbouncer {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = port.local_addr().unwrap().port();
        let file = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={server_port} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {connections}\nserver_reset_query_always = 1\n\
             server_reset_query = DISCARD ALL\n"
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new("pgbouncer");
        command.arg("-q").arg(&file);
        // It refuses to run as root, as the server does.
        if is_root() {
            command.args(["-u", "nobody"]);
        }
        let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.expect("pgbouncer is there (Debian: apt-get install pgbouncer)");
        let until = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "pgbouncer does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Pgbouncer { process, port }
    }
}
