//! Artifacts in a folder and in memory: what comes back is what was put, or an error.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};
use stepwell_kernel::event::ArtifactRef;
use stepwell_worker::artifacts::{ArtifactKey, Artifacts, Pruned, RetainedPaths, is_ref};
use stepwell_worker::outcome::ToolError;
use tempfile::TempDir;

fn folder() -> (TempDir, Artifacts) {
    let dir = tempfile::tempdir().unwrap();
    let store = Artifacts::open(dir.path().join("store").to_str().unwrap()).unwrap();
    (dir, store)
}

fn key(name: &str) -> ArtifactKey {
    ArtifactKey::new("run-1", "load[3]", 2, name)
}

fn keep(paths: &[&[&str]]) -> RetainedPaths {
    RetainedPaths {
        paths: paths
            .iter()
            .map(|path| path.iter().map(|it| (*it).to_owned()).collect())
            .collect(),
    }
}

fn large() -> Json {
    let rows: Vec<Json> = (0..5000)
        .map(|id| json!({ "id": id, "name": format!("order {id}") }))
        .collect();
    json!({ "rows": rows, "count": 5000, "note": "n".repeat(20_000) })
}

#[tokio::test]
async fn what_was_put_comes_back() {
    let (_dir, store) = folder();
    let reference = store.put(&key("out"), "text", "hello").await.unwrap();
    assert_eq!(reference.uri, "artifact:runs/run-1/load(3)/2/out");
    assert_eq!(reference.size_bytes, Some(5));
    assert_eq!(store.get(&reference).await.unwrap(), "hello");
    let listed = store.list("run-1").await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key, Some(key("out")));
    assert_eq!(listed[0].uri, reference.uri);
}

#[tokio::test]
async fn a_store_can_be_moved() {
    let (dir, store) = folder();
    let reference = store.put(&key("out"), "text", "hello").await.unwrap();
    let moved = dir.path().join("elsewhere");
    fs::rename(store.folder().unwrap(), &moved).unwrap();
    let moved = Artifacts::open(&format!("file://{}", moved.display())).unwrap();
    assert_eq!(moved.get(&reference).await.unwrap(), "hello");
}

#[tokio::test]
async fn only_its_owner_can_look_into_the_folder() {
    let (_dir, store) = folder();
    let mode = fs::metadata(store.folder().unwrap()).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
}

#[tokio::test]
async fn no_name_leaves_the_store() {
    let (dir, store) = folder();
    let outside = dir.path().join("victim");
    fs::write(&outside, "untouched").unwrap();
    for name in [
        "../../../../../victim",
        "/victim",
        "..",
        ".",
        "",
        "a/../../b",
        "x\0y",
    ] {
        let hostile = ArtifactKey::new(name, name, 1, name);
        let reference = store.put(&hostile, "text", "evil").await.unwrap();
        assert_eq!(store.get(&reference).await.unwrap(), "evil", "{name:?}");
        assert_eq!(
            ArtifactKey::from_path(&reference.uri["artifact:".len()..]),
            Some(hostile)
        );
    }
    assert_eq!(fs::read_to_string(outside).unwrap(), "untouched");
    let beside = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(beside, 2, "the store and the victim");
}

#[tokio::test]
async fn a_reference_that_leads_elsewhere_is_refused() {
    let (_dir, store) = folder();
    for uri in [
        "artifact:../victim",
        "artifact:runs/../../victim/1/x",
        "artifact:runs/a/b/1/%2e%2e",
        "artifact:/etc/passwd",
        "file:///etc/passwd",
        "artifact:runs/a/b/1",
    ] {
        let reference = ArtifactRef {
            uri: uri.to_owned(),
            kind: "text".to_owned(),
            sha256: None,
            size_bytes: None,
            expires_at: None,
        };
        let error = store.get(&reference).await.unwrap_err();
        assert_eq!(error.code(), "ARTIFACT_STORE", "{uri}");
    }
}

