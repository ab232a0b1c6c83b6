//! A loop in progress: a cursor, a window of open items, and what the closed ones came to. Its size
//! grows with the number of items, the work per item does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::step_run::StepRun;
use crate::event::StepError;
use crate::reference;

/// What a closed item came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemResult {
    /// It succeeded with this output.
    Succeeded(#[serde(with = "super::frozen::maybe")] Option<Arc<Json>>),
    /// It failed.
    Failed(Arc<StepError>),
    /// It was skipped.
    Skipped,
    /// It was stopped.
    Cancelled,
}

/// A loop in progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// The items; none of them if they are kept elsewhere.
    pub items: Arc<Vec<Json>>,
    /// What stands for the list of items, if it is kept elsewhere.
    #[serde(
        default,
        with = "super::frozen::maybe",
        skip_serializing_if = "Option::is_none"
    )]
    pub reference: Option<Arc<Json>>,
    /// The most that are open at a time.
    pub window: u32,
    /// The next item to open.
    pub next: u32,
    /// Open items.
    pub active: BTreeMap<u32, StepRun>,
    /// Closed items, by index.
    pub results: Vec<Option<ItemResult>>,
    /// How many failed.
    pub failed: u32,
    /// The highest execution of any item: a later attempt of the loop counts on from here, so that a
    /// late result of an earlier one is never current.
    pub highest: u32,
}

impl LoopState {
    /// A loop over these items with nothing opened.
    #[must_use]
    pub fn new(items: Arc<Vec<Json>>, window: u32) -> LoopState {
        let count = items.len();
        LoopState::over(items, None, count, window)
    }

    /// A loop over so many items that are kept elsewhere.
    #[must_use]
    pub fn by_reference(reference: Arc<Json>, count: usize, window: u32) -> LoopState {
        LoopState::over(Arc::default(), Some(reference), count, window)
    }

    fn over(
        items: Arc<Vec<Json>>,
        reference: Option<Arc<Json>>,
        count: usize,
        window: u32,
    ) -> LoopState {
        let results = vec![None; count];
        LoopState {
            items,
            reference,
            window,
            next: 0,
            active: BTreeMap::new(),
            results,
            failed: 0,
            highest: 0,
        }
    }

    /// One item, or what stands for it.
    #[must_use]
    pub fn item(&self, index: u32) -> Option<Json> {
        match &self.reference {
            Some(list) if index < self.count() => Some(reference::item(list, index as usize)),
            Some(_) => None,
            None => self.items.get(index as usize).cloned(),
        }
    }

    /// How many items there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.results.len() as u32
    }

    /// Whether another item may be opened now. `draining` is set when a failure forbids new ones.
    #[must_use]
    pub fn can_open(&self, draining: bool) -> bool {
        !draining && self.next < self.count() && (self.active.len() as u32) < self.window
    }

    /// Whether no item is open and none will be opened.
    #[must_use]
    pub fn is_over(&self, draining: bool) -> bool {
        self.active.is_empty() && (draining || self.next >= self.count())
    }

    /// The outputs in item order; `null` for items that have none.
    #[must_use]
    pub fn outputs(&self) -> Vec<Json> {
        let output = |result: &Option<ItemResult>| match result {
            Some(ItemResult::Succeeded(Some(value))) => Json::clone(value),
            _ => Json::Null,
        };
        self.results.iter().map(output).collect()
    }

    /// The errors with their item's index, in item order.
    pub fn errors(&self) -> impl Iterator<Item = (u32, &StepError)> {
        self.results
            .iter()
            .enumerate()
            .filter_map(|(index, result)| match result {
                Some(ItemResult::Failed(error)) => Some((index as u32, error.as_ref())),
                _ => None,
            })
    }
}
