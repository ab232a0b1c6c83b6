//! A: actions.md.
