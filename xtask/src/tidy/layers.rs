//! Crates depend inward only, and each layer keeps to its own business.
//!
//! A new crate fails until it has a row here: which crates it may see is a decision.

use super::{Finding, Tree};
use crate::source::Source;
use serde_json::Value;

/// What a crate of this workspace may depend on.
struct Layer {
    name: &'static str,
    /// In what is built.
    sees: &'static [&'static str],
    /// In its tests and benches, besides.
    tests_see: &'static [&'static str],
    /// No database and no HTTP, neither as a dependency nor in its strings.
    bare: bool,
}

const LAYERS: &[Layer] = &[
    Layer {
        name: "stepwell-kernel",
        sees: &[],
        tests_see: &[],
        bare: true,
    },
    Layer {
        name: "stepwell-dialects",
        sees: &["stepwell-kernel"],
        tests_see: &[],
        bare: true,
    },
    Layer {
        name: "stepwell-engine",
        sees: &["stepwell-kernel", "stepwell-dialects"],
        tests_see: &[],
        bare: true,
    },
    Layer {
        name: "stepwell-http",
        sees: &[],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-pg",
        sees: &[],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-stores",
        sees: &["stepwell-kernel", "stepwell-engine", "stepwell-pg"],
        tests_see: &["stepwell-dialects", "stepwell-bus"],
        bare: false,
    },
    Layer {
        name: "stepwell-bus",
        sees: &["stepwell-kernel", "stepwell-engine", "stepwell-http"],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-worker",
        // The dialects' table of tools is the worker's dispatch.
        sees: &[
            "stepwell-kernel",
            "stepwell-dialects",
            "stepwell-engine",
            "stepwell-http",
            "stepwell-pg",
        ],
        tests_see: &["stepwell-stores"],
        bare: false,
    },
    Layer {
        name: "stepwell-engines",
        // Attempts are done by the product's own worker.
        sees: &[
            "stepwell-kernel",
            "stepwell-dialects",
            "stepwell-engine",
            "stepwell-worker",
        ],
        tests_see: &["stepwell-stores"],
        bare: false,
    },
    Layer {
        name: "stepwell-faulty-disk",
        sees: &[],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-sim",
        sees: &[
            "stepwell-kernel",
            "stepwell-dialects",
            "stepwell-engine",
            "stepwell-stores",
            "stepwell-faulty-disk",
            // Pipelines are run by the product's own worker.
            "stepwell-worker",
        ],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-conformance",
        // The dialects read YAML with positions, the kernel links hashes; the kit sees no engine and no store.
        sees: &["stepwell-kernel", "stepwell-dialects", "stepwell-pg"],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-views",
        sees: &["stepwell-kernel", "stepwell-dialects", "stepwell-engine"],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-server",
        sees: &[
            "stepwell-kernel",
            "stepwell-dialects",
            "stepwell-engine",
            "stepwell-bus",
            "stepwell-views",
            "stepwell-worker",
        ],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell-client",
        sees: &[],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "stepwell",
        sees: &[
            "stepwell-client",
            "stepwell-conformance",
            "stepwell-kernel",
            "stepwell-dialects",
            "stepwell-engine",
            "stepwell-engines",
            "stepwell-stores",
            "stepwell-bus",
            "stepwell-server",
            "stepwell-views",
            "stepwell-worker",
        ],
        tests_see: &[],
        bare: false,
    },
    Layer {
        name: "xtask",
        sees: &[],
        tests_see: &[],
        bare: false,
    },
];

/// Crates that speak SQL or HTTP, by the beginning of their names.
const SPEAKERS: &[&str] = &[
    "axum",
    "deadpool",
    "diesel",
    "http",
    "hyper",
    "libsqlite3",
    "postgres",
    "reqwest",
    "rusqlite",
    "sea-orm",
    "sqlx",
    "tokio-postgres",
    "tonic",
    "tower",
    "ureq",
    "warp",
];

/// What a string that holds SQL begins with, and what follows somewhere behind it.
const SQL: &[(&str, &str)] = &[
    ("SELECT ", " FROM "),
    ("INSERT INTO ", ""),
    ("UPDATE ", " SET "),
    ("DELETE FROM ", ""),
    ("CREATE TABLE ", ""),
    ("CREATE INDEX ", ""),
    ("CREATE UNIQUE INDEX ", ""),
    ("ALTER TABLE ", ""),
    ("PRAGMA ", ""),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = edges(&tree.metadata);
    for (path, text) in tree.rust("crates/") {
        let folder = path.split('/').nth(1).unwrap_or_default();
        if is_bare(folder) && path.split('/').nth(2) == Some("src") {
            for (line, text) in sql(text) {
                let message = format!("SQL belongs into a store: {text:?}");
                findings.push(Finding::error(path, line, message));
            }
        }
    }
    findings
}

