//! Judging, with a program in place of warpstore-bench.

use super::*;

const GOOD: &str = r#"{"verified": true, "modelled": ["an SSD"], "results": [{"iops": 1000.0}]}"#;

/// The test, with a program that ends with a status and leaves a report.
fn tried(
    ssds: &[&str],
    ended: impl Fn(&str) -> (Option<i32>, Option<&'static str>),
    fio: impl Fn() -> Result<Comparison>,
) -> Acceptance {
    tried_for(1, ssds, ended, fio)
}

/// The same for so many rounds.
fn tried_for(
    rounds: u32,
    ssds: &[&str],
    ended: impl Fn(&str) -> (Option<i32>, Option<&'static str>),
    fio: impl Fn() -> Result<Comparison>,
) -> Acceptance {
    let folder = tempfile::tempdir().unwrap();
    let bench = |words: &[OsString]| {
        let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let (status, report) = ended(&line.join(" "));
        if let Some(report) = report {
            fs::write(words.last().unwrap(), report).unwrap();
        }
        Ok(status)
    };
    let args = Args {
        ssd: ssds.iter().map(|&ssd| ssd.to_owned()).collect(),
        yes_destroy: (!ssds.is_empty()).then(|| "S1,S2".into()),
        runner: (!ssds.is_empty()).then(|| "threads".into()),
        minutes: None,
        block_device: None,
        json: None,
    };
    let tools = Tools {
        bench: &bench,
        compare: &fio,
        another: &|round| round <= rounds,
    };
    accept(&args, folder.path(), &tools)
}

fn skipped() -> Result<Comparison> {
    Ok(Comparison::Skipped("no fio".into()))
}

fn verdicts(acceptance: &Acceptance) -> Vec<Verdict> {
    let checks = acceptance.checks.iter();
    checks.map(|judged| judged.verdict).collect()
}

#[test]
fn an_ssd_that_does_all_is_accepted_and_what_was_skipped_is_said() {
    let acceptance = tried(&[], |_| (Some(0), Some(GOOD)), skipped);
    assert!(acceptance.accepted);
    let mut expected = vec![Verdict::Passed; CHECKS.len()];
    expected.push(Verdict::Skipped);
    assert_eq!(verdicts(&acceptance), expected);
    let text = acceptance.to_string();
    for words in ["model:p5800x", "no fio"] {
        assert!(text.contains(words), "{words} in:\n{text}");
    }
    assert_eq!(text.matches("modelled: an SSD").count(), 1, "{text}");
    let json = serde_json::to_value(&acceptance).unwrap();
    assert_eq!(
        (&json["schema"], &json["accepted"]),
        (&1.into(), &true.into())
    );
    assert_eq!(json["checks"][0]["verdict"], "passed");
    assert_eq!(
        json["checks"][0]["command"],
        "cargo xtask bench rw --seed 1 --ssd model:p5800x"
    );
}

#[test]
fn every_ssd_is_tested_and_one_failure_is_enough() {
    let wrong = |line: &str| {
        let bad = line.contains("vfio:S2") && line.contains("65536");
        (Some(if bad { 3 } else { 0 }), Some(GOOD))
    };
    let acceptance = tried(&["vfio:S1", "vfio:S2"], wrong, skipped);
    assert!(!acceptance.accepted);
    let passed_on = "bfs --seed 3 --ssd vfio:S1 --yes-destroy S1,S2 --runner threads";
    assert!(acceptance.checks[2].command.ends_with(passed_on));
    let failed = acceptance.checks.iter();
    let failed: Vec<_> = failed
        .filter(|judged| judged.verdict == Verdict::Failed)
        .map(|judged| (judged.ssd.as_str(), judged.detail.as_str()))
        .collect();
    assert_eq!(failed, [("vfio:S2", "the data is wrong"); 2]);
}

#[test]
fn no_report_an_old_one_and_one_without_verification_are_failures() {
    let unverified = r#"{"verified": false, "results": []}"#;
    for ended in [
        (Some(0), None),
        (Some(0), Some("no JSON")),
        (Some(0), Some(unverified)),
        (Some(1), Some(GOOD)),
        (None, None),
    ] {
        let acceptance = tried(
            &["host"],
            |line| {
                if line.starts_with("rw --seed 1") {
                    (Some(0), Some(GOOD))
                } else {
                    ended
                }
            },
            skipped,
        );
        assert!(!acceptance.accepted, "{ended:?}");
        assert_eq!(
            verdicts(&acceptance)[..2],
            [Verdict::Passed, Verdict::Failed]
        );
    }
}

#[test]
fn rounds_go_on_over_other_data_until_one_fails() {
    let lines = std::cell::RefCell::new(Vec::new());
    let note = |line: &str| {
        lines.borrow_mut().push(line.to_owned());
        (Some(0), Some(GOOD))
    };
    let acceptance = tried_for(3, &["host"], note, skipped);
    assert!(acceptance.accepted);
    let lines = lines.into_inner();
    assert_eq!(lines.len(), 3 * CHECKS.len());
    let seed = |line: &String| {
        line.split("--seed ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .map(str::to_owned)
    };
    assert_eq!(
        lines.iter().map(seed).collect::<BTreeSet<_>>().len(),
        lines.len()
    );
    let wide = |line: &&String| line.contains("--span 1G");
    assert_eq!(lines.iter().filter(wide).count(), 2 * 4);
    assert!(acceptance.to_string().contains("(3 rounds)"));

    // Seed 9 is the fourth check of the second round.
    let ended = |line: &str| {
        (
            Some(if line.contains("--seed 9 ") { 3 } else { 0 }),
            Some(GOOD),
        )
    };
    let acceptance = tried_for(5, &["host"], ended, skipped);
    assert!(!acceptance.accepted);
    let failed = &acceptance.checks[3];
    assert_eq!((failed.verdict, failed.rounds), (Verdict::Failed, 2));
    assert!(
        failed.command.contains("--span 1G --seed 9"),
        "{}",
        failed.command
    );
    assert_eq!(acceptance.checks[0].rounds, 2);
}

#[test]
fn the_rate_is_compared_with_fios() {
    let with = |reads| {
        let all = tried(
            &[],
            |_| (Some(0), Some(GOOD)),
            move || Ok(Comparison::Reads(reads)),
        );
        *verdicts(&all).last().unwrap()
    };
    assert_eq!(with(1100.0), Verdict::Passed);
    assert_eq!(with(1200.0), Verdict::Failed);
    let broken = tried(&[], |_| (Some(0), Some(GOOD)), || bail!("fio died"));
    assert!(!broken.accepted);
}
