//! `cargo xtask test qemu`: the driver over VFIO, in a Linux guest under QEMU.
//!
//! The guest is Debian's kernel, unpacked under `target/qemu/guest`, with an initramfs of busybox,
//! the modules of VFIO, and our own programs with this machine's libraries. No root is needed,
//! and no virtualisation by the processor.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::debian::Debian;
use crate::{qemu, repo, setup};

/// Stands for Debian's newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";
/// The programs of the initramfs.
const BUSYBOX: &str = "busybox-static";
/// Our programs that the guest runs.
const PROGRAMS: [&str; 4] = ["vfio-guest", "warpstore-bench", "warpstore-flash", "xtask"];
/// The graph that benches read, in the tree and in the guest.
const GRAPH: &str = "tests/data/email-enron.el.gz";
/// Modules that the guest loads, where its kernel has them as files.
const MODULES: [&str; 6] = [
    "irqbypass",
    "vfio",
    "vfio_virqfd",
    "vfio_iommu_type1",
    "vfio-pci-core",
    "vfio-pci",
];

/// Makes the guest ready and runs the tests in it.
///
/// # Errors
/// Something cannot be had, or a test failed.
pub fn run(args: &[String]) -> Result<()> {
    let mut toolchain = setup::ready()?;
    let qemu =
        qemu::find_or_fetch()?.context("no QEMU; `cargo xtask setup` tries to fetch it again")?;
    toolchain.use_qemu(&qemu);
    let folder = repo::target().join("qemu/guest");
    let tree = kernel_tree(&folder)?;
    let mut build = toolchain.cargo();
    build.args([
        "build",
        "--bins",
        "-p",
        "warpstore-qemu-tests",
        "-p",
        "warpstore-bench",
        "-p",
        "warpstore-flash",
        "-p",
        "xtask",
    ]);
    repo::run(&mut build)?;
    let kernel = only(&tree.join("boot"), "vmlinuz-")?;
    fs::copy(&kernel, folder.join("kernel")).with_context(|| kernel.display().to_string())?;
    initramfs(&folder, &tree)?;

    let mut test = toolchain.cargo();
    test.args([
        "test",
        "-p",
        "warpstore-qemu-tests",
        "--test",
        "guest",
        "--",
        // Elsewhere they are counted as ignored.
        "--ignored",
    ]);
    repo::run(test.args(args).env("WARPSTORE_GUEST", &folder))
}

/// The packages, unpacked once.
fn kernel_tree(folder: &Path) -> Result<PathBuf> {
    let tree = folder.join("tree");
    let stamp = folder.join("unpacked");
    if !stamp.exists() {
        println!("guest: unpacking Debian's kernel and busybox in target/qemu/guest");
        fs::create_dir_all(folder)?;
        let debian = Debian::update(&tree)?;
        let kernel = debian.behind(KERNEL, "linux-image-")?;
        debian.unpack(&[kernel, BUSYBOX.into()])?;
        setup::write(&stamp, "")?;
    }
    Ok(tree)
}

/// Packs the guest's files.
fn initramfs(folder: &Path, tree: &Path) -> Result<()> {
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for place in ["bin", "modules", "dev", "proc", "sys"] {
        fs::create_dir_all(root.join(place))?;
    }
    let busybox = tree.join("bin/busybox");
    install(&busybox, &root.join("bin/busybox"))?;
    install(
        &repo::root().join("tests/qemu/guest/init"),
        &root.join("init"),
    )?;
    for program in PROGRAMS {
        let built = repo::target().join("debug").join(program);
        let installed = root.join("bin").join(program);
        install(&built, &installed)?;
        // Most of a program is for debuggers, and the guest unpacks all of it into its memory.
        repo::stdout_of(repo::command("strip").arg(&installed))?;
        let listing = repo::stdout_of(repo::command("ldd").arg(&built))?;
        for library in libraries(&listing) {
            install(
                Path::new(library),
                &root.join(library.trim_start_matches('/')),
            )?;
        }
    }
    install(&repo::root().join(GRAPH), &root.join(GRAPH))?;
    modules(&busybox, tree, &root.join("modules"))?;
    // busybox's cpio takes names from standard input; paths in the pipe are relative.
    let pack = "find . | \"$0\" cpio -o -H newc -R 0:0 >\"$1\"";
    let mut shell = repo::command("sh");
    shell
        .args(["-c", pack])
        .arg(&busybox)
        .arg(folder.join("initramfs"));
    repo::stdout_of(shell.current_dir(&root))?;
    Ok(())
}

/// Copies a program or library, and makes it executable.
fn install(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file has a folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o755))?)
}

/// The files in what `ldd` prints: the libraries, and the loader that finds them.
fn libraries(listing: &str) -> Vec<&str> {
    let words = listing.lines().flat_map(str::split_whitespace);
    words.filter(|word| word.starts_with('/')).collect()
}

/// Copies the modules, unpacked.
fn modules(busybox: &Path, tree: &Path, to: &Path) -> Result<()> {
    let listing = repo::stdout_of(
        repo::command("find")
            .arg(tree.join("lib/modules"))
            .args(["-name", "*.ko*"]),
    )?;
    for name in MODULES {
        let is_it = |path: &&str| {
            let file = path.rsplit('/').next().unwrap_or_default();
            file.strip_suffix(".xz").unwrap_or(file).strip_suffix(".ko") == Some(name)
        };
        let Some(path) = listing.lines().find(is_it) else {
            continue;
        };
        let to = to.join(name).with_extension("ko");
        if path.ends_with(".xz") {
            let mut shell = repo::command("sh");
            shell
                .args(["-c", "\"$0\" xz -dc \"$1\" >\"$2\""])
                .arg(busybox)
                .arg(path)
                .arg(&to);
            repo::stdout_of(&mut shell)?;
        } else {
            fs::copy(path, &to).with_context(|| path.to_owned())?;
        }
    }
    if !to.join("vfio-pci.ko").exists() {
        bail!("the kernel in {} has no vfio-pci", tree.display());
    }
    Ok(())
}

/// The one file of a folder whose name begins so.
fn only(folder: &Path, start: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let begins = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(start))
    };
    paths
        .find(begins)
        .with_context(|| format!("no {start}… in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_listed() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                       \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f5a)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f5b)\n";
        assert_eq!(
            libraries(listing),
            [
                "/lib/x86_64-linux-gnu/libgcc_s.so.1",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
    }
}
