//! Each page of a tool has a playbook, and the real binary runs it: against a real server, and without the server.
//! What the comments at the beginning of a playbook mean is in `docs/tools/README.md`.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stepwell_dialects::tools::RunBy;
use stepwell_dialects::tools::table::KINDS;

use crate::{Call, root, stepwell_in};

/// The playbook of a page, with what its comments say.
#[derive(Clone)]
struct Playbook {
    tool: &'static str,
    text: String,
}

impl Playbook {
    fn read(tool: &'static str) -> Playbook {
        let path = format!("docs/tools/{tool}.md");
        let page = std::fs::read_to_string(root().join(&path)).unwrap();
        let blocks = page.split("```yaml\n").skip(1);
        let mut texts = blocks.filter_map(|it| it.split("```").next());
        let text = texts.find(|it| it.contains("# Run: "));
        let text = text.unwrap_or_else(|| panic!("{path} needs a playbook with `# Run: …`"));
        let text = text.to_owned();
        Playbook { tool, text }
    }

    /// What a comment says.
    fn comment(&self, name: &str) -> Option<&str> {
        let head = format!("# {name}: ");
        self.text.lines().find_map(|line| line.strip_prefix(&head))
    }

    fn words(&self, name: &str) -> Option<Vec<&str>> {
        let words = self.comment(name)?.split_whitespace();
        Some(
            words
                .map(|word| if word == "''" { "" } else { word })
                .collect(),
        )
    }

    /// Whether this machine can run it. The message says why not.
    fn is_possible(&self) -> bool {
        let Some(program) = self.comment("Needs") else {
            return true;
        };
        let named = std::env::var_os(format!("STEPWELL_{}", program.to_uppercase()));
        let program = named.unwrap_or_else(|| program.into());
        let found = Command::new(&program).arg("--version").output();
        if found.is_err() {
            let program = program.to_string_lossy();
            eprintln!("SKIPPED: the page of {} needs {program}", self.tool);
        }
        found.is_ok()
    }

    /// Runs it as its comment says, in this folder.
    fn run(&self, folder: &Path) -> Call {
        let words = self.words("Run").unwrap();
        let ["stepwell", "run", file, ..] = words[..] else {
            panic!("{}: `# Run: stepwell run FILE …`", self.tool);
        };
        std::fs::write(folder.join(file), &self.text).unwrap();
        let check = stepwell_in(folder, &["check", "--deny-warnings", file]);
        assert_eq!(check.code, 0, "{}: {check:?}", self.tool);
        stepwell_in(folder, &words[1..])
    }
}

/// A server that ends with its test.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it and waits until it answers on the port.
    pub(crate) fn start(words: &[&str], port: u16, folder: &Path) -> Server {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(folder);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| {
            panic!(
                "{} cannot be started ({error}); `cargo xtask test` installs it",
                words[0]
            )
        });
        let server = Server(child);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{words:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs the playbook of a page twice: it must not depend on what a run before it has left.
fn check(tool: &'static str) {
    let mut playbook = Playbook::read(tool);
    if !playbook.is_possible() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-of-{tool}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    if let Some(url) = playbook.comment("PostgreSQL") {
        let real = std::env::var("STEPWELL_TEST_POSTGRES").unwrap_or_else(|_| {
            panic!(
                "STEPWELL_TEST_POSTGRES is not set: run `cargo xtask test`, or `cargo xtask postgres -- \
                 cargo test -p stepwell`"
            )
        });
        playbook.text = playbook.text.replace(&url.to_owned(), &real);
    }
    let mut server = None;
    if let Some(words) = playbook.words("Server") {
        let port = free_port();
        let documented = (*words.last().unwrap()).to_owned();
        playbook.text = playbook.text.replace(&documented, &port.to_string());
        let words = playbook.words("Server").unwrap();
        server = Some(Server::start(&words, port, &folder));
    }
    for _ in 0..2 {
        let call = playbook.run(&folder);
        assert_eq!(call.code, 0, "{tool}: {call:?}");
    }
    if server.take().is_some() {
        let code = playbook.comment("Without the server").unwrap();
        let call = playbook.run(&folder);
        assert_ne!(call.code, 0, "{tool}: the server is gone");
        assert!(
            call.out.contains(code) || call.err.contains(code),
            "{call:?}"
        );
        let explained = stepwell_in(&folder, &["explain", code]);
        assert!(
            explained.out.starts_with(&format!("# {code}\n")),
            "{explained:?}"
        );
        assert!(explained.out.contains("\n## What to do\n"), "{explained:?}");
    }
}

#[test]
fn the_playbook_of_every_page_runs() {
    let tools = KINDS.iter().filter(|kind| kind.run_by == RunBy::Tool);
    // Side by side: some wait for their servers.
    std::thread::scope(|scope| {
        let checks: Vec<_> = tools.map(|kind| scope.spawn(|| check(kind.name))).collect();
        for check in checks {
            if let Err(panic) = check.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}
