//! `python` against code that means harm: bounded in time and memory, named, and nothing is left.

use std::time::Duration;

use crate::outcome::TaskOutcome;
use crate::tool::{TaskContext, TaskLimits, Tool};
use crate::tools::python::{Python, PythonOptions};
use serde_json::json;
use stepwell_kernel::plan::ErrorClass;
use tokio::time::Instant;

use crate::testing::programs::{MEMORY, call, code, cx, is_gone, pids, resident, short, soon};

fn python() -> Python {
    Python::new(PythonOptions::default())
}

async fn run_with(python: &Python, code: &str, cx: &TaskContext) -> TaskOutcome {
    let call = call(json!({ "code": code }), json!({}));
    python.run(&call, cx).await
}

async fn run(code: &str) -> TaskOutcome {
    run_with(&python(), code, &cx()).await
}

/// Has it end by its timeout, and looks whether all of `count` processes are gone.
async fn leaves_nothing(source: &str, count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let python = python();
    let fields = json!({"code": source, "env": {"PIDS": file}});
    let call = call(fields, json!({}));
    let cancel = tokio_util::sync::CancellationToken::new();
    let cx = TaskContext {
        cancelled: cancel.clone(),
        ..cx()
    };
    let stop = async {
        assert!(soon(|| pids(&file).len() == count).await, "{source}");
        cancel.cancel();
    };
    let began = Instant::now();
    let (outcome, ()) = tokio::join!(python.run(&call, &cx), stop);
    assert_eq!(code(&outcome.error), "TASK_CANCELLED", "{source}");
    assert!(began.elapsed() < Duration::from_secs(5), "{source}");
    assert!(
        soon(|| pids(&file).into_iter().all(is_gone)).await,
        "{source}"
    );
}

const TELL: &str = "
import os, time, signal
def tell():
    with open(os.environ['PIDS'], 'a') as file:
        file.write(f'{os.getpid()}\\n')
";

#[tokio::test]
async fn code_that_never_ends_is_ended() {
    leaves_nothing(&format!("{TELL}\ntell()\nwhile True: pass"), 1).await;
}

#[tokio::test]
async fn code_that_holds_the_interpreter_is_ended() {
    leaves_nothing(&format!("{TELL}\ntell()\nsum(range(10**15))"), 1).await;
}

#[tokio::test]
async fn code_that_ignores_the_request_is_killed() {
    let source = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntell()\nwhile True: time.sleep(1)";
    leaves_nothing(&format!("{TELL}\n{source}"), 1).await;
}

#[tokio::test]
async fn fifty_children_are_killed_with_their_parent() {
    let source = "signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(49):
    if os.fork() == 0:
        break
tell()
while True: time.sleep(1)";
    leaves_nothing(&format!("{TELL}\n{source}"), 50).await;
}

#[tokio::test]
async fn children_do_not_outlive_a_call_that_went_well() {
    let source =
        "import subprocess\nreturn [subprocess.Popen(['sleep', '1000']).pid for _ in range(3)]";
    let outcome = run(source).await;
    let left: Vec<i32> = serde_json::from_value(outcome.result).unwrap();
    assert_eq!(left.len(), 3);
    assert!(soon(|| left.iter().copied().all(is_gone)).await);
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let source = format!("{TELL}\nos.fork()\ntell()\nwhile True: time.sleep(1)");
    let fields = json!({"code": source, "env": {"PIDS": file}});
    let (python, call, cx) = (python(), call(fields, json!({})), cx());
    tokio::select! {
        _ = python.run(&call, &cx) => panic!("it must not end"),
        began = soon(|| pids(&file).len() == 2) => assert!(began),
    }
    assert!(soon(|| pids(&file).into_iter().all(is_gone)).await);
}

#[tokio::test]
async fn a_tool_that_is_dropped_takes_its_interpreter_along() {
    let python = python();
    let parent = call(json!({"code": "import os; return os.getppid()"}), json!({}));
    let zygote = python.run(&parent, &cx()).await.result.as_i64().unwrap();
    let zygote = i32::try_from(zygote).unwrap();
    assert!(!is_gone(zygote));
    drop(python);
    let proc = format!("/proc/{zygote}");
    assert!(
        soon(|| !std::path::Path::new(&proc).exists()).await,
        "not even a zombie"
    );
}

#[tokio::test]
async fn an_interpreter_that_was_killed_is_replaced() {
    let python = python();
    let killer = call(
        json!({"code": "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(100)"}),
        json!({}),
    );
    let error = python.run(&killer, &cx()).await.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.class),
        ("PYTHON_LOST", ErrorClass::Transient)
    );
    let next = call(json!({"code": "result = 1"}), json!({}));
    assert_eq!(python.run(&next, &cx()).await.result, 1);
}

#[tokio::test]
async fn an_interpreter_that_was_stopped_is_replaced() {
    let python = python();
    let parent = call(json!({"code": "import os; return os.getppid()"}), json!({}));
    let first = python.run(&parent, &cx()).await.result;
    let source = "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); time.sleep(100)";
    let stopper = call(json!({ "code": source }), json!({}));
    let outcome = python
        .run(&stopper, &short(Duration::from_millis(300)))
        .await;
    assert_eq!(code(&outcome.error), "TASK_TIMEOUT");
    let pid = outcome.details["py"]["pid"].as_i64().unwrap();
    assert!(soon(|| is_gone(i32::try_from(pid).unwrap())).await);
    let second = python.run(&parent, &cx()).await.result;
    assert!(second.is_i64() && second != first, "{first} {second}");
}

