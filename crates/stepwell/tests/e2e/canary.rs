//! Canaries: secrets that are pushed through every place where a value can go, and then looked for in
//! everything that the program has written: standard output and error, log lines at the finest level,
//! the bytes of the store and its write-ahead log, logs and artifacts of steps, webhooks, and what the
//! commands show. None may be found, in no form and no half of one.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::cluster::Cluster;
use crate::listener::{Listener, OK};
use crate::test_site::{RUN, TestSite};

/// A text with everything that programs escape.
const PLAIN: &str = r#"Cq7/w+9Z "it's" $HOME&<b>\n e"#;
/// Longer than a line of base64, and than the tail of a message.
const LONG: &str =
    "Lk3jH5gF8dS2aP0oI9uY7tR6eW4qZ1xC3vB5nM7lK9jH8gF6dS4aQ2wE1rT3yU5iO7pA9sD0fG2hJ4kL6zX8cV";
/// What is inside of secrets that are more than a text.
const DSN_PASSWORD: &str = "Dp4ss@w0rd/inDsn";
const JSON_PASSWORD: &str = "Jx8vQ2-inside-json";
const JSON_TOKEN: &str = "Nt5kW9-deep-token";
const KEY_LINE: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";
/// Used by the child only.
const CHILD: &str = "Ch1ldOnly-8hT3vN6q";
/// Used by a step that comes later than the one that prints it.
const LATE: &str = "L8teOnly-5rG7mW2x";

const CANARIES: [&str; 8] = [
    PLAIN,
    LONG,
    DSN_PASSWORD,
    JSON_PASSWORD,
    JSON_TOKEN,
    KEY_LINE,
    CHILD,
    LATE,
];

/// Prints a text in each form, on one line and across the cuts of long lines.
const FORMS: &str = r#"
import base64, json, os, shlex, sys, urllib.parse, xml.sax.saxutils
def forms(text):
    data = text.encode()
    yield text
    yield json.dumps(text)
    yield json.dumps(json.dumps({"a": text}))
    yield json.dumps(text).replace("/", "\\/")
    yield repr(text)
    yield shlex.quote(text)
    yield xml.sax.saxutils.escape(text)
    yield urllib.parse.quote(text, safe="")
    yield urllib.parse.quote(text)
    yield urllib.parse.quote_plus(text)
    yield data.hex()
    yield data.hex().upper()
    for before in ("", "a", "ab"):
        yield base64.b64encode(before.encode() + data + b"zz").decode()
        yield base64.urlsafe_b64encode(before.encode() + data + b"zz").decode()
    yield base64.encodebytes(data).decode()
def cuts(text, size):
    for back in range(0, len(text) + 1, 7):
        yield "x" * (size - back) + text + "y" * 40
"#;

const PARENT: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: canaries}
keychain:
  - {name: json, credential: c-json}
  - {name: bearer, credential: c-plain, kind: bearer}