#[tokio::test]
async fn a_corrupt_artifact_is_not_returned() {
    let (_dir, store) = folder();
    let reference = store.put(&key("out"), "text", "hello").await.unwrap();
    let file = store.folder().unwrap().join("runs/run-1/load(3)/2/out");
    for damage in ["hellO", "hell", "hello!"] {
        fs::write(&file, damage).unwrap();
        let error = store.get(&reference).await.unwrap_err();
        assert_eq!(error.code(), "ARTIFACT_CORRUPT", "{damage}");
    }
    fs::remove_file(&file).unwrap();
    let error = store.get(&reference).await.unwrap_err();
    assert_eq!(error.code(), "ARTIFACT_MISSING");
    assert!(!ToolError::from(error).is_retryable());
}

#[tokio::test]
async fn what_is_too_large_is_not_read() {
    let (_dir, store) = folder();
    let mut reference = store
        .put(&key("out"), "text", vec![b'x'; 1000])
        .await
        .unwrap();
    let store = store.with_limit(999);
    let error = store.get(&reference).await.unwrap_err();
    assert_eq!(error.code(), "ARTIFACT_TOO_LARGE");
    reference.size_bytes = None;
    let error = store.get(&reference).await.unwrap_err();
    assert_eq!(error.code(), "ARTIFACT_TOO_LARGE");
}

