//! Volumes from files and back.

use std::fs;

use warpstore_graph::Budget;
use zerocopy::IntoBytes;

use crate::{Folder, data};

const BOTH: &str = "file:a.img,file:b.img";

#[test]
fn the_shipped_graphs_come_back_bit_for_bit() {
    for (name, layout) in [
        ("email-enron.el.gz", "--stripe 128K"),
        ("debian-bookworm-depends.el.gz", "--replicate"),
    ] {
        let folder = Folder::new();
        let file = data(name);
        folder.succeed(&format!("flash --to {BOTH} {layout} g={file}"));
        let listed = folder.succeed(&format!("ls {BOTH}"));
        for word in ["sealed", "g.offsets", "u64", "g.edges", "u32", "file:a.img"] {
            assert!(listed.contains(word), "{listed}");
        }
        folder.succeed("verify file:b.img,file:a.img");
        folder.succeed(&format!("extract {BOTH} g.edges=edges g.offsets=offsets"));
        let graph = warpstore_graph::open(file.as_ref(), Budget::of_machine()).unwrap();
        assert!(folder.read("edges") == graph.edges().as_bytes());
        assert!(folder.read("offsets") == graph.offsets().as_bytes());
    }
}

#[test]
fn raw_binary_comes_back_and_is_replaced() {
    let folder = Folder::new();
    folder.write(
        "r.bin",
        &(0..4000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(),
    );
    folder.write("s.bin", b"sixteen bytes...");
    folder.succeed("flash --to file:a.img r:u32=r.bin s:u128=s.bin");
    let again = folder.succeed("flash --to file:a.img s:u8=s.bin");
    assert!(again.contains("replaces volume"), "{again}");
    assert!(
        again.contains("with r, s, which stays until the new one is complete"),
        "{again}"
    );
    folder.succeed("extract file:a.img s=out");
    assert_eq!(folder.read("out"), b"sixteen bytes...");
    folder.fail(
        "extract file:a.img r=out2",
        1,
        &["no array \"r\"", "it has s"],
    );
    folder.fail(
        "extract file:a.img s=out",
        1,
        &["cannot make out", "it is there already"],
    );
}

#[test]
fn a_path_may_have_a_number_sign() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d#1")).unwrap();
    folder.write("d#1/x.bin", b"abcd");
    folder.write("d#1/g.el", b"0 1\n");
    folder.write("t.csv#a", b"efgh");
    folder.write("t.csv", b"a\n1\n");
    folder.succeed("flash --to file:a.img x:u8=d#1/x.bin g=d#1/g.el t:u8=t.csv#a");
    folder.succeed("extract file:a.img x=x t=t");
    assert_eq!(folder.read("x"), b"abcd");
    assert_eq!(folder.read("t"), b"efgh");
    // No such file: a column.
    fs::remove_file(folder.path("t.csv#a")).unwrap();
    folder.succeed("flash --to file:a.img t=t.csv#a");
}

#[test]
fn an_empty_array_is_one() {
    let folder = Folder::new();
    folder.write("none.bin", b"");
    folder.succeed("flash --to file:a.img k:u8=none.bin");
    folder.succeed("flash --to file:a.img k:u8=none.bin");
    folder.succeed("verify file:a.img");
    folder.succeed("extract file:a.img k=out");
    assert_eq!(folder.read("out"), b"");
}

#[test]
fn a_dry_run_makes_nothing() {
    let folder = Folder::new();
    folder.write("s.bin", b"12345678");
    let said = folder.succeed("flash --to file:a.img,file:b.img --dry-run s:f64=s.bin");
    assert!(
        said.contains("makes a.img") && said.contains("nothing was written"),
        "{said}"
    );
    assert_eq!(folder.names(), ["s.bin"]);
    folder.succeed("flash --to file:a.img s:f64=s.bin");
    let before = folder.read("a.img");
    folder.succeed("flash --to file:a.img --dry-run t:f64=s.bin");
    assert!(folder.read("a.img") == before);
}

#[test]
fn what_is_wrong_is_found_and_says_where() {
    let folder = Folder::new();
    folder.write("s.bin", &[7; 100_000]);
    folder.succeed(&format!("flash --to {BOTH} s:u8=s.bin"));
    let members = fs::read(folder.path("b.img")).unwrap();
    // The second unit of the array is the first one of the second member.
    folder.flip("b.img", (128 << 10) + 5);
    folder.fail(&format!("verify {BOTH}"), 3, &["damaged in 1 place"]);
    let output = folder.run(&format!("verify {BOTH}"));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains("array s, bytes 65536 to 99999, at byte 131072 of file:b.img"),
        "{told}"
    );
    folder.fail(
        &format!("extract {BOTH} s=out"),
        1,
        &["does not have the checksum"],
    );
    assert_eq!(folder.names(), ["a.img", "b.img", "s.bin"]);
    // A superblock: the other one serves, and verify tells.
    folder.write("b.img", &members);
    folder.flip("b.img", 9);
    folder.succeed(&format!("extract {BOTH} s=out"));
    folder.fail(
        &format!("verify {BOTH}"),
        3,
        &["superblocks are not", "--seal mends"],
    );
    folder.succeed(&format!("verify {BOTH} --seal"));
    folder.succeed(&format!("verify {BOTH}"));
}

/// A file has the name of the target when it is complete, not before.
#[test]
fn what_is_extracted_in_part_has_no_name() {
    let folder = Folder::new();
    folder.write("s.bin", &[7; 100_000]);
    folder.succeed("flash --to file:a.img s:u8=s.bin");
    folder.fail(
        "extract file:a.img s=no/such/out",
        1,
        &["cannot make no/such/out"],
    );
    let script = "ulimit -f 20; trap '' XFSZ; exec \"$0\" extract file:a.img s=out";
    let output = std::process::Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_warpstore-flash")])
        .current_dir(folder.path("."))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("cannot make out: "), "{stderr}");
    assert_eq!(folder.names(), ["a.img", "s.bin"]);
    folder.succeed("extract file:a.img s=out");
    assert!(folder.read("out") == [7; 100_000]);
}