executor: {spec: {final_step: end}}
workflow:
  # Prints what other and later steps use; no step has resolved anything yet.
  - step: config
    tool: {kind: shell, cmds: ['cat "CONFIG"', 'cat "CONFIG" >&2']}
    next: shell
  - step: shell
    tool:
      kind: shell
      env: {PLAIN: "secret://c-plain", LONG: "${secret:c-long}", JSON: "{{ keychain.json.password }}"}
      cmds:
        - |
          set -x
          echo "$PLAIN" "$LONG" "$JSON"; printf '%q\n' "$PLAIN"; env
          printf %s "$LONG" | base64
          echo "$PLAIN" | tr 'a' 'a' >&2
          head -c 600000 /dev/zero | tr '\0' z; printf %s "$LONG"; head -c 600000 /dev/zero | tr '\0' z
    set_ctx: {said: "{{ shell.stdout }}"}
    next: line
  - step: line
    tool:
      - first:
          kind: shell
          cmds:
            - "tr '\\0' ' ' < /proc/$$/cmdline > ps.txt; : '${secret:c-long}' '{{ keychain.json.nested.token }}'; echo '${secret:c-long}'; env | grep COMMAND; true"
      - broken:
          kind: shell
          cmds: ["echo '${secret:c-long}' >&2; exit 3"]
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {why: "{{ outcome.error.message }}"}}}}]}}
      - syntax:
          kind: shell
          cmds: ["if '${secret:c-long}'"]
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
    next: python
  - step: python
    tool:
      - give:
          kind: python
          args: {plain: "secret://c-plain", long: "secret://c-long", whole: "secret://c-json", dsn: "secret://c-dsn"}
          code: |
            FORMS_HERE
            import sys
            secrets = [plain, long, whole["password"], whole["nested"]["token"], dsn, *open("CONFIG").read().split("\n")[2:3]]
            for text in secrets:
                for form in forms(text):
                    print(form)
                    print("<", form, ">", file=sys.stderr)
            for line in [*cuts(long, 16384), *cuts(long, 32768), *cuts(long, 65536)]:
                print(line)
            result = {
                "all": [list(forms(text)) for text in secrets],
                "names": {text: 1 for text in secrets},
                "large": [f"{n} {text}" for text in secrets for n in range(4000)],
            }
          set_ctx: {from_python: "{{ outcome.result.names }}", key: "{{ keychain.json.password }}"}
      - raise:
          kind: python
          args: {long: "secret://c-long"}
          code: |
            raise ValueError("x" * 4060 + long + "y" * (16384 - 4060 - 2 * len(long) + 9) + long + "z" * 20000 + long)
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {trace: "{{ outcome.py.traceback }}", told: "{{ outcome.error.message }}"}}}}]}}
      - exit:
          kind: python
          args: {long: "secret://c-long"}
          code: import sys; sys.exit(long)
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
    next: web
  - step: web
    tool:
      - echo:
          kind: http
          method: POST
          url: "URL/x?token=${secret:c-long}"
          headers: {X-Key: "${secret:c-long}"}
          json: {deep: ["${secret:c-plain}"]}
          auth: "{{ keychain.bearer }}"
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
      - found:
          kind: http
          method: POST
          url: "URL/x?token=${secret:c-long}"
          headers: {X-Key: "${secret:c-long}"}
          json: {deep: ["${secret:c-plain}"]}
          auth: {type: bearer, token: "secret://c-long"}
      - gone:
          kind: http
          url: "http://127.0.0.1:1/${secret:c-long}"
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
    next: data
  - step: data
    tool:
      - rows:
          kind: sqlite
          database: OUTSIDE/rows.db
          command: "CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES (:secret); SELECT x FROM t"
          params: {secret: "secret://c-plain"}
      - wrong:
          kind: sqlite
          database: OUTSIDE/rows.db
          command: "SELECT '${secret:c-long}' FROM ${secret:c-long}"
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
      - write: {kind: file, action: write, root: OUTSIDE, path: out.txt, content: "${secret:c-long} ${secret:c-plain}"}
      - read: {kind: file, action: read, root: OUTSIDE, path: out.txt}
      - server:
          kind: postgres
          auth: c-dsn
          command: "SELECT '${secret:c-long}'"
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
      - rows_of_server:
          kind: postgres
          auth: c-server
          command: "SELECT :secret AS given, '${secret:c-long}' AS text, current_user"
          params: {secret: "secret://c-plain"}
      - raised:
          kind: postgres
          auth: c-server
          command: "DO $$ BEGIN RAISE NOTICE '${secret:c-long}'; RAISE EXCEPTION '% is wrong', '${secret:c-long}'; END $$"
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {raised: "{{ outcome.error.message }}"}}}}]}}
      - cache:
          kind: redis
          auth: {host: 127.0.0.1, port: 1, password: "secret://c-long"}
          command: [GET, "${secret:c-plain}"]
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
      - nothing: {kind: noop, args: {a: "secret://c-plain", b: "{{ keychain.json.nested }}"}}
    next: each
  - step: each
    loop: {in: "{{ [1, 2, 3] }}", iterator: n, spec: {mode: parallel}}
    tool:
      kind: python
      args: {n: "{{ iter.n }}", long: "secret://c-long"}
      code: |
        print(n, long)
        if n == 2:
            raise RuntimeError(long)
        result = {"n": n, long: long}
      spec: {policy: {rules: [{else: {then: {do: continue, set_iter: {x: "{{ outcome.result }}"}}}}]}}
    next: call
  - step: call
    tool: {kind: playbook, path: child.yaml, args: {n: 1}}
    next: {arcs: [{step: handed, args: {from_child: "{{ call }}"}}]}
  - step: handed
    tool:
      - give:
          kind: playbook
          path: child.yaml
          args: {token: "{{ keychain.json.password }}"}
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
      - name:
          kind: playbook
          path: "{{ keychain.json.password }}.yaml"
          spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
    next: wait
  - step: wait
    tool:
      - before: {kind: python, args: {long: "secret://c-long"}, code: "result = {'x': long}"}
      - sleep: {kind: sleep, duration: 1.1}
      - after: {kind: python, args: {x: "{{ before.x }}"}, code: "print(x); result = x"}
    next: late
  - step: late
    tool: {kind: shell, env: {LATE: "secret://c-late", KEY: "secret://c-key"}, cmds: ['echo "$LATE $KEY"; cat "CONFIG" "OF_CHILD"']}
    next: fail
  - step: fail
    tool:
      kind: python
      args: {long: "secret://c-long"}
      code: |
        raise RuntimeError("y" * 4080 + long)
  - step: end
    tool: {kind: shell, cmds: ['cat "CONFIG" "OF_CHILD"']}
