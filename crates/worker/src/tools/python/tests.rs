//! `python`: what code sees, what becomes its result, and what its failures are called.
//!
//! Needs the program python3 (Debian package python3).

mod hostile;

use std::path::PathBuf;

use crate::outcome::TaskOutcome;
use crate::step_log::Stream;
use crate::tool::Tool;
use crate::tools::python::{Python, PythonOptions};
use serde_json::{Value as Json, json};
use stepwell_kernel::plan::ErrorClass;
use tokio::time::Instant;

use crate::testing::programs::{call, code, cx, logged};

fn python() -> Python {
    Python::new(PythonOptions::default())
}

async fn run(code: &str, args: Json) -> TaskOutcome {
    python()
        .run(&call(json!({ "code": code }), args), &cx())
        .await
}

async fn value(code: &str, args: Json) -> Json {
    let outcome = run(code, args).await;
    assert_eq!(outcome.error, None, "{code}");
    outcome.result
}

#[tokio::test]
async fn a_result_is_what_the_code_assigns_returns_or_its_main_gives() {
    let python = python();
    let args = || json!({"a": 2, "b": 3});
    for (code, expected) in [
        ("result = a + b", json!(5)),
        ("return a * b", json!(6)),
        ("def main(a, b): return a - b", json!(-1)),
        ("def main(data): return data['a']", json!(2)),
        ("def main(input_data): return len(input_data)", json!(2)),
        ("def main(b, c=7): return [b, c]", json!([3, 7])),
        ("def main(**all): return sorted(all)", json!(["a", "b"])),
        ("def main(): return 'x'", json!("x")),
        (
            "async def main(a):\n  import asyncio\n  await asyncio.sleep(0)\n  return a",
            json!(2),
        ),
        (
            "a = a + 1\ndef twice(): return a * 2\nif a > 0:\n  return twice()\nresult = 0",
            json!(6),
        ),
        (
            "if a > 5:\n  return 1\nresult = 'fell through'",
            json!("fell through"),
        ),
        (
            "total: int = 0\nfor x in [1, 2]:\n  total += x\nreturn {'t': total, 'x': x}",
            json!({"t": 3, "x": 2}),
        ),
        ("from math import *\nreturn floor(pi)", json!(3)),
        ("def main(): return 1\nresult = 2", json!(2)),
        ("result = 1\nraise SystemExit(0)", json!(1)),
        (
            "x = [y for y in range(3)]\nresult = [context is args, x]",
            json!([true, [0, 1, 2]]),
        ),
        (
            "def main(): return 1\nif __name__ == '__main__':\n  result = 'script'",
            json!("script"),
        ),
        ("pass", json!(null)),
    ] {
        let outcome = python
            .run(&call(json!({ "code": code }), args()), &cx())
            .await;
        assert_eq!(outcome.error, None, "{code}");
        assert_eq!(outcome.result, expected, "{code}");
    }
}

#[tokio::test]
async fn an_argument_named_result_is_no_result() {
    let code = "def main(result): return result['n'] + 1";
    assert_eq!(value(code, json!({"result": {"n": 1}})).await, json!(2));
    assert_eq!(
        value(
            "result['n'] += 1\nresult = result",
            json!({"result": {"n": 1}})
        )
        .await,
        json!({"n": 2})
    );
}

