//! Which crate may depend on which: the layers of docs/architecture.md, as data.
//!
//! Normal and build dependencies count; what tests depend on is free.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Problem;

/// Each crate and the workspace crates it may depend on.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("nvme-wire", &[]),
    ("warpstore-simt", &[]),
    ("warpstore-macros", &[]),
    ("warpstore-builder", &[]),
    ("nvme-queue", &["nvme-wire", "warpstore-simt"]),
    ("line-cache", &["nvme-wire", "warpstore-simt"]),
    ("nvme-model", &["nvme-wire", "warpstore-simt"]),
    (
        "warpstore-device",
        &[
            "line-cache",
            "nvme-queue",
            "nvme-wire",
            "warpstore-macros",
            "warpstore-simt",
        ],
    ),
    (
        "warpstore-kernels",
        &[
            "line-cache",
            "nvme-model",
            "nvme-queue",
            "nvme-wire",
            "warpstore-device",
            "warpstore-macros",
            "warpstore-simt",
        ],
    ),
    (
        "driver-vfio",
        &["nvme-model", "nvme-queue", "nvme-wire", "warpstore-simt"],
    ),
    (
        "warpstore",
        &[
            "driver-vfio",
            "line-cache",
            "nvme-model",
            "nvme-queue",
            "nvme-wire",
            "warpstore-builder",
            "warpstore-device",
            "warpstore-kernels",
            "warpstore-simt",
            "warpstore-volume",
        ],
    ),
    (
        "warpstore-bench",
        &[
            "driver-vfio",
            "line-cache",
            "nvme-model",
            "nvme-queue",
            "nvme-wire",
            "warpstore",
            "warpstore-builder",
            "warpstore-device",
            "warpstore-graph",
            "warpstore-kernels",
            "warpstore-simt",
            "warpstore-terminal",
            "warpstore-volume",
        ],
    ),
    (
        "warpstore-flash",
        &[
            "nvme-model",
            "warpstore",
            "warpstore-device",
            "warpstore-graph",
            "warpstore-terminal",
            "warpstore-volume",
        ],
    ),
    ("warpstore-graph", &[]),
    ("warpstore-terminal", &[]),
    ("warpstore-volume", &["nvme-model", "warpstore-device"]),
    ("xtask", &[]),
];

/// Checks the output of `cargo metadata --no-deps`.
///
/// # Errors
/// It is not what cargo writes.
pub fn check(metadata: &str) -> Result<Vec<Problem>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is no JSON")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let allowed = ALLOWED.iter().find(|(crate_name, _)| *crate_name == name);
        // Crates under tests/ pretend to be hardware or check: nothing depends on them.
        let Some((_, allowed)) = allowed else {
            if !manifest.contains("/tests/") {
                problems.push(Problem::new(
                    name,
                    "a new crate: give it its edges in tidy/edges.rs",
                ));
            }
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            // Crates of the workspace are those with a path; tests may use any.
            if dependency["path"].is_null() || dependency["kind"] == "dev" || allowed.contains(&on)
            {
                continue;
            }
            problems.push(Problem::new(name, format!("must not depend on {on}")));
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, dependency: &str) -> Vec<String> {
        let metadata = format!(
            "{{\"packages\": [{{\"name\": \"{name}\", \"manifest_path\": \"/r/x/Cargo.toml\", \
             \"dependencies\": [{dependency}]}}]}}"
        );
        check(&metadata)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_edge_that_is_not_listed_fails() {
        let on_queue = "{\"name\": \"nvme-queue\", \"path\": \"/r/q\", \"kind\": null}";
        assert!(problems("warpstore-device", on_queue).is_empty());
        assert_eq!(
            problems("nvme-model", on_queue),
            ["nvme-model: must not depend on nvme-queue"]
        );
        assert_eq!(
            problems("xtask", &on_queue.replace("null", "\"build\"")).len(),
            1
        );
    }

    #[test]
    fn tests_and_the_registry_are_free() {
        let dev = "{\"name\": \"nvme-queue\", \"path\": \"/r/q\", \"kind\": \"dev\"}";
        assert!(problems("nvme-model", dev).is_empty());
        let registry = "{\"name\": \"serde\", \"kind\": null}";
        assert!(problems("nvme-model", registry).is_empty());
    }

    #[test]
    fn a_new_crate_must_be_placed() {
        assert_eq!(problems("gadget", "").len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle() {
        fn reaches(from: &str, to: &str) -> bool {
            let (_, edges) = ALLOWED.iter().find(|(name, _)| *name == from).unwrap();
            edges.iter().any(|edge| *edge == to || reaches(edge, to))
        }
        assert!(ALLOWED.iter().all(|(name, _)| !reaches(name, name)));
    }
}
