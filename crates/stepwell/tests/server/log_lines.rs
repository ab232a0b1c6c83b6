//! Log lines as JSON: one object on each line, with the request that a line belongs to, and without secrets.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use serde_json::Value as Json;

use crate::harness::PATIENCE;

const SECRET: &str = "hunter2-and-more";

/// Serves with these arguments and variables; says what the log lines are, after requests to paths.
fn lines(args: &[&str], variables: &[(&str, &str)], config: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stepwell.toml"), config).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(args)
        .current_dir(folder.path())
        .env_remove("STEPWELL_STORE")
        .env_remove("STEPWELL_CONFIG")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let err = BufReader::new(child.stderr.take().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in err.lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    let mut all = Vec::new();
    let url = loop {
        let line = told.recv_timeout(PATIENCE).expect("the server starts");
        all.push(line.clone());
        if let Some(at) = line.find("serving on ") {
            let rest = &line[at + "serving on ".len()..];
            break rest.split('"').next().unwrap().trim().to_owned();
        }
    };
    // The file is taken away: the next request fails, and the log says which one.
    let client = reqwest::blocking::Client::new();
    std::fs::remove_dir_all(folder.path().join(".stepwell")).unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let answer = client
            .get(format!("{url}/api/v1/runs?text={SECRET}"))
            .header("x-request-id", "req-7")
            .header("stepwell-tenant", "acme")
            .header("authorization", format!("Bearer {SECRET}"))
            .send()
            .unwrap();
        if answer.status().is_server_error() {
            break;
        }
        assert!(std::time::Instant::now() < until, "{}", answer.status());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    while !all.iter().any(|it| it.contains("req-7")) {
        all.push(told.recv_timeout(PATIENCE).expect("the failure is logged"));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    all
}

fn are_objects(lines: &[String]) {
    let mut found = false;
    for line in lines {
        let object: Json = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        for name in ["time", "level", "target", "message"] {
            assert!(object[name].is_string(), "{name} is missing: {line}");
        }
        if object["request"] == "req-7" {
            found = true;
            assert_eq!(object["tenant"], "acme", "{line}");
            assert_eq!(object["level"], "WARN", "{line}");
        }
        assert!(!line.contains(SECRET), "{line}");
    }
    assert!(found, "{lines:#?}");
}

#[test]
fn lines_are_json_by_option_variable_or_configuration() {
    are_objects(&lines(&["--log-format", "json"], &[], ""));
    are_objects(&lines(&[], &[("STEPWELL_LOG_FORMAT", "json")], ""));
    are_objects(&lines(&[], &[], "[log]\nformat = \"json\"\n"));
}

#[test]
fn text_is_the_default_and_an_option_comes_first() {
    let config = "[log]\nformat = \"json\"\n";
    for (args, variables) in [
        (vec![], vec![("STEPWELL_LOG_FORMAT", "text")]),
        (
            vec!["--log-format", "text"],
            vec![("STEPWELL_LOG_FORMAT", "json")],
        ),
    ] {
        let lines = lines(&args, &variables, config);
        assert!(
            lines.iter().any(|it| it.starts_with("serving on ")),
            "{lines:#?}"
        );
        assert!(
            lines
                .iter()
                .any(|it| it.contains("request=req-7") || it.contains("\"req-7\"")),
            "{lines:#?}"
        );
    }
}