#[tokio::test]
async fn values_become_plain() {
    let code = "
import datetime, decimal, uuid, pathlib, dataclasses, enum, collections
@dataclasses.dataclass
class Point:
    x: int
    y: list
class Colour(enum.Enum):
    RED = 'red'
class Array:
    def tolist(self): return [1, [2]]
class Frame:
    def to_dict(self, orient=None): return [{'o': orient}]
Pair = collections.namedtuple('Pair', 'a b')
return [
    (1, 2), {3, 1, 2}, decimal.Decimal('1.10'), datetime.datetime(2024, 1, 2, 3, 4, 5), datetime.date(2024, 1, 2),
    uuid.UUID(int=1), pathlib.Path('a/b'), b'text', b'\\xff', Point(1, [2]), Colour.RED, Array(), Frame(),
    float('nan'), float('inf'), {1: 'a', None: 'b'}, 2**70, Pair(1, 2), object, 'é\\ud800',
]";
    let (cx, log) = logged();
    let outcome = python()
        .run(&call(json!({ "code": code }), json!({})), &cx)
        .await;
    assert_eq!(outcome.error, None);
    assert_eq!(
        outcome.result,
        json!([
            [1, 2], [1, 2, 3], "1.10", "2024-01-02T03:04:05", "2024-01-02",
            "00000000-0000-0000-0000-000000000001", "a/b", "text", "/w==", {"x": 1, "y": [2]}, "red", [1, [2]],
            [{"o": "records"}], null, null, {"1": "a", "null": "b"}, "1180591620717411303424", [1, 2],
            "<class 'object'>", "é\\ud800"
        ])
    );
    let notes = log.of(Stream::Note).join("\n");
    assert!(
        notes.contains("not finite became null") && notes.contains("of type type became text"),
        "{notes}"
    );
}

#[tokio::test]
async fn exceptions_are_named_placed_and_classed() {
    let python = python();
    for (source, name, class, line) in [
        (
            "x = 1\nraise ValueError('no')",
            "PY_ValueError",
            ErrorClass::Unknown,
            2,
        ),
        (
            "\n\ndef f():\n  return {}['k']\nf()",
            "PY_KeyError",
            ErrorClass::Unknown,
            4,
        ),
        (
            "import nothing_of_that_name",
            "PY_ModuleNotFoundError",
            ErrorClass::Validation,
            1,
        ),
        ("x = (", "PY_SyntaxError", ErrorClass::Validation, 1),
        ("y = unknown", "PY_NameError", ErrorClass::Validation, 1),
        (
            "1 + 'a'\nreturn 1",
            "PY_TypeError",
            ErrorClass::Validation,
            1,
        ),
        (
            "raise TimeoutError()",
            "PY_TimeoutError",
            ErrorClass::Timeout,
            1,
        ),
        (
            "raise ConnectionRefusedError('x')",
            "PY_ConnectionRefusedError",
            ErrorClass::Transport,
            1,
        ),
        (
            "class Timeout(Exception): pass\nraise Timeout('x')",
            "PY_Timeout",
            ErrorClass::Timeout,
            2,
        ),
        (
            "raise type('a b', (Exception,), {})()",
            "PY_EXCEPTION",
            ErrorClass::Unknown,
            1,
        ),
        (
            "def f(): f()\nf()",
            "PY_RecursionError",
            ErrorClass::Unknown,
            1,
        ),
    ] {
        let outcome = python
            .run(&call(json!({ "code": source }), json!({})), &cx())
            .await;
        let error = outcome.error.unwrap();
        assert_eq!(
            (error.code.as_str(), error.class),
            (name, class),
            "{source}"
        );
        assert_eq!(outcome.details["py"]["line"], line, "{source}");
        assert!(
            error
                .message
                .ends_with(&format!("(line {line} of the code)")),
            "{}",
            error.message
        );
    }
}

#[tokio::test]
async fn the_traceback_shows_the_code_and_is_logged() {
    let (cx, log) = logged();
    let source = "print('before')\ndef f():\n    raise ValueError('no good')\nf()";
    let outcome = python()
        .run(&call(json!({ "code": source }), json!({})), &cx)
        .await;
    let traceback = outcome.details["py"]["traceback"].as_str().unwrap();
    assert!(
        traceback.contains("File \"<code>\", line 4, in <module>"),
        "{traceback}"
    );
    assert!(
        traceback.contains("raise ValueError('no good')"),
        "{traceback}"
    );
    assert!(!traceback.contains("execute"), "{traceback}");
    assert_eq!(
        outcome.error.unwrap().message,
        "ValueError: no good (line 3 of the code)"
    );
    assert_eq!(log.of(Stream::Out), ["before"]);
    assert_eq!(log.of(Stream::Err).last().unwrap(), "ValueError: no good");
}

