//! The kernel's tests: laws by property, statements by number.

mod laws;
