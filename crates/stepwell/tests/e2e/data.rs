//! What steps return and what they must not tell: artifacts and secrets, across restarts.

use std::path::{Path, PathBuf};

use crate::listener::{Listener, OK};
use crate::test_site::{RUN, TestSite};

const LARGE: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: large
workflow:
  - step: make
    tool:
      kind: python
      code: |
        rows = ["row %06d" % n for n in range(75_000)]
        result = {"rows": rows, "count": len(rows), "note": "x" * 100_000}
    next: pause
  - step: pause
    tool: {kind: shell, cmds: [echo pause]}
    next: use
  - step: use
    tool:
      kind: python
      args: {rows: "{{ make.rows }}", count: "{{ make.count }}"}
      code: |
        result = {"rows": len(rows), "last": rows[-1], "count": count}
"#;

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    found
}

// also proves: P11
#[test]
fn c29_a_large_result_is_beside_the_log_and_read_from_there_after_a_restart() {
    let site = TestSite::new("large");
    let file = site.file("large.yaml", LARGE);
    site.hold("pause");
    let process = site.start(&file, &[]);
    site.begun("pause", 1);
    process.kill();

    let log = site.log();
    let made = log.of("StepCompleted", "make")[0];
    let text = made.to_string();
    assert!(text.len() < 8 * 1024, "{} bytes in the log", text.len());
    assert!(!text.contains("row 050000"), "{text}");
    assert!(text.contains("artifact:runs/run_a/make/1/"), "{text}");
    let kept = files(&site.folder.join(".stepwell/artifacts"));
    let bytes: u64 = kept.iter().map(|it| it.metadata().unwrap().len()).sum();
    assert!(bytes > 1_000_000, "{bytes} bytes in {kept:?}");

    site.hold_no_more("pause");
    site.good(&["run", &file, "--resume"]);
    let log = site.log();
    let used = log.of("StepCompleted", "use")[0].to_string();
    for part in ["\"rows\":75000", "row 074999", "\"count\":75000"] {
        assert!(used.contains(part), "{part}: {used}");
    }
    assert_eq!(log.executions("make"), 1);
}

const LEAKY: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: leaky
keychain:
  - name: api-key
workflow:
  - step: print
    tool:
      kind: shell
      env: {TOKEN: "secret://api-key"}
      cmds:
        - |
          echo "plain $TOKEN"
          echo "in base64 $(printf %s "$TOKEN" | base64)"
          echo "on the other output $TOKEN" >&2
    set_ctx: {said: "{{ print.stdout }}"}
    next: give
  - step: give
    tool:
      kind: python
      args: {token: "${secret:api-key}"}
      code: |
        import base64, urllib.parse
        print("python says", token)
        result = {
            "token": token,
            "base64": base64.b64encode(token.encode()).decode(),
            "url": "https://example.com/?key=" + urllib.parse.quote(token, safe=""),
            token: "as a name",
            "large": [token] * 20_000,
        }
    next: fail
  - step: fail
    tool:
      kind: shell
      env: {TOKEN: "secret://api-key"}
      cmds: ['echo "wrong: $TOKEN" >&2; exit 7']
"#;

#[test]
fn c28_a_secret_is_nowhere_but_in_the_step_that_needs_it() {
    const SECRET: &str = "Tr0ub4dor/&3 + a horse";
    let site = TestSite::new("leaky")
        .with("STEPWELL_SECRET_API_KEY", SECRET)
        .with("STEPWELL_LOG", "trace");
    let file = site.file("leaky.yaml", LEAKY);
    let listener = Listener::start(0, OK);
    let sink = format!("hook=webhook:{}", listener.url());
    let call = site.run(&file, &["--sink", &sink]);
    assert_eq!(call.code, 3, "{}{}", call.out, call.err);
    assert!(call.out.contains("wrong: ***"), "{}", call.out);
    let sent: Vec<String> = listener.heard().into_iter().map(|it| it.body).collect();
    assert!(sent.iter().any(|it| it.contains("StepFailed")), "{sent:?}");
    let mut said = vec![call.out, call.err, sent.concat()];
    for args in [
        &["runs", "show", RUN, "-o", "json"][..],
        &["runs", "events", RUN, "--ext"],
        &["runs", "logs", RUN],
        &["outbox", "list"],
        &["alerts", "list"],
    ] {
        let call = site.call(args);
        said.extend([call.out, call.err]);
    }
    let forms = [
        SECRET.to_owned(),
        "VHIwdWI0ZG9yLyYzICsgYSBob3JzZ".to_owned(),
        "Tr0ub4dor%2F%263".to_owned(),
    ];
    for form in &forms {
        for text in &said {
            assert!(!text.contains(form.as_str()), "{form}: {text}");
        }
        for path in files(&site.folder) {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(form.len()).any(|it| it == form.as_bytes());
            assert!(!found, "{form} is in {}", path.display());
        }
    }
    // The step itself had it.
    let logs = site.good(&["runs", "logs", RUN]);
    assert!(logs.contains("plain ***"), "{logs}");
    assert!(logs.contains("python says ***"), "{logs}");
}
