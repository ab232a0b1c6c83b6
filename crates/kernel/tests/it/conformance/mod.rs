//! The numbered statements that the kernel alone can decide, one module a letter.

mod c;
