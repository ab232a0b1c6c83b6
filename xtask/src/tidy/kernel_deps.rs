//! The kernel's dependency tree is a decision: every crate in it is named here.
//!
//! A crate that does I/O, reads a clock or draws randomness must never enter. Anything else enters
//! by a deliberate line in `ALLOWED`, after a review of what it does.

use super::Finding;
use crate::repo::Repo;
use anyhow::Result;

const MANIFEST: &str = "crates/kernel/Cargo.toml";

/// What is linked into the kernel. Procedural macros run in the compiler and are not in it.
const ALLOWED: &[&str] = &[
    "block-buffer",
    "cfg-if",
    "cmov",
    "const-oid",
    "cpufeatures",
    "crypto-common",
    "ctutils",
    "digest",
    "dyn-clone",
    "foldhash",
    "hmac",
    "hybrid-array",
    "itoa",
    "memchr",
    "minijinja",
    "ref-cast",
    "ryu-js",
    "schemars",
    "serde",
    "serde_core",
    "serde_json",
    "serde_json_canonicalizer",
    "sha2",
    "stepwell-kernel",
    "thiserror",
    "typenum",
    "zmij",
];

/// What no decision can allow: I/O, clocks, randomness, threads.
const NEVER: &[&str] = &[
    "async-std",
    "axum",
    "chrono",
    "fastrand",
    "futures",
    "getrandom",
    "hyper",
    "jiff",
    "mio",
    "postgres",
    "rand",
    "rand_core",
    "rayon",
    "reqwest",
    "rusqlite",
    "rustix",
    "smol",
    "socket2",
    "sqlx",
    "tempfile",
    "time",
    "tokio",
    "tokio-postgres",
    "ulid",
    "ureq",
    "uuid",
    "walkdir",
];

pub(super) fn check(repo: &Repo) -> Result<Vec<Finding>> {
    let listing = repo.cargo_output(&[
        "tree",
        "--locked",
        "--package=stepwell-kernel",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ])?;
    Ok(judge(&listing))
}

/// Judges a listing with one `name version` a line.
fn judge(listing: &str) -> Vec<Finding> {
    let mut names: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut findings = Vec::new();
    for name in names {
        if NEVER.contains(&name) {
            let message = format!(
                "`{name}` does I/O, reads a clock or draws randomness; the kernel must not reach it \
                 (`cargo tree -p stepwell-kernel -i {name}` shows the way in)"
            );
            findings.push(Finding::error(MANIFEST, 0, message));
        } else if !ALLOWED.contains(&name) {
            let message = format!(
                "`{name}` is new in the kernel's tree; if it is pure, add it to ALLOWED in \
                 xtask/src/tidy/kernel_deps.rs"
            );
            findings.push(Finding::error(MANIFEST, 0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_crate_needs_a_decision_and_some_are_refused() {
        assert!(judge("stepwell-kernel v0.1.0 (x)\nserde v1.0.0\nserde v1.0.0 (*)\n").is_empty());
        let found = judge("petgraph v1\nrand v0.10\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].message.contains("is new"));
        assert!(found[1].message.contains("must not reach it"));
    }

    #[test]
    fn no_refused_crate_was_allowed() {
        for name in NEVER {
            assert!(!ALLOWED.contains(name), "{name}");
        }
    }
}