"#;

const CHILD_FILE: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child}
workflow:
  - step: child
    tool: {kind: shell, env: {X: "secret://c-child"}, cmds: ['echo "$X"; cat "CONFIG" "OF_CHILD"']}
"#;

/// Answers each request with all that it was sent.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            let _ = reader.read_exact(&mut body);
            let said = format!("{head}\n{}", String::from_utf8_lossy(&body));
            let key = head
                .lines()
                .find(|it| it.to_lowercase().starts_with("x-key"));
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Echo: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}",
                key.unwrap_or_default(),
                said.len()
            );
        }
    });
    port
}

/// A site with the canaries in its providers, and a folder outside of it that nobody searches. Steps can use a server,
/// which may have the store too.
fn site(name: &str, site: TestSite, server: &str) -> (TestSite, PathBuf) {
    let outside = site.folder.with_file_name(format!("{name}-outside"));
    let _ = std::fs::remove_dir_all(&outside);
    std::fs::create_dir_all(&outside).unwrap();
    let of_parent: Vec<&str> = CANARIES.into_iter().filter(|it| *it != CHILD).collect();
    std::fs::write(outside.join("config"), of_parent.join("\n")).unwrap();
    std::fs::write(outside.join("of-child"), CHILD).unwrap();
    let key = format!("-----BEGIN KEY-----\n{KEY_LINE}\n{KEY_LINE}2\n-----END KEY-----\n");
    let json = format!(
        r#"{{"user":"ada","password":"{JSON_PASSWORD}","nested":{{"token":"{JSON_TOKEN}"}}}}"#
    );
    let dsn = "postgres://loader:Dp4ss%40w0rd%2FinDsn@127.0.0.1:1/db?sslmode=disable";
    let server = server.replace("postgres@", "postgres:Dp4ss%40w0rd%2FinDsn@");
    let site = site
        .with("STEPWELL_SECRET_C_SERVER", &server)
        .with("STEPWELL_SECRET_C_PLAIN", PLAIN)
        .with("STEPWELL_SECRET_C_LONG", LONG)
        .with("STEPWELL_SECRET_C_DSN", dsn)
        .with("STEPWELL_SECRET_C_JSON", &json)
        .with("STEPWELL_SECRET_C_KEY", &key)
        .with("STEPWELL_SECRET_C_CHILD", CHILD)
        .with("STEPWELL_SECRET_C_LATE", LATE)
        .with("STEPWELL_LOG", "trace");
    (site, outside)
}

fn written(text: &str, outside: &Path) -> String {
    let forms = FORMS.trim().replace('\n', "\n            ");
    text.replace("FORMS_HERE", &forms)
        .replace("CONFIG", &outside.join("config").display().to_string())
        .replace("OF_CHILD", &outside.join("of-child").display().to_string())
        .replace("OUTSIDE", &outside.display().to_string())
}

