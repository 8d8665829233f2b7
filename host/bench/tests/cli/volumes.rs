//! Experiments on volumes: the same answers as from files.

use warpstore_device::Layout;
use warpstore_volume::{
    ArrayShape, ElementType, FileMember, Member, Members, NewVolume, Plan, UNIT,
};
use zerocopy::IntoBytes;

use crate::{Folder, email_graph};

/// Writes the e-mail graph to media files of the folder, as `warpstore-flash` does.
fn flash(folder: &Folder, files: &[&str], layout: Layout, stripe: u64) {
    let budget = warpstore_graph::Budget::of_machine();
    let graph = warpstore_graph::open(&email_graph(), budget).unwrap();
    let shape = |name: &str, element, len: usize| ArrayShape {
        name: name.to_owned(),
        element,
        len: len as u64,
    };
    let shapes = [
        shape("mail.offsets", ElementType::U64, graph.offsets().len()),
        shape("mail.edges", ElementType::U32, graph.edges().len()),
    ];
    let new = NewVolume::new(layout, stripe, &shapes).unwrap();
    let bytes = new.member_bytes(files.len() as u32).unwrap();
    let member = |name: &&str| -> Box<dyn Member> {
        Box::new(FileMember::create(&folder.path(name), bytes, false).unwrap())
    };
    let mut members = Members::new(files.iter().map(member).collect()).unwrap();
    let plan = Plan::make(&new, &mut members, |_| false).unwrap();
    let sources: Vec<Box<dyn std::io::Read>> = vec![
        Box::new(graph.offsets().as_bytes()),
        Box::new(graph.edges().as_bytes()),
    ];
    plan.write(&mut members, sources, UNIT, &mut |_, _| {})
        .unwrap();
}

#[test]
fn searches_of_a_volume_equal_those_of_the_file() {
    let folder = Folder::new();
    let file = email_graph().display().to_string();
    let direct = ["bfs", "cc"]
        .map(|experiment| folder.result(&format!("{experiment} --graph {file} --ssd model:ideal")));
    flash(&folder, &["a", "b", "c"], Layout::Stripe, 2 * UNIT);
    flash(&folder, &["d", "e"], Layout::Replicate, UNIT);
    flash(&folder, &["f"], Layout::Stripe, UNIT);
    for (members, options) in [
        ("file:a,file:b,file:c", "--line 512"),
        (
            "file:c,file:a,file:b",
            "--line 64K --ssd model:ideal,lba=4096",
        ),
        ("file:d,file:e", ""),
        ("file:f", "--cache-mode none --line 4096"),
    ] {
        for (experiment, direct) in ["bfs", "cc"].into_iter().zip(&direct) {
            let ssd = if options.contains("--ssd") {
                ""
            } else {
                "--ssd model:ideal"
            };
            let line = format!("{experiment} --volume {members} --array mail {options} {ssd}");
            let found = folder.result(&line);
            for field in ["reached", "depth", "distance_sum", "components", "largest"] {
                assert_eq!(found[field], direct[field], "{line}: {field}");
            }
            assert_eq!(found["graph"], format!("mail of {members}"));
        }
    }
}

#[test]
fn what_is_no_volume_or_says_it_twice_is_refused() {
    let folder = Folder::with_graph();
    flash(&folder, &["a", "b"], Layout::Stripe, UNIT);
    for (line, status, words) in [
        (
            "bfs --volume file:a --array mail",
            1,
            &["has 2 members, and 1 were given"][..],
        ),
        (
            "bfs --volume file:a,file:b --array post",
            1,
            &["no array \"post.offsets\"", "mail.edges"],
        ),
        ("bfs --volume file:a,file:b", 2, &["--array is missing"]),
        ("bfs --array mail", 2, &["--volume is missing"]),
        (
            "bfs --volume a --array mail",
            2,
            &["--volume a: 'a' is no member"],
        ),
        (
            "bfs --volume file:a --array m --graph g.el",
            2,
            &["--graph", "--volume"],
        ),
        (
            "bfs --volume file:a --array m --ssds 2",
            2,
            &["--ssds", "--volume"],
        ),
        (
            "rw --volume file:a --array m",
            2,
            &["--volume file:a: it is for bfs and cc only"],
        ),
        (
            "--volume file:a --array m",
            2,
            &["--volume file:a: it is for bfs and cc only"],
        ),
        (
            "cc --volume file:a --array m --ssd model:ideal,media=x",
            2,
            &["--volume names the SSDs"],
        ),
    ] {
        folder.fail(line, status, words);
    }
}

/// An experiment with media of its own would write over a volume.
#[test]
fn a_member_is_no_medium_for_other_data() {
    let folder = Folder::with_graph();
    flash(&folder, &["a"], Layout::Stripe, UNIT);
    let before = std::fs::read(folder.path("a")).unwrap();
    let line = "cc --graph g.el --ssd model:ideal,media=a";
    for line in [
        line,
        "cc --graph g.el --ssd process:ideal,media=a",
        "serve-ssds --socket s --bytes 64K --media a",
    ] {
        let ended = folder.run(line);
        assert_eq!(ended.status, Some(1), "{line}: {}", ended.stderr);
        for words in ["media file a is a member of a volume", "--overwrite"] {
            assert!(ended.stderr.contains(words), "{line}: {}", ended.stderr);
        }
        let after = std::fs::read(folder.path("a")).unwrap();
        assert!(after == before, "{line} wrote over the volume");
    }
    folder.succeed(&format!("{line} --overwrite"));
}
