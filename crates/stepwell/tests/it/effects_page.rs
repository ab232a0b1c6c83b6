//! The examples of `docs/effects.md`, run by the real binary against real receivers: each works, and each refuses an
//! execution that was replaced. The example of a handler is a test of the library's documentation.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pgbouncer::Pgbouncer;
use super::tool_pages::{Server, free_port};
use super::{Call, root, stepwell_in};

/// A fence that no execution of these tests has: the year 2255.
const HIGHEST: &str = "9000000000000000";

/// A folder with the files of the page.
struct Page(PathBuf);

impl Page {
    fn new(name: &str) -> Page {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("effects-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let text = std::fs::read_to_string(root().join("docs/effects.md")).unwrap();
        for block in text
            .split("\n```")
            .filter_map(|it| it.split_once("\n# File: ").map(|it| it.1))
        {
            let (name, rest) = block.split_once('\n').unwrap();
            std::fs::write(folder.join(name), rest).unwrap();
        }
        Page(folder)
    }

    /// Writes another address into a file.
    fn replace(&self, file: &str, documented: &str, real: &str) {
        let path = self.0.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(documented), "{file} has no {documented}");
        std::fs::write(path, text.replace(documented, real)).unwrap();
    }

    fn run(&self, file: &str) -> Call {
        let check = stepwell_in(&self.0, &["check", "--deny-warnings", file]);
        assert_eq!(check.code, 0, "{file}: {check:?}");
        stepwell_in(&self.0, &["run", file])
    }

    fn runs(&self, file: &str) {
        let call = self.run(file);
        assert_eq!(call.code, 0, "{file}: {call:?}");
    }

    fn is_refused(&self, file: &str, code: &str) {
        let call = self.run(file);
        assert_eq!(call.code, 3, "{file}: {call:?}");
        assert!(call.out.contains(code), "{file}: {call:?}");
    }
}

#[test]
fn the_program_ships_once_and_refuses_a_lower_fence() {
    let page = Page::new("program");
    page.runs("ship.yaml");
    let shipments = std::fs::read_to_string(page.0.join("shipments.json")).unwrap();
    let shipments: serde_json::Value = serde_json::from_str(&shipments).unwrap();
    let (fence, key) = (&shipments["7"]["fence"], &shipments["7"]["key"]);
    let ship = |fence: &str| {
        let mut command = Command::new("python3");
        command.args(["ship.py", "7"]).current_dir(&page.0);
        let command = command.env("STEPWELL_FENCE", fence);
        command.env("STEPWELL_IDEMPOTENCY_KEY", key.as_str().unwrap());
        let output = command.output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), said)
    };
    // A later execution under the same key ships nothing; the zombie is refused.
    assert_eq!(ship(HIGHEST), (true, String::new()));
    let (success, said) = ship(&fence.to_string());
    assert!(!success && said.contains("is lower than"), "{said}");
}

#[test]
fn the_receiver_charges_once_and_refuses_a_lower_fence() {
    let page = Page::new("http");
    let port = free_port();
    page.replace("charge.yaml", "8000", &port.to_string());
    let words = ["python3", "receiver.py", &port.to_string()];
    let _server = Server::start(&words, port, &page.0);
    page.runs("charge.yaml");
    let post = |fence: &str, key: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let head = format!("Stepwell-Fence: {fence}\r\nIdempotency-Key: {key}");
        let request = format!("POST /orders/7 HTTP/1.0\r\n{head}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let lower = post("5", "other");
    assert!(
        lower.contains(" 409 ") && lower.contains("\"times\": 1"),
        "{lower}"
    );
    let other = post(HIGHEST, "other");
    assert!(
        other.contains(" 200 ") && other.contains("\"times\": 2"),
        "{other}"
    );
    let again = post(HIGHEST, "other");
    assert!(
        again.contains(" 200 ") && again.contains("\"times\": 2"),
        "{again}"
    );
    // Now the run is the one that comes late.
    page.is_refused("charge.yaml", "HTTP_409");
}

#[test]
fn the_row_in_postgres_refuses_a_lower_fence_also_behind_a_pooler() {
    let page = Page::new("postgres");
    let url = std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, or `cargo xtask postgres -- \
             cargo test -p stepwell`"
        )
    });
    let port = url.rsplit(':').next().unwrap().split('/').next().unwrap();
    let pooler = Pgbouncer::start(&page.0, port, 3);
    let pooled = format!(
        "postgresql://postgres@127.0.0.1:{}/postgres?sslmode=disable",
        pooler.port
    );
    let documented = "postgresql://shop@localhost/shop";
    let sql = |query: &str| {
        let text = format!(
            "metadata: {{planId: sql, planVersion: '1', schemaVersion: v1.2}}\nsteps:\n  - stepId: sql\n    tool: {{kind: \
             postgres, auth: {{dsn: '{url}'}}, query: '{query}'}}\n"
        );
        std::fs::write(page.0.join("sql.yaml"), text).unwrap();
        page.runs("sql.yaml");
    };
    sql("DROP TABLE IF EXISTS effects_orders");
    page.replace("book.yaml", documented, &url);
    page.runs("book.yaml");
    page.replace("book.yaml", &url, &pooled);
    for _ in 0..3 {
        page.runs("book.yaml");
    }
    sql(&format!("UPDATE effects_orders SET fence = {HIGHEST}"));
    page.is_refused("book.yaml", "book");
    page.replace("book.yaml", &pooled, &url);
    page.is_refused("book.yaml", "book");
    sql("DROP TABLE effects_orders");
}

#[test]
fn the_row_in_sqlite_refuses_a_lower_fence() {
    let page = Page::new("sqlite");
    page.runs("count.yaml");
    page.runs("count.yaml");
    let text = format!(
        "metadata: {{planId: sql, planVersion: '1', schemaVersion: v1.2}}\nsteps:\n  - stepId: sql\n    tool: {{kind: sqlite, \
         database: orders.db, commands: 'UPDATE orders SET fence = {HIGHEST}'}}\n"
    );
    std::fs::write(page.0.join("sql.yaml"), text).unwrap();
    page.runs("sql.yaml");
    page.is_refused("count.yaml", "count");
}

#[test]
fn the_script_in_redis_refuses_a_lower_fence() {
    let page = Page::new("redis");
    let port = free_port();
    page.replace("redis.yaml", "6379", &port.to_string());
    let words = ["redis-server", "--save", "", "--port", &port.to_string()];
    let _server = Server::start(&words, port, &page.0);
    page.runs("redis.yaml");
    page.runs("redis.yaml");
    page.replace("redis.yaml", "{{ execution.fence }}", "5");
    page.is_refused("redis.yaml", "REDIS_STALE");
}
