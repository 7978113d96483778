//! The parts of the fault suite that make faults, each tried on its own: a fault that is not what it says it is would let
//! every row of the suite pass.

use std::io::Write as _;

#[path = "../fault/tools/mod.rs"]
mod tools;

mod certificates;
mod disk_full;
mod door;
mod faketime;
mod judge;
mod kept;
mod namespace;
mod pgbouncer;
mod proxy;
mod scripted_dns;
mod scripted_postgres;
mod standby;
mod tls_server;

/// Says, past the capture of passing tests, what this machine does not let us try: `scripts/test` shows it.
fn not_tried(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT TRIED: {what}: {why}");
}