#[tokio::test]
async fn killing_the_group_harms_only_the_call() {
    let python = python();
    let killer = call(
        json!({"code": "import os, signal; os.killpg(0, signal.SIGKILL)"}),
        json!({}),
    );
    let error = python.run(&killer, &cx()).await.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.class),
        ("PYTHON_EXIT", ErrorClass::Transient)
    );
    assert_eq!(
        code(
            &python
                .run(&call(json!({"code": "pass"}), json!({})), &cx())
                .await
                .error
        ),
        ""
    );
}

#[tokio::test]
async fn a_gigabyte_of_output_is_read_in_bounded_memory() {
    let _alone = MEMORY.lock().await;
    let before = resident();
    let source = "import sys\nblock = 'x' * 99 + '\\n'\nfor _ in range(1000): sys.stdout.write(block * 10_000)\nresult = 1";
    let outcome = run(source).await;
    assert_eq!((outcome.error, outcome.result), (None, json!(1)));
    assert!(resident() < before + (64 << 20));
}

#[tokio::test]
async fn a_huge_result_is_refused() {
    let python = python();
    let _alone = MEMORY.lock().await;
    for source in [
        "return 'x' * 10**9",
        "return ['x' * 10**6] * 1000",
        "return 'x' * (16 << 20)",
        "return b'x' * 10**8",
    ] {
        let before = resident();
        let error = run_with(&python, source, &cx()).await.error.unwrap();
        assert_eq!(
            (error.code.as_str(), error.class),
            ("PYTHON_RESULT", ErrorClass::Validation),
            "{source}"
        );
        assert!(resident() < before + (64 << 20));
    }
}

#[tokio::test]
async fn ten_megabytes_of_result_are_a_result() {
    let _alone = MEMORY.lock().await;
    let outcome = run("print('y' * 10_000_000)\nreturn 'x' * 10_000_000").await;
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.result.as_str().unwrap().len(), 10_000_000);
}

#[tokio::test]
async fn rubbish_in_place_of_an_answer_is_refused() {
    let python = python();
    for data in [
        "b'\\0' * 7 + b'\\5' + b'{{{{{'",
        "b'\\xff' * 10**7",
        "b'\\0' * 7 + b'\\4' + b'null'",
    ] {
        let source = format!(
            "import os
data = {data}
for fd in range(3, 20):
    try: os.write(fd, data)
    except OSError: pass
os._exit(0)"
        );
        let error = run_with(&python, &source, &cx()).await.error.unwrap();
        assert_eq!(
            (error.code.as_str(), error.class),
            ("PYTHON_RESULT", ErrorClass::Validation),
            "{source}"
        );
    }
}

#[tokio::test]
async fn code_that_forks_and_comes_back_twice_answers_once() {
    let source = "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\nresult = child > 0";
    assert_eq!(run(source).await.result, true);
}

#[tokio::test]
async fn a_result_that_is_no_tree_is_refused() {
    let python = python();
    for source in [
        "x = []\nx.append(x)\nreturn x",
        "x = 1\nfor _ in range(10000): x = [x]\nreturn x",
    ] {
        assert_eq!(
            code(&run_with(&python, source, &cx()).await.error),
            "PYTHON_RESULT",
            "{source}"
        );
    }
}

#[tokio::test]
async fn recursion_without_a_limit_crashes_only_the_call() {
    let source = "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n  def __repr__(self): return repr([self])\nrepr(A())";
    let error = run(source).await.error.unwrap();
    assert!(
        ["PYTHON_EXIT", "PY_RecursionError"].contains(&error.code.as_str()),
        "{error}"
    );
}

#[tokio::test]
async fn closed_descriptors_are_the_codes_own_loss() {
    let python = python();
    assert_eq!(
        run_with(
            &python,
            "import os, sys; os.close(1); os.close(2)\nresult = 5",
            &cx()
        )
        .await
        .result,
        5
    );
    assert_eq!(
        run_with(
            &python,
            "import sys; sys.stdout.close(); sys.stderr.close()\nresult = 5",
            &cx()
        )
        .await
        .result,
        5
    );
    assert_eq!(
        code(
            &run_with(
                &python,
                "import os; os.closerange(0, 100)\nresult = 5",
                &cx()
            )
            .await
            .error
        ),
        "PYTHON_EXIT"
    );
}

#[tokio::test]
async fn binary_output_without_lines_and_reading_input_are_fine() {
    let source =
        "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 1000)\nresult = sys.stdin.read()";
    let outcome = run(source).await;
    assert_eq!((outcome.error, outcome.result), (None, json!("")));
}

#[tokio::test]
async fn memory_can_be_limited() {
    let python = Python::new(PythonOptions {
        memory_bytes: Some(512 << 20),
        ..PythonOptions::default()
    });
    let greedy = call(json!({"code": "x = bytearray(1 << 30)"}), json!({}));
    assert_eq!(
        code(&python.run(&greedy, &cx()).await.error),
        "PY_MemoryError"
    );
}

#[tokio::test]
async fn a_process_that_left_the_group_holds_nobody_up() {
    let began = Instant::now();
    let source =
        "import subprocess\nsubprocess.Popen(['sleep', '3'], start_new_session=True)\nresult = 1";
    assert_eq!(run(source).await.result, 1);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_small_limit_is_kept_to() {
    let python = python();
    let cx = TaskContext {
        limits: TaskLimits {
            result_bytes: 10,
            ..cx().limits
        },
        ..cx()
    };
    assert_eq!(
        run_with(&python, "return 'short'", &cx).await.result,
        "short"
    );
    assert_eq!(
        code(
            &run_with(&python, "return ['é', 'é', 'é', 'é']", &cx)
                .await
                .error
        ),
        "PYTHON_RESULT"
    );
}
