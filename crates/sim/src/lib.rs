//! The simulator: a keeper under virtual time, with every fault there is, from a seed.