/// What gives a canary away: any eight bytes in a row of it, of its base64 at each alignment, of its
/// hexadecimal form, and of its form in an address.
fn pieces(canary: &str) -> Vec<[u8; 8]> {
    const TABLE: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let base64 = |bytes: &[u8]| -> Vec<u8> {
        let mut text = Vec::new();
        for three in bytes.chunks_exact(3) {
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for shift in [18, 12, 6, 0] {
                text.push(TABLE[(bits >> shift & 63) as usize]);
            }
        }
        text
    };
    let mut all = vec![canary.as_bytes().to_vec()];
    for skip in 0..3 {
        let text = base64(&canary.as_bytes()[skip..]);
        let web = text.iter().map(|it| match it {
            b'+' => b'-',
            b'/' => b'_',
            it => *it,
        });
        all.push(web.collect());
        all.push(text);
    }
    let hex: String = canary.bytes().map(|it| format!("{it:02x}")).collect();
    let url: String = canary
        .bytes()
        .map(
            |it| match it.is_ascii_alphanumeric() || b"-_.~".contains(&it) {
                true => char::from(it).to_string(),
                false => format!("%{it:02X}"),
            },
        )
        .collect();
    all.extend([hex.into_bytes(), url.into_bytes()]);
    let pieces = all.iter().flat_map(|it| it.windows(8));
    let pieces = pieces.map(|it| <[u8; 8]>::try_from(it).unwrap());
    // These words are in the names of the canaries' fields too, and give nothing away.
    let is_word = |it: &[u8; 8]| "-inside-json -deep-token".contains(&*String::from_utf8_lossy(it));
    pieces.filter(|it| !is_word(it)).collect()
}

/// Which canary eight bytes give away.
struct Traces {
    all: HashMap<[u8; 8], &'static str>,
    /// Whether any of them begins with these two bytes; almost nothing does.
    begins: Vec<bool>,
}

impl Traces {
    fn new() -> Traces {
        let mut traces = Traces {
            all: HashMap::new(),
            begins: vec![false; 1 << 16],
        };
        for canary in CANARIES {
            for piece in pieces(canary) {
                traces.begins[usize::from(u16::from_be_bytes([piece[0], piece[1]]))] = true;
                traces.all.insert(piece, canary);
            }
        }
        traces
    }

    fn in_piece(&self, piece: &[u8]) -> Option<&'static str> {
        let begins = self.begins[usize::from(u16::from_be_bytes([piece[0], piece[1]]))];
        let found = begins.then(|| self.all.get(piece));
        found.flatten().copied()
    }
}

#[derive(Default)]
struct Searched {
    texts: usize,
    bytes: usize,
    found: Vec<String>,
}

