//! Servers of one store that do each other's work.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use stepwell_engine::coordinator::{Config, Serves};
use stepwell_engine::port::Catalog;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::{ChildSpec, Edge, Plan, Step, StepNo, Work};

use super::{Hand, Lab, START, completed, each_store, net, request, serves, task};

/// A step of a queue.
fn of_queue(queue: &str, name: &str) -> Step {
    let work = Work::Task {
        queue: queue.into(),
        operation: name.into(),
        config: serde_json::Value::Null,
    };
    Step { work, ..task(name) }
}

fn plan(steps: Vec<Step>) -> Arc<Plan> {
    let edges = (1..steps.len() as u32).map(|to| Edge::plain(StepNo(to - 1), StepNo(to)));
    let edges = edges.collect();
    Arc::new(Plan::new(net(steps, edges)).unwrap())
}

/// A catalog with one definition.
struct One(Arc<Plan>);

impl Catalog for One {
    fn find(&self, _: &Plan, _: &str) -> Option<Arc<Plan>> {
        Some(self.0.clone())
    }
}

/// A server that does the work of these pairs, one of each queue with a limit at a time.
fn server(lab: &Lab, child: &Arc<Plan>, pairs: &[(&str, &str)], limits: &[&str]) -> Hand {
    let pairs = pairs
        .iter()
        .map(|(queue, op)| ((*queue).to_owned(), (*op).to_owned()));
    let limits: BTreeMap<String, usize> = limits.iter().map(|it| ((*it).to_owned(), 1)).collect();
    let config = Config {
        serves: Serves::Only(Arc::new(pairs.collect())),
        queues: limits,
        ..serves()
    };
    Hand::with_catalog(lab.second(), Box::new(One(child.clone())), config, START)
}

/// The first server has no room for a parent and offers it; the second one does its work, and the parent waits for a
/// child; the child is done by the first server, which knows the parent only as it was before.
#[test]
fn a_child_that_ends_where_its_parent_was_offered_wakes_its_parent() {
    each_store(|lab| {
        if !lab.store.is_shared() {
            // Nobody to share with.
            return;
        }
        let child = plan(vec![of_queue("wide", "work")]);
        let call = Work::Child(ChildSpec {
            path: "child".into(),
            return_step: None,
            input: TemplateValue::parse(&json!({})).unwrap(),
        });
        let parent = plan(vec![of_queue("narrow", "before"), Step::new("call", call)]);
        let both = [("narrow", "before"), ("wide", "work")];
        let mut first = server(lab, &child, &both, &["narrow"]);
        let mut second = server(lab, &child, &both[..1], &[]);

        let fills = plan(vec![of_queue("narrow", "before")]);
        first.trigger(&fills, request("run_fills")).unwrap();
        first.trigger(&parent, request("run_parent")).unwrap();
        assert_eq!(first.jobs.len(), 1, "there is room for one");
        first.tick();
        second.tick();
        let job = second.jobs.remove(0);
        second.finish(&job, completed(&job.claimed.claim));
        second.tick();
        assert!(second.jobs.is_empty(), "the child is for others");
        first.tick();
        let job = first.jobs.pop().unwrap();
        assert_ne!(job.run, lab.store.find("run_parent").unwrap().unwrap());
        first.finish(&job, completed(&job.claimed.claim));
        for _ in 0..2 {
            second.tick();
            first.tick();
        }
        assert_eq!(lab.status("run_parent"), "COMPLETED");
        first.work();
        assert_eq!(lab.status("run_fills"), "COMPLETED");
    });
}