#[tokio::test]
async fn a_small_value_stays_where_it_is() {
    let (_dir, store) = folder();
    let value = json!({ "rows": [1, 2, 3] });
    let (same, reference) = store
        .shrink(&key("result"), value.clone(), &RetainedPaths::default())
        .await
        .unwrap();
    assert_eq!((same, reference), (value.clone(), None));
    assert_eq!(store.expand(&value).await.unwrap(), value);
    assert!(store.list("run-1").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_large_value_is_replaced_and_comes_back() {
    let (_dir, store) = folder();
    let keep = keep(&[
        &["count"],
        &["rows", "1", "id"],
        &["note"],
        &["absent"],
        &["_ref"],
    ]);
    let (stub, reference) = store.shrink(&key("result"), large(), &keep).await.unwrap();
    assert_eq!(is_ref(&stub), reference);
    assert_eq!(stub["count"], 5000);
    assert_eq!(stub["rows"]["1"]["id"], 1);
    assert_eq!(stub["rows"]["_count"], 5000, "a part is not taken for all");
    // Too large to be kept: what stands there can be handed on.
    assert_eq!(stub["note"]["_at"], "/note");
    assert_eq!(store.expand(&stub["note"]).await.unwrap(), large()["note"]);
    assert_eq!(stub.get("absent"), None);
    assert_eq!(stub["_preview"]["fields"]["rows"]["length"], 5000);
    assert!(stub.to_string().len() < 4096);
    assert_eq!(store.expand(&stub).await.unwrap(), large());
}

#[tokio::test]
async fn what_is_kept_has_a_limit_in_all() {
    let (_dir, store) = folder();
    let value: serde_json::Map<String, Json> = (0..20)
        .map(|n| (format!("f{n}"), Json::from("v".repeat(10_000))))
        .collect();
    let names: Vec<String> = value.keys().cloned().collect();
    let keep = RetainedPaths {
        paths: names.into_iter().map(|name| vec![name]).collect(),
    };
    let (stub, _) = store
        .shrink(&key("result"), value.into(), &keep)
        .await
        .unwrap();
    assert!(stub.to_string().len() < 64 << 10);
    let kept = stub
        .as_object()
        .unwrap()
        .values()
        .filter(|it| it.is_string());
    assert_eq!(kept.count(), 4);
    assert_eq!(
        stub["f9"]["_at"], "/f9",
        "the others are references to their part"
    );
}

#[tokio::test]
async fn a_large_list_inside_can_be_counted_looped_over_and_taken_apart() {
    let (_dir, store) = folder();
    let keep = keep(&[&["rows"], &["rows", "1", "id"]]);
    let (stub, _) = store.shrink(&key("result"), large(), &keep).await.unwrap();
    assert_eq!(stub["rows"]["_count"], 5000);
    assert_eq!(stub["rows"]["1"]["id"], 1, "what is small is here too");
    assert!(stub["_keys"].as_array().unwrap().contains(&json!("count")));
    let item = stepwell_kernel::reference::item(&stub["rows"], 7);
    let whole = json!({ "row": item, "inside": [{ "all": stub["rows"] }] });
    let back = store.expand(&whole).await.unwrap();
    assert_eq!(back["row"], large()["rows"][7]);
    assert_eq!(back["inside"][0]["all"], large()["rows"]);
    let beyond = stepwell_kernel::reference::item(&stub["rows"], 5000);
    assert!(store.expand(&beyond).await.is_err());
}

#[tokio::test]
async fn a_made_up_reference_is_none() {
    for value in [
        json!({ "_ref": { "uri": "artifact:runs/a/b/1/x", "kind": "json" } }),
        json!({ "_ref": { "uri": "file:///etc/passwd", "kind": "json", "sha256": "", "sizeBytes": 1 } }),
        json!({ "_ref": "artifact:runs/a/b/1/x" }),
        json!("artifact:runs/a/b/1/x"),
    ] {
        assert_eq!(is_ref(&value), None, "{value}");
    }
}

#[tokio::test]
async fn pruning_takes_only_old_runs_that_nobody_keeps() {
    let (_dir, store) = folder();
    for run in ["old", "kept", "../odd"] {
        for name in ["a", "b"] {
            let key = ArtifactKey::new(run, "s", 1, name);
            store.put(&key, "text", "four").await.unwrap();
        }
    }
    let later = SystemTime::now() + Duration::from_secs(60);
    let is_kept = |run: &str| run == "kept";
    let earlier = SystemTime::now() - Duration::from_secs(60);
    let nothing = store.prune(is_kept, earlier, false).await.unwrap();
    assert_eq!(nothing, Pruned::default());
    let all = Pruned {
        objects: 4,
        bytes: 16,
    };
    assert_eq!(store.prune(is_kept, later, true).await.unwrap(), all);
    assert_eq!(store.prune(is_kept, later, false).await.unwrap(), all);
    assert!(store.list("old").await.unwrap().is_empty());
    assert_eq!(store.list("kept").await.unwrap().len(), 2);
    let left = fs::read_dir(store.folder().unwrap().join("runs")).unwrap();
    assert_eq!(left.count(), 1, "emptied folders go too");
    store.remove_run("kept").await.unwrap();
    assert!(store.list("kept").await.unwrap().is_empty());
}

#[tokio::test]
async fn writers_at_the_same_time_leave_one_whole_artifact() {
    let (_dir, store) = folder();
    let puts = (0..8u8).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.put(&key("out"), "text", vec![n; 100_000]).await })
    });
    let mut references = Vec::new();
    for put in puts.collect::<Vec<_>>() {
        references.push(put.await.unwrap().unwrap());
    }
    let mut whole = 0;
    for reference in &references {
        whole += usize::from(store.get(reference).await.is_ok());
    }
    assert_eq!(whole, 1);
}

#[test]
fn an_address_that_cannot_be_opened_says_why() {
    for (address, word) in [
        ("", "empty"),
        ("ftp://host/x", "s3://"),
        ("s3://", "bucket"),
        ("file://relative", "absolute"),
        ("/dev/null/x", "/dev/null/x"),
    ] {
        let error = Artifacts::open(address).unwrap_err();
        assert_eq!(error.code(), "ARTIFACT_STORE");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn buckets_can_be_opened_without_asking_them() {
    for address in ["s3://bucket/some/prefix", "gs://bucket/prefix"] {
        assert!(Artifacts::open(address).unwrap().folder().is_none());
    }
}
