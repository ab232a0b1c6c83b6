//! Recorded histories replay: a change of the interpreter or of a turn that open workflows do not survive fails here. Then the workflow
//! type needs a new name beside the old one. `cargo xtask engines --record` records histories.

use std::path::{Path, PathBuf};

use stepwell_engines::temporal::RunWorkflow;
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, Url, WorkflowFetchHistoryOptions,
    WorkflowHistory,
};
use temporalio_sdk::workflow_replayer::{WorkflowReplayer, WorkflowReplayerOptions};

async fn replay(json: &[u8]) -> Result<(), String> {
    let history = WorkflowHistory::from_json(json).map_err(|error| error.to_string())?;
    let options = WorkflowReplayerOptions::new()
        .register_workflow::<RunWorkflow>()
        .map_err(|error| error.to_string())?
        .build();
    let replayer = WorkflowReplayer::new(options).map_err(|error| error.to_string())?;
    let replayed = replayer.replay_workflow(history).await;
    replayed.map_err(|error| error.to_string())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/engines/histories")
}

/// Records histories first if `cargo xtask engines --record` asks for it: `HOST:PORT`, then `NAME=ID` for each workflow.
async fn record() {
    let Ok(asked) = std::env::var("STEPWELL_RECORD") else {
        return;
    };
    std::fs::create_dir_all(folder()).unwrap();
    let mut words = asked.split(' ');
    let url = Url::parse(&format!("http://{}", words.next().unwrap())).unwrap();
    let connection = Connection::connect(ConnectionOptions::new(url).build());
    let connection = connection.await.unwrap();
    let client = Client::new(connection, ClientOptions::new("default").build()).unwrap();
    for word in words {
        let (name, id) = word.split_once('=').unwrap();
        let workflow = client.get_workflow_handle::<RunWorkflow>(id);
        let history = workflow.fetch_history(WorkflowFetchHistoryOptions::default());
        let json = history.to_json().await.unwrap();
        std::fs::write(folder().join(format!("{name}.json")), json).unwrap();
    }
}

/// The recorded histories; there must be some of each kind.
fn histories() -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder());
    let files = files.expect("no history is recorded: `cargo xtask engines --record` records them");
    let mut all: Vec<(String, Vec<u8>)> = files
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(file.path()).unwrap())
        })
        .collect();
    all.sort();
    for name in [
        "actions", "commands", "dag", "linear", "outage", "plan", "playbook", "updates",
    ] {
        let file = format!("{name}.json");
        assert!(
            all.iter().any(|it| it.0 == file),
            "the history {file} is missing; `cargo xtask engines --record` records others"
        );
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_histories_replay_and_those_of_another_interpreter_do_not() {
    record().await;
    for (name, json) in histories() {
        if let Err(why) = replay(&json).await {
            panic!("{name}: {why}");
        }
        let text = String::from_utf8(json).unwrap();
        // As if the attempts had had other names.
        let other = text.replace("@1\"", "@9\"");
        assert_ne!(text, other, "{name} has no attempts");
        let why = replay(other.as_bytes()).await.unwrap_err();
        assert!(why.contains("nondeterministic"), "{name}: {why}");
    }
}
