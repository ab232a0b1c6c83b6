//! Maps whose keys are numbers that this program or its store gives out. Nobody outside can choose keys
//! that collide, so a fast hash is enough. Maps by names and ids of others keep the standard hash.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

/// A map by numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, FixedState>;

/// A set of numbers.
pub(crate) type NumberSet<K> = HashSet<K, FixedState>;
