//! Graphs that cannot be read: which file, which line, why; and nothing is left.

use std::fs;

use crate::{Folder, email_graph, skip};

#[test]
fn bad_graphs_end_with_status_1() {
    let cut_gzip = &fs::read(email_graph()).unwrap()[..100_000];
    let cases: [(&str, &[u8], &str); 11] = [
        ("huge.el", b"0 1\n1 4294967296\n", "line 2"),
        ("word.el", b"0 1\n1 two\n", "line 2: 'two'"),
        ("minus.el", b"0 -1\n", "line 1"),
        ("alone.el", b"0 1\n\n7\n", "line 3"),
        ("empty.el", b"", "empty"),
        ("comment.el", b"# nothing\n", "no edge"),
        ("cut.el.gz", cut_gzip, "ends"),
        ("plain.el.gz", b"0 1\n1 2\n2 3\n3 4\n", "damaged"),
        (
            "cut.mtx",
            b"%%MatrixMarket matrix coordinate pattern general\n4 4 3\n1 2\n",
            "3",
        ),
        ("cut.bel.col", b"\x05\0\0", "cut.bel"),
        ("kind.csv", b"0,1\n", "kind"),
    ];
    for (name, content, word) in cases {
        let folder = Folder::new();
        folder.write(name, content);
        for experiment in ["bfs", "cc"] {
            let line = format!("{experiment} --graph {name} --json r.json");
            let stem = name.strip_suffix(".col").unwrap_or(name);
            folder.fail(&line, 1, &[stem, word]);
        }
        assert_eq!(folder.names(), [name]);
    }
}

#[test]
fn what_is_no_file_ends_with_status_1() {
    let folder = Folder::new();
    fs::create_dir(folder.path("folder.el")).unwrap();
    folder.fail("cc --graph folder.el", 1, &["folder.el"]);
    folder.fail("cc --graph missing.el", 1, &["missing.el"]);
    folder.fail("bfs --graph missing.bel", 1, &["missing.bel"]);
}

#[test]
fn a_source_that_is_no_vertex_ends_with_status_1() {
    let folder = Folder::with_graph();
    for source in ["7", "4294967296", "18446744073709551615"] {
        let line = format!(
            "bfs --graph g.el --source {source} --ssd model:ideal,media=m.img --json r.json"
        );
        folder.fail(&line, 1, &["g.el", source]);
    }
    assert_eq!(folder.names(), ["g.el"]);
}

#[test]
fn an_id_that_would_exhaust_memory_ends_with_status_1() {
    let available = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = available.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?
            .split_whitespace()
            .next()
    });
    // 2^32 vertices of 16 bytes, in half of what is there.
    let fits = kib
        .and_then(|kib| kib.parse::<u64>().ok())
        .is_none_or(|kib| kib >> 20 >= 128);
    if fits {
        return skip("this machine has memory for 2^32 vertices, or does not say");
    }
    let folder = Folder::new();
    folder.write("sparse.el", b"0 1\n4294967295 0\n");
    folder.fail("cc --graph sparse.el", 1, &["sparse.el", "memory"]);
}
