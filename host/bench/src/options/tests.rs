//! Tests of the command line: what is accepted, what is refused and in which words.

use super::*;
use proptest::prelude::*;

fn parse_line(line: &str) -> Result<Request, UsageError> {
    parse(std::iter::once("bench").chain(line.split_whitespace()))
}

fn options(line: &str) -> Options {
    match parse_line(line) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn defaults_are_those_documented() {
    let options = options("");
    assert_eq!(options.experiment, None);
    assert_eq!(options.ssd.to_string(), "model:p5800x,lba=512");
    assert_eq!(
        (options.ssds(), options.depth, options.line, options.seed),
        (1, 1024, 4096, 1)
    );
    assert_eq!((options.stripe(), options.block()), (4096, 512));
    assert_eq!(options.timeout, Duration::from_secs(5));
    assert_eq!(options.cache_lines(), None);
    assert_eq!(
        (options.cache_mode, options.layout),
        (CacheMode::Optimistic, Layout::Stripe)
    );
}

#[test]
fn every_option_is_read() {
    let bfs = options(
        "bfs --runner threads --threads 64 --ssd model:pm1735,media=/x/y.img,lba=4096 --ssds 3 --layout stripe \
         --stripe 64K --overwrite --queue hop --queues 4 --depth 2 --timeout 0.5 --line 65536 --cache-lines 7 \
         --cache-mode none --graph g.mtx --source 99999999999 --seed 18446744073709551615 --json o.json --plot o.svg",
    );
    assert_eq!(bfs.experiment, Some(Experiment::Bfs));
    assert_eq!(
        (bfs.ssds(), bfs.queues, bfs.depth, bfs.line),
        (3, Some(4), 2, 65536)
    );
    assert_eq!(
        (bfs.source, bfs.cache_lines()),
        (Some(99_999_999_999), Some(7))
    );
    let iops = options(
        "iops --runner cuda --gpu 1 --controller-sms 8 --ssd model:ideal,media=none --block 4Ki --ops 9 --in-flight 5 --span 1G",
    );
    assert_eq!(
        (iops.block(), iops.span, iops.gpu),
        (4096, Some(1 << 30), Some(1))
    );
    assert_eq!(options("--cache 1M --line 512").cache_lines(), Some(2048));
    assert_eq!(options("iops --ssd model:gp1,lba=4096").block(), 4096);
}

#[test]
fn help_and_version_are_shown() {
    for line in ["--help", "-h", "--version"] {
        assert!(matches!(parse_line(line), Ok(Request::Show(_))), "{line}");
    }
}

#[test]
fn a_wrong_value_is_one_sentence() {
    for (line, sentence) in [
        (
            "sort",
            "experiment sort: it must be one of iops, cache, rw, crowd, bfs, cc",
        ),
        ("bfs cc", "cc is not an option; --help lists them all"),
        (
            "--dpeth 4",
            "--dpeth is not an option; did you mean --depth?",
        ),
        ("-x", "-x is not an option; --help lists them all"),
        ("--depth", "--depth needs a value"),
        (
            "--depth 3",
            "--depth 3: it must be a power of two from 2 to 4096",
        ),
        (
            "--depth 1",
            "--depth 1: it must be a power of two from 2 to 4096",
        ),
        (
            "--depth 8192",
            "--depth 8192: it must be a power of two from 2 to 4096",
        ),
        (
            "--depth -2",
            "--depth -2: it must be a power of two from 2 to 4096",
        ),
        (
            "--depth two",
            "--depth two: it must be a power of two from 2 to 4096",
        ),
        (
            "--depth 2 --depth 4",
            "--depth is given twice; give it once",
        ),
        (
            "--queues 0",
            "--queues 0: it must be a whole number from 1 to 128",
        ),
        (
            "--ssds 64 --queues 65",
            "--queues 65: 64 SSDs have at most 4096 queue pairs in all",
        ),
        (
            "--threads 0",
            "--threads 0: it must be a whole number from 1 to 4194304",
        ),
        (
            "--threads 1.5",
            "--threads 1.5: it must be a whole number from 1 to 4194304",
        ),
        (
            "--ssds 0",
            "--ssds 0: it must be a whole number from 1 to 64",
        ),
        (
            "--gpu -1",
            "--gpu -1: it must be a whole number from 0 to 255",
        ),
        (
            "--controller-sms 0",
            "--controller-sms 0: it must be a whole number from 1 to 64",
        ),
        (
            "--line 1000",
            "--line 1000: it must be a power of two from 512 to 65536",
        ),
        (
            "--line 128K",
            "--line 128K: it must be a power of two from 512 to 65536",
        ),
        (
            "--line 512 --ssd model:gp1,lba=4096",
            "--line 512: it must be a multiple of the LBA size, 4096 bytes",
        ),
        (
            "iops --block 512 --ssd model:gp1,lba=4096",
            "--block 512: it must be a multiple of the LBA size, 4096 bytes",
        ),
        (
            "--stripe 6000",
            "--stripe 6000: it must be a multiple of the line, 4096 bytes",
        ),
        (
            "--stripe 0",
            "--stripe 0: it must be a number of bytes, such as 65536, 64K or 8G",
        ),
        (
            "--stripe 4096 --layout replicate",
            "--stripe 4096: it is for --layout stripe only",
        ),
        (
            "--layout raid",
            "--layout raid: it must be one of stripe, replicate",
        ),
        (
            "--cache 100",
            "--cache 100: it must hold a line, 4096 bytes",
        ),
        (
            "--cache 1024G --line 512",
            "--cache 1099511627776: it must hold at most 268435456 lines; use a larger --line",
        ),
        (
            "--cache lots",
            "--cache lots: it must be a number of bytes, such as 65536, 64K or 8G",
        ),
        (
            "--cache 1M --cache-lines 4",
            "--cache and --cache-lines say the same thing in two ways; give one",
        ),
        (
            "--cache-lines 0",
            "--cache-lines 0: it must be a whole number from 1 to 268435456",
        ),
        (
            "--cache-mode BaM",
            "--cache-mode BaM: it must be one of none, naive, bam, bam+reuse, optimistic",
        ),
        (
            "iops --cache-mode bam+reuse",
            "--cache-mode bam+reuse: it is for bfs, cc and rw only",
        ),
        (
            "bfs --cache-mode naive --threads 2000000",
            "--threads 2000000: cache modes that count lanes take at most 1048575",
        ),
        (
            "cache --span 3M",
            "--span 3145728: it must be a power of two from 64 to 64G",
        ),
        (
            "cache --cache-lines 7",
            "--cache-lines 7: it is for bfs, cc, rw and crowd only",
        ),
        (
            "--queue fifo",
            "--queue fifo: it must be one of hop, bam, lock",
        ),
        (
            "bfs --queue bam --depth 32",
            "--depth 32: --queue bam admits depth - 1 lanes to a queue, in whole warps of 32: the depth must be at least 64",
        ),
        (
            "iops --queue bam --depth 64 --queues 4 --in-flight 129",
            "--in-flight 129: --queue bam admits depth - 1 lanes to a queue, in whole warps of 32: --queues 4 of --depth 64 admit 128",
        ),
        (
            "--runner gpu",
            "--runner gpu: it must be one of threads, cuda",
        ),
        (
            "--runner threads --gpu 0",
            "--gpu 0: it is for --runner cuda only",
        ),
        (
            "--runner threads --controller-sms 2",
            "--controller-sms 2: it is for --runner cuda only",
        ),
        (
            "--timeout 0",
            "--timeout 0: it must be a number of seconds above 0, at most 86400",
        ),
        (
            "--seed -1",
            "--seed -1: it must be a whole number from 0 to 18446744073709551615",
        ),
        (
            "bfs --source -1",
            "--source -1: it must be a whole number from 0 to 18446744073709551615",
        ),
        ("cc --source 1", "--source 1: it is for bfs only"),
        (
            "iops --graph g.el",
            "--graph g.el: it is for bfs and cc only",
        ),
        (
            "bfs --ops 4",
            "--ops 4: it is for iops, cache, rw and crowd only",
        ),
        (
            "--fail-one-in 9",
            "--fail-one-in 9: it is for bfs, cc, rw and crowd only; name one of them",
        ),
        (
            "iops --fail-one-in 9",
            "--fail-one-in 9: it is for bfs, cc, rw and crowd only",
        ),
        (
            "rw --span 1000",
            "--span 1000: it must be a multiple of two words, 16 bytes",
        ),
        (
            "iops --span 1000",
            "--span 1000: it must be a multiple of the block, 512 bytes",
        ),
        (
            "iops --ops 0",
            "--ops 0: it must be a whole number from 1 to 1099511627776",
        ),
        (
            "--overwrite=yes",
            "--overwrite takes no value, and yes is one",
        ),
        (
            "--plot out.png",
            "--plot out.png: the file's name must end in .svg",
        ),
        (
            "--json out.svg --plot out.svg",
            "--plot out.svg: --json names the same file",
        ),
        (
            "--ssd file:/dev/null",
            "--ssd file:/dev/null: this build has no file SSDs yet; use model:PROFILE",
        ),
        (
            "--ssd file:a",
            "--ssd file:a: this build has no file SSDs yet; use model:PROFILE",
        ),
        (
            "--ssd host",
            "--ssd host: this build has no host SSDs yet; use model:PROFILE",
        ),
        (
            "bfs --ssd model:gp1,media=none",
            "--ssd model:gp1,media=none,lba=512: media=none keeps no data; it is for iops only",
        ),
        (
            "--runner threads --ssd model:gp1,media=hbm",
            "--ssd model:gp1,media=hbm,lba=512: media=hbm is not for --runner threads: host threads keep their media in ram or in a file",
        ),
        (
            "--runner cuda --ssd model:gp1,media=ram",
            "--ssd model:gp1,media=ram,lba=512: media=ram is not for --runner cuda: a GPU keeps its media in hbm, in host memory, in a file or not at all (none)",
        ),
    ] {
        let error = parse_line(line).map(|_| line).expect_err(line).to_string();
        assert_eq!(error, sentence, "{line}");
    }
}

#[test]
fn real_ssds_are_named_and_written_only_if_that_was_said() {
    let rw = options("rw --ssd vfio:S1,S2/7 --yes-destroy S1,S2");
    assert_eq!((rw.ssds(), rw.block()), (2, 4096));
    assert_eq!(rw.yes_destroy, ["S1", "S2"]);
    assert_eq!(options("iops --ssd vfio:S1").ssds(), 1);
    for (line, sentence) in [
        (
            "bfs --ssd vfio:S1",
            "--ssd vfio:S1: only iops does without writing; with --yes-destroy SERIAL all that is on \
             the SSD may be lost",
        ),
        (
            "--ssd vfio:S1",
            "--ssd vfio:S1: only iops does without writing; with --yes-destroy SERIAL all that is on \
             the SSD may be lost",
        ),
        (
            "iops --yes-destroy S1",
            "--yes-destroy S1: it is for --ssd vfio:… only",
        ),
        (
            "iops --ssd vfio:S1 --ssds 1",
            "--ssds 1: --ssd vfio:… names each SSD",
        ),
        (
            "bfs --ssd vfio:S1 --yes-destroy S1 --fail-one-in 9",
            "--fail-one-in 9: real SSDs do not fail on purpose",
        ),
        (
            "iops --ssd vfio:S1 --overwrite",
            "--ssd vfio:S1: --overwrite is for media files; --yes-destroy SERIAL is for real SSDs",
        ),
        (
            "iops --ssd vfio:S1 --runner cuda --doorbells direct",
            "--doorbells direct: a GPU cannot reach the doorbells of real SSDs yet; use proxy",
        ),
        (
            "iops --ssd vfio:S1 --runner cuda --controller-sms 2",
            "--controller-sms 2: it is for --ssd model:… only",
        ),
    ] {
        let error = parse_line(line).map(|_| line).expect_err(line).to_string();
        assert_eq!(error, sentence, "{line}");
    }
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_unicode_is_one_sentence() {
    use std::os::unix::ffi::OsStringExt;
    let error = parse([
        "bench".into(),
        "--depth".into(),
        OsString::from_vec(vec![0xff]),
    ])
    .unwrap_err();
    assert_eq!(error.to_string().lines().count(), 1);
}

proptest! {
    #[test]
    fn no_words_panic_and_errors_have_one_line(words in prop::collection::vec("(--(depth|line|ssd|cache|source|queues|json)=?)?\\PC{0,8}", 0..5)) {
        if let Err(error) = parse(std::iter::once("bench".to_owned()).chain(words)) {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }
}