#[tokio::test]
async fn ends_that_are_no_exception_are_told_apart() {
    let python = python();
    for (source, message) in [
        ("import sys; sys.exit(3)", "the code ended with sys.exit(3)"),
        ("raise SystemExit('no')", "the code ended with sys.exit(1)"),
        (
            "import os; os._exit(4)",
            "the interpreter ended with exit code 4 before the code gave a result",
        ),
        (
            "import os; os._exit(0)",
            "the interpreter ended with exit code 0 before the code gave a result",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "the interpreter was ended by SIGSEGV",
        ),
    ] {
        let outcome = python
            .run(&call(json!({ "code": source }), json!({})), &cx())
            .await;
        let error = outcome.error.unwrap();
        assert_eq!(
            (error.code.as_str(), error.class),
            ("PYTHON_EXIT", ErrorClass::Unknown),
            "{source}"
        );
        assert_eq!(error.message, message);
    }
}

#[tokio::test]
async fn libs_are_there_under_their_names() {
    let python = python();
    for libs in [
        json!({"j": "json", "path": "os.path"}),
        json!([{"j": "json"}, {"path": "os.path"}, "os.path"]),
        json!({"j": "json", "path": {"from": "os", "import": "path"}}),
    ] {
        let fields = json!({"code": "result = j.dumps([path.join('a', 'b')])", "libs": libs});
        let outcome = python.run(&call(fields, json!({})), &cx()).await;
        assert_eq!(outcome.result, "[\"a/b\"]");
    }
    let missing = call(
        json!({"code": "pass", "libs": ["no_such_module"]}),
        json!({}),
    );
    assert_eq!(
        code(&python.run(&missing, &cx()).await.error),
        "PY_ModuleNotFoundError"
    );
}

#[tokio::test]
async fn directory_and_environment_are_the_calls_own() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("beside.py"), "value = 7").unwrap();
    let source = "import os, beside\nresult = [beside.value, os.environ['A'], os.environ['STEPWELL_STEP_ID'], 'CARGO_MANIFEST_DIR' in os.environ]";
    let fields = json!({"code": source, "cwd": folder.path(), "env": {"A": 1}});
    let python = python();
    let outcome = python.run(&call(fields, json!({})), &cx()).await;
    assert_eq!(outcome.result, json!([7, "1", "load[3]", false]));
    let fields = json!({"code": "import beside; result = beside.value", "env": {"PYTHONPATH": folder.path()}});
    assert_eq!(python.run(&call(fields, json!({})), &cx()).await.result, 7);
    let after = call(
        json!({"code": "import os; return os.environ.get('A')"}),
        json!({}),
    );
    assert_eq!(python.run(&after, &cx()).await.result, Json::Null);
    let nowhere = call(json!({"code": "pass", "cwd": "nowhere"}), json!({}));
    assert_eq!(
        code(&python.run(&nowhere, &cx()).await.error),
        "PROCESS_CWD"
    );
}

#[tokio::test]
async fn calls_see_nothing_of_each_other() {
    let python = python();
    let set = call(
        json!({"code": "import json; json.left = 1; left = 1"}),
        json!({}),
    );
    python.run(&set, &cx()).await;
    let look = call(
        json!({"code": "import json, random; result = [hasattr(json, 'left'), 'left' in globals(), random.random()]"}),
        json!({}),
    );
    let one = python.run(&look, &cx()).await.result;
    let two = python.run(&look, &cx()).await.result;
    assert_eq!((&one[0], &one[1]), (&json!(false), &json!(false)));
    assert_ne!(one[2], two[2], "random numbers must not repeat");
}

