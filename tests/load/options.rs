//! The command line: `scripts/load OPTIONS`, or `cargo test --test load -- OPTIONS`.

use std::time::Duration;

use clap::Parser;

/// 500 callers over HTTP on one `call-budget serve`, at 1,000 slots a second; beside them 500 tasks that use the library
/// itself, under a budget of the same rate on the same server. Then two services, one of which is killed under load.
///
/// Without options: the short form for CI, 12 s on what was built for tests, while other things run. Its bounds of time, of
/// use and of memory are wide; the limit and refusals have no margin in either form.
///
/// What is measured:
///   gone: how much of the send window is over when the caller has its permit in hand, by what the caller itself can know.
///     By the library: the window less what is left until `closes_at`. Over HTTP: the window less what is left until t_req +
///     held_ms + remaining_ms, on the caller's clock, when the answer is read and parsed. So it holds the wake-up after the
///     slot, the round trip to the store that both have, and all of HTTP: the request's way in, which the contract counts
///     against the caller, and the answer's way back. Late answers are in it.
///   added: gone over HTTP less gone by the library, percentile by percentile. `added_over_median`: p99 over HTTP less the
///     library's median, which no noise of the library's own makes smaller.
///   free: one caller more on each side, 25 times a second, under a budget where there is always a slot: what an acquire takes
///     from asking to having it, while the load is on. added_free is the difference.
///   timer_late: how late a plain timer wakes in the process of the callers: the machine's own noise, in both figures.
///   late: the window had closed when the answer was read: the caller does not send, the slot is wasted. The library notices
///     by itself and asks again, at the place it had.
///   use: sends / slots offered, from the end of the ramp-up to the end.
///   refusals: by code. Due is a WAIT_EXCEEDED whose slot would have come only after max_wait, and an UNCERTAIN when
///     max_wait was over while the store was asked; 20 callers a side have little patience. Everything else is not due.
///   memory: resident memory, descriptors and threads of the service, each second. Growth is judged from 5 minutes on: the
///     slope of a line through all samples after the warm-up, and the last minute over the first one after the warm-up.
///   killed: callers spread over two services, each with the other to turn to. The survivor's own callers: refusals, broken
///     connections, longest pause between two sends of them all. The dead one's: until the last of them has a slot again.
///     slots_lost: unused in the 3 s after the kill, less what was unused in the 3 s before it, which is the machine's doing.
///     At stake are the slots of one lookahead and one send window, which it holds, and as many that others leave to it until
///     its appointment is over.
///
/// Exit codes: 0 pass, 1 fail, 2 usage, 130 interrupted.
#[derive(Clone, Debug, Parser)]
#[command(name = "load", no_binary_name = false, verbatim_doc_comment)]
pub struct Options {
    /// How long the load lasts: 10 to 3600.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=3600))]
    pub seconds: Option<u64>,
    /// The same in minutes: 1 to 60. From 5 on memory is judged.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub minutes: Option<u64>,
    /// The report as one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// Shows the judge broken evidence of each kind, and does nothing else. Every run does this first.
    #[arg(long)]
    pub self_test: bool,
    /// What `cargo test -- --nocapture --test-threads N` says to all test binaries: nothing is captured here.
    #[arg(long, hide = true, alias = "no-capture")]
    pub nocapture: bool,
    #[arg(long, hide = true)]
    pub test_threads: Option<u32>,
    #[arg(long, short, hide = true)]
    pub quiet: bool,
    /// What `cargo test NAME` says to all test binaries: this is one test, and its name is `load`.
    #[arg(value_name = "NAME", hide = true, conflicts_with_all = ["seconds", "minutes"])]
    pub names: Vec<String>,
    /// A process of callers.
    #[arg(long, hide = true)]
    pub callers: bool,
}

impl Options {
    /// How long the load lasts, the ramp-up included.
    pub fn length(&self) -> Duration {
        let asked_for = self.seconds.or(self.minutes.map(|minutes| 60 * minutes));
        asked_for.map_or(SHORT, Duration::from_secs)
    }

    /// Whether the names that were given, if any, are parts of this one's.
    pub fn is_meant(&self) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| "load".contains(name.as_str()))
    }

    /// The form for CI, where other things run beside it.
    pub fn is_short(&self) -> bool {
        self.seconds.is_none() && self.minutes.is_none()
    }
}

/// With what surrounds it about 35 s.
const SHORT: Duration = Duration::from_secs(12);
