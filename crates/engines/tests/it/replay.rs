//! Recorded histories replay: a change of the interpreter or of a turn that open workflows do not survive fails here. Then the workflow
//! type needs a new name beside the old one. `cargo xtask engines --record parity commands` records histories.

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

/// `cargo xtask engines --record` asks for it: `HOST:PORT`, then `NAME=ID` for each workflow.
#[tokio::test(flavor = "multi_thread")]
async fn histories_are_recorded_when_that_is_asked_for() {
    let Ok(asked) = std::env::var("STEPWELL_RECORD") else {
        println!("nothing is recorded: the variable STEPWELL_RECORD is not set");
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

fn histories() -> Vec<(String, Vec<u8>)> {
    let Ok(files) = std::fs::read_dir(folder()) else {
        println!("SKIPPED: no history is recorded; `cargo xtask engines --record` records them");
        return Vec::new();
    };
    let mut all: Vec<(String, Vec<u8>)> = files
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(file.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_histories_replay() {
    for (name, json) in histories() {
        if let Err(why) = replay(&json).await {
            panic!("{name}: {why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_of_another_interpreter_does_not_replay() {
    let Some((name, json)) = histories().into_iter().next() else {
        return;
    };
    let text = String::from_utf8(json).unwrap();
    // As if the attempts had had other names.
    let other = text.replace("@1\"", "@9\"");
    assert_ne!(text, other, "{name} has no attempts");
    let why = replay(other.as_bytes()).await.unwrap_err();
    assert!(why.contains("nondeterministic"), "{why}");
}
