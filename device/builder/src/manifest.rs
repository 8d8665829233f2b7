//! What a crate's folder tells: the name of its library, its workspace, its manifests.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::BuildError;

/// Name of the library, as the compiler spells it.
pub fn library_name(kernel_crate: &Path) -> Result<String, BuildError> {
    let path = kernel_crate.join("Cargo.toml");
    let refuse = |reason: String| BuildError::NoKernelCrate {
        path: path.clone(),
        reason,
    };
    let text = fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
    let manifest: toml::Table = text.parse().map_err(|error| refuse(format!("{error}")))?;
    let name_in = |section: &str| manifest.get(section)?.get("name")?.as_str();
    name_in("lib")
        .or_else(|| name_in("package"))
        .map(|name| name.replace('-', "_"))
        .ok_or_else(|| refuse("the manifest names no package".to_owned()))
}

/// `device` in the target folder of the crate's workspace.
pub fn default_target_dir(kernel_crate: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let workspace = || {
        // The lock file marks the workspace's root; a crate that was never built has none yet.
        let root = fs::canonicalize(kernel_crate).ok().and_then(|folder| {
            folder
                .ancestors()
                .find(|folder| folder.join("Cargo.lock").is_file())
                .map(Path::to_path_buf)
        });
        root.unwrap_or_else(|| kernel_crate.to_path_buf())
            .join("target")
    };
    target.unwrap_or_else(workspace).join("device")
}

/// The sources, and with them the manifests and lock files that decide how they are compiled.
pub fn with_manifests(sources: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut all = BTreeSet::new();
    for source in sources {
        for folder in source.ancestors().skip(1) {
            let manifests = ["Cargo.toml", "Cargo.lock"].map(|name| folder.join(name));
            all.extend(manifests.into_iter().filter(|path| path.is_file()));
        }
        all.insert(source);
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_with(manifest: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        folder
    }

    #[test]
    fn the_library_is_named_after_the_package_unless_it_has_a_name() {
        let plain = crate_with("[package]\nname = \"my-kernels\"\n");
        assert_eq!(library_name(plain.path()).unwrap(), "my_kernels");
        let named = crate_with("[package]\nname = \"my-kernels\"\n[lib]\nname = \"k\"\n");
        assert_eq!(library_name(named.path()).unwrap(), "k");
    }

    #[test]
    fn a_folder_without_a_crate_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let message = library_name(folder.path()).unwrap_err().to_string();
        assert!(
            message.contains(folder.path().to_str().unwrap()),
            "{message}"
        );
        let broken = crate_with("[workspace]\n");
        assert!(
            library_name(broken.path())
                .unwrap_err()
                .to_string()
                .contains("no package")
        );
    }

    #[test]
    fn manifests_above_a_source_count_as_sources() {
        let folder = crate_with("[package]\nname = \"k\"\n");
        let source = folder.path().join("src/lib.rs");
        let all = with_manifests(vec![source.clone()]);
        assert!(all.contains(&source) && all.contains(&folder.path().join("Cargo.toml")));
    }
}