impl Searched {
    fn look(&mut self, traces: &Traces, name: &str, bytes: &[u8]) {
        self.texts += 1;
        self.bytes += bytes.len();
        let mut at = 0;
        while at + 8 <= bytes.len() && self.found.len() < 10 {
            if let Some(canary) = traces.in_piece(&bytes[at..at + 8]) {
                let around = &bytes[at.saturating_sub(60)..(at + 60).min(bytes.len())];
                let around = String::from_utf8_lossy(around);
                self.found
                    .push(format!("{canary} in {name} at {at}: {around:?}"));
                at += 60;
            }
            at += 1;
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Looks for canaries in these texts, in every file of the site, and in what the commands show.
fn search(site: &TestSite, said: Vec<(String, String)>) -> Searched {
    let traces = Traces::new();
    let mut searched = Searched::default();
    for (name, text) in &said {
        searched.look(&traces, name, text.as_bytes());
    }
    for path in files(&site.folder) {
        // A pipe of the witness would be waited for.
        if path.is_file() {
            let name = path.display().to_string();
            searched.look(&traces, &name, &std::fs::read(&path).unwrap());
        }
    }
    for args in [
        &["runs", "list"][..],
        &["runs", "show", RUN],
        &["runs", "show", RUN, "-o", "json"],
        &["runs", "events", RUN],
        &["runs", "events", RUN, "--ext"],
        &["runs", "logs", RUN],
        &["artifacts", "list", RUN],
        &["outbox", "list"],
        &["alerts", "list"],
        &["dlq", "list"],
        &["db", "check"],
    ] {
        let call = site.call(args);
        searched.look(&traces, &args.join(" "), call.out.as_bytes());
        searched.look(&traces, &args.join(" "), call.err.as_bytes());
    }
    searched
}

#[test]
fn no_canary_is_found_wherever_a_value_can_go() {
    let server = Cluster::start(&[]).unwrap();
    let name = "canaries";
    let (site, outside) = site(name, TestSite::new(name), &server.url());
    push_through(&site, &outside, String::new);
}

#[test]
fn no_canary_is_found_in_a_store_on_postgres() {
    let server = Cluster::start(&[]).unwrap();
    let name = "canaries-on-postgres";
    let with_store = TestSite::new(name).with("STEPWELL_STORE", &server.url());
    let (site, outside) = site(name, with_store, &server.url());
    push_through(&site, &outside, || {
        let dump = server.program("pg_dump").arg(server.url()).output();
        let dump = dump.unwrap();
        assert!(dump.status.success(), "{dump:?}");
        let text = String::from_utf8(dump.stdout).unwrap();
        // Stars as they are, and in the hexadecimal form of bytes.
        let stars = text.contains("***") || text.contains("2a2a2a");
        assert!(text.contains(RUN) && stars, "the dump has the store");
        text
    });
}

/// Pushes the canaries through everything, and looks for them; `more` is what the store has beside the files.
fn push_through(site: &TestSite, outside: &Path, more: impl Fn() -> String) {
    let file = site.file("parent.yaml", "");
    let port = echo();
    let parent = written(PARENT, outside).replace("URL", &format!("http://127.0.0.1:{port}"));
    site.file("parent.yaml", &parent);
    site.file("child.yaml", &written(CHILD_FILE, outside));
    let listener = Listener::start(0, OK);
    let sink = format!("hook=webhook:{}", listener.url());
    let call = site.run(&file, &["--sink", &sink]);
    // It fails where it shall, and so all steps before have run.
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    let log = site.log();
    let done = log.completed();
    for step in [
        "config", "shell", "line", "python", "web", "data", "each", "call", "handed", "wait",
        "late",
    ] {
        assert!(
            done.contains(&step),
            "{step}: {done:?}\n{}{}",
            call.out,
            call.err
        );
    }
    assert_eq!(log.count("StepFailed", "fail"), 1);
    let ps = site.read("ps.txt");
    assert!(ps.contains("eval") && !ps.contains(LONG), "{ps}");
    let kept = std::fs::read_to_string(outside.join("out.txt")).unwrap();
    assert_eq!(kept, format!("{LONG} {PLAIN}"), "the tools had the secrets");
    let sent: Vec<String> = listener.heard().into_iter().map(|it| it.body).collect();
    assert!(sent.iter().any(|it| it.contains("StepFailed")), "{sent:?}");
    let said = vec![
        ("standard output".to_owned(), call.out),
        ("standard error".to_owned(), call.err),
        ("the webhook".to_owned(), sent.concat()),
        ("the dump of the store".to_owned(), more()),
    ];
    let logs = site.good(&["runs", "logs", RUN]);
    assert!(logs.matches("***").count() > 100, "{logs}");
    let searched = search(site, said);
    assert!(searched.found.is_empty(), "{:#?}", searched.found);
    assert!(
        searched.texts > 30 && searched.bytes > 500_000,
        "{} texts, {} bytes",
        searched.texts,
        searched.bytes
    );
}

#[test]
fn a_process_that_takes_a_run_over_knows_its_secrets_before_the_first_step() {
    let name = "canaries-again";
    let (site, outside) = site(name, TestSite::new(name), "none");
    let text = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: again}
workflow:
  - step: use
    tool: {kind: shell, env: {A: "secret://c-late", B: "secret://c-json"}, cmds: ['echo "$A $B"']}
    next: pause
  - step: pause
    tool: {kind: shell, cmds: ['cat "CONFIG"']}
    next: print
  - step: print
    tool: {kind: python, code: "print(open('CONFIG').read()); result = open('CONFIG').read()"}
    next: later
  - step: later
    tool: {kind: noop, args: {a: "secret://c-plain", b: "secret://c-long", c: "secret://c-key", d: "secret://c-dsn"}}
"#;
    let file = site.file("again.yaml", &written(text, &outside));
    site.hold("pause");
    let process = site.start(&file, &[]);
    site.begun("pause", 1);
    process.kill();
    site.hold_no_more("pause");
    let call = site.call(&["run", &file, "--resume"]);
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    let log = site.log();
    assert_eq!(log.executions("use"), 1, "it did not run again");
    assert!(
        log.of("StepCompleted", "print")[0]
            .to_string()
            .contains("***")
    );
    let said = vec![("output".to_owned(), call.out + &call.err)];
    let searched = search(&site, said);
    assert!(searched.found.is_empty(), "{:#?}", searched.found);
}
