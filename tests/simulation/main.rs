//! A deterministic simulation of a fleet: the product's own lanes, policy and scheduler, with a clock, a network, a store
//! and a vendor that are simulated. A seed decides everything that happens; the same seed gives the same run.
//!
//! `cargo test --test simulation` plays a bounded share; `scripts/simulate` the long form. What the checks are worth,
//! `scripts/planted-bugs` shows: it plants the bugs of `tests/planted/simulation.patch` one by one, and each must be caught.
//!
//! The product's: `CallBudget` with its lanes, keeper, permits and policy, and the scheduler that `tests/contract` holds to
//! the SQL call by call. Simulated: clocks that drift, step and are slewed; timers that are late; both legs of each store
//! call; servers that crash, forget, restart and are followed by a standby; the vendor's door. Not simulated: names,
//! sockets, TLS, logins and the pool, which decide nothing (the fault suite tries them for real), and surfaces.
//!
//! Two residuals are stated, and their calls are counted apart: a process that was stopped between its check and the wire,
//! and a call granted after a step forward of the store's clock to a caller that could not see the step, since it had no
//! answer of the last minute to compare with or the step was smaller than what was uncertain in the two. Nothing else is
//! excused: a window over the limit without them fails the run.

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

use options::{Asked, Options};

fn main() -> ExitCode {
    let options = match Options::of(std::env::args().skip(1)) {
        Ok(Asked::Play(options)) => options,
        Ok(Asked::Other(name)) => {
            println!("0 seeds played: the simulation has no test of a name like \"{name}\"");
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Help) => {
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
