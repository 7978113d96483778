//! Chaos on the real thing: a fleet of processes under one budget, PostgreSQL with its standby, and faults one after the other,
//! judged at the vendor.
//!
//! `scripts/chaos --minutes 10` is the run that counts; `cargo test --test chaos` the short form for CI. `schedule` draws
//! what comes when, `faults` does it, `run` plays it all, `judge` says what it is worth, and `self_test` that the judge can
//! say no.

#[path = "../support/mod.rs"]
mod support;
#[path = "../fault/tools/mod.rs"]
mod tools;

mod commits;
mod faults;
mod fleet;
mod judge;
mod member;
mod options;
#[allow(dead_code, reason = "members of the demo's fleet are not used here")]
#[path = "../fleet/processes.rs"]
mod processes;
mod report;
mod run;
mod schedule;
mod self_test;
mod site;
mod steps;
mod windows;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use judge::Bounds;
use options::Options;
use report::Report;
use run::Plan;
use schedule::Kind;
use tools::signals::told_to_end;

const USAGE: u8 = 2;
const INCONCLUSIVE: u8 = 4;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let options = Options::parse();
    if options.member {
        return member::main();
    }
    if let Err(missed) = self_test::run() {
        eprintln!("the judge does not see what it must: {missed}");
        return ExitCode::FAILURE;
    }
    if !options.is_meant() {
        println!("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s");
        return ExitCode::SUCCESS;
    }
    if options.self_test {
        println!("the judge sees each kind of broken evidence");
        return ExitCode::SUCCESS;
    }
    let asked_for = match kinds(&options) {
        Ok(kinds) => kinds,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(USAGE);
        }
    };
    let (kinds, not_tried) = available(&asked_for);
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("seed {seed}, {:.0?}", options.length());
    let plan = Plan { seed, length: options.length(), kinds, plant: options.plant.clone() };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let ended = runtime.block_on(async {
        tokio::select! {
            evidence = run::run(&plan) => Some(evidence),
            () = told_to_end() => None,
        }
    });
    // What blocks in between, such as the start of a server, is waited for.
    runtime.shutdown_timeout(Duration::from_secs(60));
    match ended {
        None => ExitCode::from(INTERRUPTED),
        Some(Err(why)) => {
            if options.json {
                println!(
                    "{}",
                    serde_json::json!({ "seed": seed, "pass": false, "inconclusive": false, "because": [why] })
                );
            } else {
                println!("FAIL: {why}");
            }
            ExitCode::FAILURE
        }
        Some(Ok(evidence)) => {
            let bounds = bounds(&options, asked_for);
            let judgement = judge::judge(&evidence, &bounds);
            let report = Report::of(seed, &evidence, bounds, judgement, not_tried);
            conclude(&options, &report)
        }
    }
}

/// All kinds, unless some were named.
fn kinds(options: &Options) -> Result<Vec<Kind>, String> {
    if let Some(unknown) = options.only.iter().find(|name| Kind::ALL.iter().all(|kind| kind.name() != **name)) {
        return Err(format!("there is no kind \"{unknown}\"; there are {}", Kind::ALL.map(Kind::name).join(", ")));
    }
    let named = |kind: &Kind| options.only.is_empty() || options.only.contains(&kind.name());
    Ok(Kind::ALL.into_iter().filter(named).collect())
}

/// What of these can be tried here, and what cannot: a sentence each.
fn available(asked_for: &[Kind]) -> (Vec<Kind>, Vec<String>) {
    let (mut kinds, mut not_tried) = (Vec::new(), Vec::new());
    for kind in asked_for {
        match faults::available(*kind) {
            Ok(()) => kinds.push(*kind),
            Err(why) => not_tried.push(format!("{}: {why}", kind.name())),
        }
    }
    if !std::path::Path::new("/proc/self/stat").exists() {
        not_tried.push("whether anything is left running: this system does not tell of its processes".into());
    }
    (kinds, not_tried)
}

/// The short form runs where other things run too: slots are wasted there, and processes wait for a core. The limit has no
/// margin anywhere. The form that counts is 10 minutes or longer: a kind that cannot be tried on this machine fails it.
fn bounds(options: &Options, asked_for: Vec<Kind>) -> Bounds {
    const COUNTS_FROM: Duration = Duration::from_secs(600);
    const A_FAULT_EACH: Duration = Duration::from_secs(15);
    let length = options.length();
    let counts = length >= COUNTS_FROM;
    let (least_use, recovery) = if options.is_short() { (0.75, 3000) } else { (0.97, 1300) };
    Bounds {
        least_use,
        recovery: Duration::from_millis(recovery),
        least_faults: (length.as_secs() / A_FAULT_EACH.as_secs()) as usize,
        least_kinds: if counts { 8 } else { 1 },
        kinds: if counts { asked_for } else { Vec::new() },
    }
}

/// Says how it ended, in the words that test programs use too.
fn conclude(options: &Options, report: &Report) -> ExitCode {
    if options.json {
        println!("{}", serde_json::to_string(report).expect("plain data"));
    } else {
        println!("{}", report.for_people());
    }
    let mut words: Vec<String> = report.not_tried.iter().map(|what| format!("NOT TRIED: {what}")).collect();
    let (word, passed, code) = match (report.inconclusive, report.pass) {
        (true, _) => ("inconclusive", 0, ExitCode::from(INCONCLUSIVE)),
        (false, true) => ("ok", 1, ExitCode::SUCCESS),
        (false, false) => ("FAILED", 0, ExitCode::FAILURE),
    };
    let ignored = report.not_tried.len();
    words.push(format!(
        "test result: {word}. {passed} passed; {} failed; {ignored} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        1 - passed,
        report.seconds
    ));
    if options.json {
        eprintln!("{}", words.join("\n"));
    } else {
        println!("{}", words.join("\n"));
    }
    code
}
