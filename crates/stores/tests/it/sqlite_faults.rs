//! Faults that really happen to a file.
