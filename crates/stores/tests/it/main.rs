//! The stores against the engine's public suite, against each other, and against faults.
