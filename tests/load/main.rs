//! The load test of `call-budget serve`: 500 callers over HTTP at 1,000 slots a second, the library beside them in the same
//! run, and one of two services killed under load.
//!
//! `scripts/load --minutes 10` is the run that counts; `cargo test --test load` the short form for CI. `run` plays it,
//! `callers` are processes of their own, `judge` says what it is worth, and `self_test` that the judge can say no.

mod callers;
mod ground;
mod judge;
#[allow(dead_code, reason = "other suites use more of it")]
#[path = "../fault/tools/kept.rs"]
mod kept;
mod killed;
mod looks;
mod memory;
mod notes;
mod options;
mod report;
mod run;
mod self_test;
#[path = "../fault/tools/signals.rs"]
mod signals;
#[allow(dead_code, reason = "chaos counts windows of every kind")]
#[path = "../chaos/windows.rs"]
mod windows;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use judge::Bounds;
use options::Options;
use report::Report;
use run::Plan;
use signals::told_to_end;

const INTERRUPTED: u8 = 130;
/// A run of this length tells growth from warming up.
const JUDGES_GROWTH_FROM: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let options = Options::parse();
    if options.callers {
        return callers::main();
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
    let plan = Plan { length: options.length() };
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
                println!("{}", serde_json::json!({ "pass": false, "because": [why] }));
            } else {
                println!("FAIL: {why}");
            }
            ExitCode::FAILURE
        }
        Some(Ok(evidence)) => {
            let bounds = bounds(&options);
            let judgement = judge::judge(&evidence, &bounds);
            conclude(&options, &Report::of(&evidence, bounds, judgement))
        }
    }
}

/// The short form runs where other things run too, on what was built for tests: who waits for a core is late. The limit and
/// refusals have no margin anywhere.
fn bounds(options: &Options) -> Bounds {
    let strict = Bounds {
        most_added_p50_ms: 5.0,
        most_added_p99_ms: 5.0,
        most_added_free_p99_ms: 5.0,
        least_use: 0.97,
        most_late_share: 0.001,
        most_growth_mib: (options.length() >= JUDGES_GROWTH_FROM).then_some(1.0),
        most_resident_mib: 128.0,
        most_pause_ms: 1000.0,
        most_carry_on_ms: 3000.0,
        most_slots_lost: 100,
    };
    if options.is_short() {
        Bounds {
            most_added_p50_ms: 20.0,
            most_added_p99_ms: 50.0,
            // Of some 200 acquires: the third slowest, which is the disk's.
            most_added_free_p99_ms: 400.0,
            least_use: 0.5,
            most_late_share: 0.1,
            most_pause_ms: 3000.0,
            most_carry_on_ms: 6500.0,
            most_slots_lost: 1500,
            ..strict
        }
    } else {
        strict
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
    let (word, passed) = if report.pass { ("ok", 1) } else { ("FAILED", 0) };
    words.push(format!(
        "test result: {word}. {passed} passed; {} failed; {} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        1 - passed,
        report.not_tried.len(),
        report.seconds
    ));
    if options.json {
        eprintln!("{}", words.join("\n"));
    } else {
        println!("{}", words.join("\n"));
    }
    if report.pass { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
