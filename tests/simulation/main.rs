//! A deterministic simulation of a fleet: the product's own lanes, policy and scheduler, with a clock, a network, a store
//! and a vendor that are simulated. A seed decides everything that happens; the same seed gives the same run.
//!
//! `cargo test --test simulation` plays a bounded share; `scripts/simulate` the long form.

mod checks;
mod clock;
mod delivery;
mod events;
mod faults;
mod idle;
mod network;
mod options;
mod plan;
mod process;
mod report;
mod runs;
mod seed;
mod sends;
mod service;
mod time;
mod timers;
mod trace;
mod vendor;
mod world;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    let options = match Options::of(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("{why}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    let run = runs::run(&options);
    if report::print(&run, &options) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
