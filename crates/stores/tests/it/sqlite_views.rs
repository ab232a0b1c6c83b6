//! The views for people.
