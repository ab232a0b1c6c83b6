//! An example of each language: run to its end, and killed in the middle and taken up again.

use std::collections::{BTreeMap, BTreeSet};

use crate::fences;
use crate::servers;
use crate::test_site::{TestSite, example, is_gone, soon};

/// An example, and what is known about it.
struct Play {
    /// What tests call it.
    name: &'static str,
    file: &'static str,
    /// Its steps, as they are completed; steps in one place may change theirs.
    order: &'static [&'static [&'static str]],
    /// The step in which it is killed.
    middle: &'static str,
    /// A file that it leaves, with its text.
    leaves: (&'static str, &'static str),
}

const TRIP: Play = Play {
    name: "actions",
    file: "actions/trip.yaml",
    order: &[&["flight"], &["hotel"], &["car"], &["itinerary"]],
    middle: "hotel",
    leaves: ("bookings.txt", "booked flight\nbooked hotel\nbooked car\n"),
};

const INVENTORY: Play = Play {
    name: "dag",
    file: "dag/inventory.yaml",
    order: &[
        &["count_north", "count_south"],
        &["add"],
        &["publish"],
        &["check"],
    ],
    middle: "publish",
    leaves: ("inventory.txt", "42 pieces\n"),
};

const INVOICE: Play = Play {
    name: "linear",
    file: "linear/invoice.yaml",
    order: &[&["NUMBER"], &["PRINT"], &["SEND"], &["BOOK"]],
    middle: "SEND",
    leaves: ("sent.txt", "Invoice 1\nnobody owes 1.00\n"),
};

const BACKUP: Play = Play {
    name: "plan",
    file: "plan/backup.yaml",
    order: &[&["fill"], &["copy"], &["try_it"], &["write_down"]],
    middle: "copy",
    leaves: ("backup.log", "3 orders are safe\n"),
};

const WORDS: Play = Play {
    name: "playbook",
    file: "playbook/word-count.yaml",
    order: &[
        &["choose"],
        &["count[0]", "count[1]", "count[2]", "count[3]"],
        &["count"],
        &["report"],
    ],
    middle: "report",
    leaves: ("report.txt", "the longest has 3 words\n"),
};

impl Play {
    /// That it ended well, each step completed once and in order, and what it leaves.
    fn is_done(&self, site: &TestSite) {
        assert_eq!(site.show()["status"], "COMPLETED");
        let log = site.log();
        let done = log.completed();
        let mut rest = done.as_slice();
        for steps in self.order {
            let (these, others) = rest.split_at(steps.len().min(rest.len()));
            let (these, steps): (BTreeSet<_>, BTreeSet<_>) =
                (these.iter().collect(), steps.iter().collect());
            assert_eq!(these, steps, "{done:?}");
            rest = others;
        }
        assert!(rest.is_empty(), "{done:?}");
        assert_eq!(log.types().last(), Some(&"RunCompleted"));
        assert_eq!(site.read(self.leaves.0), self.leaves.1);
    }

    /// That nothing was done that the log does not know of, and that keys tell steps apart.
    fn is_witnessed(&self, site: &TestSite) {
        let log = site.log();
        let mut keys = BTreeMap::new();
        for seen in site.seen() {
            let (began, ended) = site.times(&seen.step);
            assert_eq!(began, log.executions(&seen.step), "{}", seen.step);
            assert_eq!(ended, 1, "{}", seen.step);
            let step = keys.entry(seen.key).or_insert_with(|| seen.step.clone());
            assert_eq!(*step, seen.step, "two steps have one key");
        }
        let steps: BTreeSet<&String> = keys.values().collect();
        assert_eq!(steps.len(), keys.len(), "a step has two keys: {keys:?}");
    }

    fn runs_to_its_end(&self) {
        let site = TestSite::new(&format!("{}-runs", self.name));
        let call = site.run(&example(self.file), &[]);
        assert_eq!(call.code, 0, "{}{}", call.out, call.err);
        self.is_done(&site);
        self.is_witnessed(&site);
        assert_eq!(site.times(self.middle), (1, 1));
    }

    fn survives_a_kill(&self) {
        let site = TestSite::new(&format!("{}-killed", self.name));
        site.hold(self.middle);
        let process = site.start(&example(self.file), &[]);
        let step = site.begun(self.middle, 1);
        process.kill();
        soon("the step ends with its worker", || is_gone(step));
        let log = site.log();
        assert_eq!(log.count("StepCompleted", self.middle), 0);
        let before: Vec<String> = log.completed().into_iter().map(str::to_owned).collect();
        assert!(!before.is_empty());

        site.hold_no_more(self.middle);
        site.good(&["run", &example(self.file), "--resume"]);
        self.is_done(&site);
        self.is_witnessed(&site);
        let log = site.log();
        assert_eq!(log.executions(self.middle), 2);
        fences::rises(&site, self.middle, self.name == "linear");
        for step in before {
            assert_eq!(log.executions(&step), 1, "{step} was done before");
        }
    }
}

#[test]
fn actions_run_to_their_end() {
    TRIP.runs_to_its_end();
}

#[test]
fn actions_survive_a_kill() {
    TRIP.survives_a_kill();
}

#[test]
fn a_dag_runs_to_its_end() {
    INVENTORY.runs_to_its_end();
}

#[test]
fn a_dag_survives_a_kill() {
    INVENTORY.survives_a_kill();
}

#[test]
fn a_linear_chain_runs_to_its_end() {
    INVOICE.runs_to_its_end();
}

#[test]
fn a_linear_chain_survives_a_kill() {
    INVOICE.survives_a_kill();
}

#[test]
fn a_plan_runs_to_its_end() {
    BACKUP.runs_to_its_end();
}

#[test]
fn a_plan_survives_a_kill() {
    BACKUP.survives_a_kill();
}

#[test]
fn a_playbook_runs_to_its_end() {
    WORDS.runs_to_its_end();
}

#[test]
fn a_playbook_survives_a_kill() {
    WORDS.survives_a_kill();
}

#[test]
fn a_playbook_takes_the_way_that_its_input_asks_for() {
    let site = TestSite::new("playbook-empty");
    let call = site.run(&example(WORDS.file), &["--input", "texts=[]"]);
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    assert_eq!(site.log().completed(), ["choose", "nothing"]);
    assert!(
        call.out.contains("there is nothing to count"),
        "{}",
        call.out
    );
}

#[test]
fn a_playbook_fetches_page_by_page_from_a_server_that_is_busy_at_first() {
    let site = TestSite::new("pages");
    let server = format!("api_url={}", servers::pages());
    let call = site.run(
        &example("playbook/paginated-fetch.yaml"),
        &["--input", &server],
    );
    assert_eq!(call.code, 0, "{}{}", call.out, call.err);
    assert!(call.out.contains("fetched 7 items"), "{}", call.out);
    assert_eq!(
        site.log().completed(),
        [
            "hello",
            "fetch_page",
            "fetch_page#2",
            "fetch_page#3",
            "report"
        ]
    );
}