#[tokio::test]
async fn a_process_has_no_descriptors_but_its_own() {
    // What the worker itself was started with may be there too; it is not ours.
    let source = "
import os, subprocess
def links():
    return [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')]
mine = links()
handed_on = subprocess.run(['ls', '-l', '/proc/self/fd'], stdout=subprocess.PIPE, text=True, close_fds=False).stdout
return [
    sum(link.startswith('socket') for link in mine),
    mine.count(os.readlink('/proc/self/fd/1')),
    mine.count(os.readlink('/proc/self/fd/2')),
    handed_on.count('socket'),
]";
    for warm in [true, false] {
        let options = PythonOptions {
            warm,
            ..PythonOptions::default()
        };
        let python = Python::new(options);
        let endless = call(json!({"code": "import time; time.sleep(100)"}), json!({}));
        let look = call(json!({ "code": source }), json!({}));
        let cx = cx();
        tokio::select! {
            _ = python.run(&endless, &cx) => panic!("it must not end"),
            found = async {
                python.run(&look, &cx).await;
                python.run(&look, &cx).await.result
            } => assert_eq!(found, json!([1, 1, 1, 0])),
        }
    }
}

#[tokio::test]
async fn a_missing_interpreter_is_said_to_be_missing() {
    for path in ["/nowhere/python3", "no-python-of-that-name"] {
        let options = PythonOptions {
            python: PathBuf::from(path),
            ..PythonOptions::default()
        };
        let outcome = Python::new(options)
            .run(&call(json!({"code": "pass"}), json!({})), &cx())
            .await;
        let error = outcome.error.unwrap();
        assert_eq!(
            (error.code.as_str(), error.class),
            ("PYTHON_NOT_FOUND", ErrorClass::Validation)
        );
    }
    let options = PythonOptions {
        python: PathBuf::from("true"),
        ..PythonOptions::default()
    };
    let outcome = Python::new(options)
        .run(&call(json!({"code": "pass"}), json!({})), &cx())
        .await;
    assert_eq!(code(&outcome.error), "PYTHON_LOST");
}

#[tokio::test]
async fn without_warmth_each_call_has_its_own_interpreter() {
    let python = Python::new(PythonOptions {
        warm: false,
        ..PythonOptions::default()
    });
    let parent = call(
        json!({"code": "import os; print('x'); return os.getppid()"}),
        json!({}),
    );
    let one = python.run(&parent, &cx()).await;
    let two = python.run(&parent, &cx()).await;
    assert_eq!((&one.error, &two.error), (&None, &None));
    assert_ne!(one.result, two.result);
}

#[tokio::test]
async fn work_that_is_wound_up_at_the_end_is_done() {
    let (cx, log) = logged();
    let source = "import atexit, threading, time\natexit.register(lambda: print('at exit'))\nthreading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()";
    python()
        .run(&call(json!({ "code": source }), json!({})), &cx)
        .await;
    assert_eq!(log.of(Stream::Out), ["thread", "at exit"]);
}

#[tokio::test]
async fn a_warm_call_costs_less_than_the_first() {
    let python = python();
    let trivial = call(json!({"code": "result = 1"}), json!({}));
    let began = Instant::now();
    python.run(&trivial, &cx()).await;
    let first = began.elapsed();
    let mut times = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        assert_eq!(python.run(&trivial, &cx()).await.error, None);
        times.push(began.elapsed());
    }
    times.sort();
    let began = Instant::now();
    for _ in 0..8 {
        let cx = cx();
        let run = || python.run(&trivial, &cx);
        tokio::join!(run(), run(), run(), run(), run(), run(), run(), run());
    }
    let at_once = began.elapsed() / 64;
    println!(
        "first {first:?}, p50 {:?}, p95 {:?}, 8 at a time {at_once:?} each",
        times[25], times[47]
    );
    // A wide margin: the machine may be busy. An interpreter's start would be far above it.
    assert!(times[25] < first, "{:?} {first:?}", times[25]);
}
