//! A set that keeps the order of insertion, oldest first, and from which any value can be removed. Every
//! operation costs the same however large the set is, so that ten thousand removals cost ten thousand
//! steps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values in the order of their insertion, each at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "Encoded<T>",
    bound(deserialize = "T: Copy + Ord + Deserialize<'de>")
)]
pub struct OrderedSet<T> {
    order: BTreeMap<u64, T>,
    #[serde(skip_serializing)]
    positions: BTreeMap<T, u64>,
    next: u64,
}

/// A set as it is encoded: the positions follow from the order, and JSON has no keys for them.
#[derive(Deserialize)]
struct Encoded<T> {
    order: BTreeMap<u64, T>,
    next: u64,
}

impl<T: Copy + Ord> From<Encoded<T>> for OrderedSet<T> {
    fn from(encoded: Encoded<T>) -> OrderedSet<T> {
        let positions = encoded
            .order
            .iter()
            .map(|(position, value)| (*value, *position));
        OrderedSet {
            positions: positions.collect(),
            order: encoded.order,
            next: encoded.next,
        }
    }
}

impl<T> Default for OrderedSet<T> {
    fn default() -> OrderedSet<T> {
        OrderedSet {
            order: BTreeMap::new(),
            positions: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T: Copy + Ord> OrderedSet<T> {
    /// Adds a value at the end; a value that is in the set keeps its position.
    pub(in crate::evolve) fn push(&mut self, value: T) {
        if !self.positions.contains_key(&value) {
            self.positions.insert(value, self.next);
            self.order.insert(self.next, value);
            self.next += 1;
        }
    }

    /// Removes a value, wherever it is.
    pub(in crate::evolve) fn remove(&mut self, value: T) {
        if let Some(position) = self.positions.remove(&value) {
            self.order.remove(&position);
        }
    }

    /// Removes the values for which `wanted` is false.
    pub(in crate::evolve) fn retain(&mut self, wanted: impl Fn(T) -> bool) {
        self.positions.retain(|value, _| wanted(*value));
        self.order.retain(|_, value| wanted(*value));
    }

    /// The value that was added first; absent if the set is empty.
    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.order.values().next().copied()
    }

    /// All values, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.order.values()
    }

    /// Whether a value is in the set.
    #[must_use]
    pub fn contains(&self, value: &T) -> bool {
        self.positions.contains_key(value)
    }

    /// Whether the set has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(in crate::evolve) fn clear(&mut self) {
        self.order.clear();
        self.positions.clear();
    }
}
