//! A loop in progress: a cursor, a window of open items, and the results of the closed ones. The size of
//! a loop grows with the number of items, the work for each item does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::evolved::evolved;
use super::step_run::StepRun;
use crate::event::StepError;
use crate::reference;

/// The result of a closed item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemResult {
    /// The item succeeded with this output.
    Succeeded(#[serde(with = "super::encoding::maybe")] Option<Arc<Json>>),
    /// The item failed with this error.
    Failed(Arc<StepError>),
    /// An operator skipped the item.
    Skipped,
    /// The item was stopped before it ended by itself.
    Cancelled,
}

evolved! {
    /// A loop in progress.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct LoopState {
        /// The items; empty if they are kept elsewhere.
        items: Arc<Vec<Json>> => get,
        /// The reference that stands for the list of items, if the list is kept elsewhere.
        #[serde(
            default,
            with = "super::encoding::maybe",
            skip_serializing_if = "Option::is_none"
        )]
        reference: Option<Arc<Json>> => opt(Arc<Json>),
        /// The most items that are open at a time.
        window: u32 => copy,
        /// The index of the next item to open.
        next: u32 => copy,
        /// The open items, by index.
        active: BTreeMap<u32, StepRun> => get,
        /// The results of the closed items, by index.
        results: Vec<Option<ItemResult>> => deref([Option<ItemResult>]),
        /// How many items have failed.
        failed: u32 => copy,
        /// The highest execution number of any item: a later attempt of the loop counts on from here, so
        /// that a late result of an earlier attempt is never current.
        highest: u32 => copy,
    }
}

impl LoopState {
    /// A loop over these items with nothing opened.
    pub(in crate::evolve) fn new(items: Arc<Vec<Json>>, window: u32) -> LoopState {
        let count = items.len();
        LoopState::over(items, None, count, window)
    }

    /// A loop over `count` items that are kept elsewhere.
    pub(in crate::evolve) fn by_reference(
        reference: Arc<Json>,
        count: usize,
        window: u32,
    ) -> LoopState {
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

    /// One item, or the reference that stands for it.
    #[must_use]
    pub fn item(&self, index: u32) -> Option<Json> {
        match &self.reference {
            Some(list) if index < self.count() => Some(reference::item(list, index as usize)),
            Some(_) => None,
            None => self.items.get(index as usize).cloned(),
        }
    }

    /// The result of an item, if the item has ended.
    #[must_use]
    pub fn result(&self, index: u32) -> Option<&ItemResult> {
        self.results.get(index as usize)?.as_ref()
    }

    /// How many items there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.results.len() as u32
    }

    /// How many items have ended. Every item that was opened is open or has ended.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.next.saturating_sub(self.active.len() as u32)
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
            Some(
                ItemResult::Succeeded(None)
                | ItemResult::Failed(_)
                | ItemResult::Skipped
                | ItemResult::Cancelled,
            )
            | None => Json::Null,
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
                Some(ItemResult::Succeeded(_) | ItemResult::Skipped | ItemResult::Cancelled)
                | None => None,
            })
    }
}
