//! A waiting line: oldest first, and anyone can leave it from the middle. Every operation costs the same
//! however long the line is, so that ten thousand who leave one by one cost ten thousand steps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values in the order they came, each at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "Written<T>",
    bound(deserialize = "T: Copy + Ord + Deserialize<'de>")
)]
pub struct OrderedSet<T> {
    order: BTreeMap<u64, T>,
    #[serde(skip_serializing)]
    places: BTreeMap<T, u64>,
    next: u64,
}

/// A line as it is written down: the places follow from the order, and JSON has no keys for them.
#[derive(Deserialize)]
struct Written<T> {
    order: BTreeMap<u64, T>,
    next: u64,
}

impl<T: Copy + Ord> From<Written<T>> for OrderedSet<T> {
    fn from(written: Written<T>) -> OrderedSet<T> {
        let places = written.order.iter().map(|(place, value)| (*value, *place));
        OrderedSet {
            places: places.collect(),
            order: written.order,
            next: written.next,
        }
    }
}

impl<T> Default for OrderedSet<T> {
    fn default() -> OrderedSet<T> {
        OrderedSet {
            order: BTreeMap::new(),
            places: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T: Copy + Ord> OrderedSet<T> {
    /// Lets a value in at the end; one that is in the line keeps its place.
    pub fn push(&mut self, value: T) {
        if !self.places.contains_key(&value) {
            self.places.insert(value, self.next);
            self.order.insert(self.next, value);
            self.next += 1;
        }
    }

    /// Takes a value out, wherever it is.
    pub fn remove(&mut self, value: T) {
        if let Some(place) = self.places.remove(&value) {
            self.order.remove(&place);
        }
    }

    /// Takes out what is not wanted any more.
    pub fn retain(&mut self, wanted: impl Fn(T) -> bool) {
        self.places.retain(|value, _| wanted(*value));
        self.order.retain(|_, value| wanted(*value));
    }

    /// The oldest.
    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.order.values().next().copied()
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.order.values()
    }

    /// Whether a value is in the line.
    #[must_use]
    pub fn contains(&self, value: &T) -> bool {
        self.places.contains_key(value)
    }

    /// Whether nobody is in the line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Sends everyone away.
    pub fn clear(&mut self) {
        self.order.clear();
        self.places.clear();
    }
}