fn is_bare(folder: &str) -> bool {
    LAYERS
        .iter()
        .any(|layer| layer.bare && layer.name == format!("stepwell-{folder}"))
}

/// Dependencies that point the wrong way, from `cargo metadata --no-deps`.
fn edges(metadata: &Value) -> Vec<Finding> {
    let packages: Vec<&Value> = metadata["packages"]
        .as_array()
        .map(|list| list.iter().collect())
        .unwrap_or_default();
    let members: Vec<&str> = packages
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    let mut findings = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
            let message = "this crate has no row in LAYERS of xtask/src/tidy/layers.rs; \
                           add one that says what it may see";
            findings.push(Finding::error(name, 0, message));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let dev = dependency["kind"] == "dev";
            if let Some(message) = judge(layer, target, dev, members.contains(&target)) {
                findings.push(Finding::error(name, 0, message));
            }
        }
    }
    findings
}

fn judge(layer: &Layer, target: &str, dev: bool, member: bool) -> Option<String> {
    if member {
        // Tests of a crate see the crate itself with a feature that only tests need.
        let tests_see = layer.tests_see.contains(&target) || target == layer.name;
        let seen = layer.sees.contains(&target) || (dev && tests_see);
        return (!seen).then(|| format!("must not depend on {target}: crates point inward only"));
    }
    let speaks = SPEAKERS.iter().any(|speaker| target.starts_with(speaker));
    (layer.bare && speaks).then(|| format!("must not depend on {target}: no SQL and no HTTP here"))
}

/// String literals that hold SQL, with their lines.
fn sql(text: &str) -> Vec<(usize, String)> {
    let source = Source::scan(text);
    source
        .strings
        .iter()
        .filter(|literal| {
            let text = literal
                .text
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                + " ";
            SQL.iter()
                .any(|(head, tail)| text.starts_with(head) && text.contains(tail))
        })
        .map(|literal| {
            let shown: String = literal.text.trim().chars().take(40).collect();
            (source.line_of(literal.offset), shown)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, kind)| json!({"name": name, "kind": kind}))
            .collect();
        json!({"name": name, "dependencies": dependencies})
    }

    fn found(packages: &[Value]) -> Vec<String> {
        let findings = edges(&json!({"packages": packages}));
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn edges_point_inward() {
        let kernel = package("stepwell-kernel", &[("serde", None)]);
        let dialects = package("stepwell-dialects", &[("stepwell-kernel", None)]);
        let tested = [
            ("stepwell-kernel", None),
            ("stepwell-dialects", Some("dev")),
        ];
        let stores = package("stepwell-stores", &tested);
        assert!(found(&[kernel.clone(), dialects.clone(), stores.clone()]).is_empty());

        let outward = package("stepwell-dialects", &[("stepwell-stores", Some("dev"))]);
        assert_eq!(found(&[kernel.clone(), outward, stores]).len(), 1);
        let built = package("stepwell-stores", &[("stepwell-dialects", None)]);
        assert_eq!(found(&[kernel, dialects, built]).len(), 1);
    }

    #[test]
    fn an_unknown_crate_needs_a_row() {
        assert_eq!(found(&[package("stepwell-common", &[])]).len(), 1);
    }

    #[test]
    fn bare_layers_know_no_database() {
        let engine = package("stepwell-engine", &[("rusqlite", None)]);
        assert_eq!(found(&[engine]).len(), 1);
        let binary = package("stepwell", &[("reqwest", None)]);
        assert!(found(&[binary]).is_empty());
    }

    #[test]
    fn sql_in_strings_is_found() {
        assert_eq!(sql("\nlet q = \"SELECT a\n FROM b\";")[0].0, 2);
        assert_eq!(sql("f(\"INSERT INTO runs VALUES (1)\")").len(), 1);
        assert!(sql("f(\"UPDATE_PARAMS\", \"SELECT one\", \"please UPDATE x SET y\")").is_empty());
        assert!(sql("// \"DELETE FROM x\"").is_empty());
    }
}
