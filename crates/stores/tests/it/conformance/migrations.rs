//! Databases that earlier programs left: they are migrated when they are opened, users read the same as
//! before, and the runs continue.

use serde_json::json;
use stepwell_engine::{Error, StartRequest};
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::time::Time;

use super::lab::{View, each_store_of_version_2};
use super::{event, request, serves};

/// After everything in the fixtures.
const NOW: Time = Time(1_794_800_000_000);

const INSTANCE: &[&str] = &[
    "instance_id",
    "biz_key",
    "workflow_type",
    "workflow_version",
    "status",
    "current_step_seq",
    "current_step_type",
    "started_at",
    "completed_at",
    "failed_at",
];

const STEP: &[&str] = &[
    "instance_id",
    "step_seq",
    "step_type",
    "status",
    "attempts",
    "max_attempts",
    "next_run_at",
    "waiting_event_type",
    "deadline_at",
    "locked_by",
    "locked_until",
    "last_error",
];

/// Everything that users read of linear runs.
fn views(view: &View) -> [Vec<Vec<Option<String>>>; 2] {
    [
        view.select(INSTANCE, "workflow_instance ORDER BY instance_id"),
        view.select(STEP, "workflow_step ORDER BY instance_id, step_seq"),
    ]
}

/// A start of the tenant that the runs of the older store have: keys belong to a tenant.
fn parcel(run_id: &str, parcel: &str) -> StartRequest {
    let mut start = request(run_id);
    start.context.tenant_id = "local".into();
    StartRequest {
        params: json!({ "parcel": parcel }),
        ..start
    }
}

#[test]
fn linear_runs_of_version_2_are_read_as_before_and_continue() {
    each_store_of_version_2(views, |lab, before| {
        assert_eq!(before.each_ref().map(Vec::len), [4, 12]);
        assert_eq!(views(&lab.view), before);
        let mut hand = lab.hand_at(serves(), NOW);
        let plan = hand.state_of("run_open").1;

        // Keys of open runs are taken, keys of ended runs are free.
        let taken = |key: &str, holder: &str| Error::from(Rejection::key_taken(key, holder));
        let refused = hand.trigger(&plan, parcel("run_a", "p-1"));
        assert_eq!(refused, Err(taken("p-1", "run_open")));
        let refused = hand.trigger(&plan, parcel("run_a", "p-2"));
        assert_eq!(refused, Err(taken("p-2", "run_other")));

        hand.submit("run_open", event("e", "parcel.arrived", json!({})))
            .unwrap();
        hand.work();
        assert_eq!(lab.status("run_open"), "COMPLETED");
        let shown = lab.view.select(
            &["status", "current_step_seq", "biz_key"],
            "workflow_instance WHERE instance_id = 'run_open'",
        );
        assert_eq!(
            shown,
            [["COMPLETED", "2", "p-1"].map(|it| Some(it.to_owned()))]
        );
        let shown = lab.view.select(
            &["status"],
            "workflow_step WHERE instance_id = 'run_open' ORDER BY step_seq",
        );
        assert_eq!(shown, ["DONE"; 3].map(|it| vec![Some(it.to_owned())]));
        hand.trigger(&plan, parcel("run_a", "p-1")).unwrap();
        let refused = hand.trigger(&plan, parcel("run_b", "p-1"));
        assert_eq!(refused, Err(taken("p-1", "run_a")));
    });
}
