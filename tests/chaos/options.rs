//! The command line: `scripts/chaos OPTIONS`, or `cargo test --test chaos -- OPTIONS`.

use std::time::Duration;

use clap::Parser;

/// Faults of sixteen kinds, one after the other, on a real fleet with a real PostgreSQL and its standby; judged at the vendor.
///
/// Without options: the short form for CI, 60 s with as many kinds as fit, chosen by the seed. Other things may run beside it
/// there, and whoever waits for a core loses slots: 75 % of the slots outside faults are enough, and recovery may take 3 s.
/// Else it is 97 % and 1.3 s. The limit has no margin in either.
///
/// What the JSON says:
///   sends, limit, worst_window: arrivals at the vendor, what it counts in a window, and the most in any closed one.
///   over_limit_windows: closed windows over the limit, once the two stated residuals are excused: arrivals past their send
///     window of a process that stood still between its last look at the clock and the wire (SIGSTOP), and after a forward
///     step of the store's clock at most lookahead / interval + 1 calls too many in windows that touch it, each the call of a
///     process that had made none in the 60 s before.
///   over_limit_windows_with_residuals: all of them.
///   windows: the same arrivals, nothing excused, in sliding windows, in fixed ones from whole seconds and from the first
///     call, and in ones that a call opens.
///   late: arrivals past their send window and the jitter; each must belong to a process that was stopped.
///   lost, lapsed: calls whose answer never came, permits that were not used in time, as the processes count.
///   use_outside_faults: sends / slots offered, from each fault's recovery to the next fault.
///   books: per class, granted in the store = permits + dropped, give or take lost, what killed processes may have had since
///     their last word, and commits that the store may have forgotten.
///   recovery_ms: from healing to the first arrival at the vendor (of the process concerned, where it is one), the worst
///     of each kind.
///   violations: each of those windows, and each late arrival that no stop explains.
///   bounds: what was asked of the run: use, recovery, faults and kinds played.
///   fault_list: each fault as it was. `told`, where it took over 1 s to recover: what the processes said of the store.
///   inconclusive: there are violations, each was while the vendor itself stood still, and nothing else stands against the
///     run: neither pass nor fail.
///
/// Exit codes: 0 pass, 1 fail, 2 usage, 4 inconclusive, 130 interrupted.
#[derive(Clone, Debug, Parser)]
#[command(name = "chaos", no_binary_name = false, verbatim_doc_comment)]
pub struct Options {
    /// How long: 1 to 600. A fault in 15 s is due; from 10 on every kind has to happen.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub minutes: Option<u64>,
    /// The report as one JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    /// The faults and what they draw. Default: by chance; it is printed.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Shows the judge broken evidence of each kind, and does nothing else. Every run does this first.
    #[arg(long)]
    pub self_test: bool,
    /// An SQL statement that is carried out behind the fleet's back once it runs: a bug planted by hand, which must turn the
    /// run red.
    #[arg(long, value_name = "SQL", hide = true)]
    pub plant: Option<String>,
    /// Only these kinds of faults.
    #[arg(long, value_name = "KIND", hide = true)]
    pub only: Vec<String>,
    /// What `cargo test -- --nocapture --test-threads N` says to all test binaries: nothing is captured here.
    #[arg(long, hide = true, alias = "no-capture")]
    pub nocapture: bool,
    #[arg(long, hide = true)]
    pub test_threads: Option<u32>,
    #[arg(long, short, hide = true)]
    pub quiet: bool,
    /// What `cargo test NAME` says to all test binaries: this is one test, and its name is `chaos`.
    #[arg(value_name = "NAME", hide = true, conflicts_with = "minutes")]
    pub names: Vec<String>,
    /// A process of the fleet.
    #[arg(long, hide = true)]
    pub member: bool,
}

impl Options {
    /// How long the fleet runs.
    pub fn length(&self) -> Duration {
        self.minutes.map_or(SHORT, |minutes| Duration::from_secs(60 * minutes))
    }

    /// Whether the names that were given, if any, are parts of this one's.
    pub fn is_meant(&self) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| "chaos".contains(name.as_str()))
    }

    /// The form for CI, where other things run beside it.
    pub fn is_short(&self) -> bool {
        self.minutes.is_none()
    }
}

/// With what surrounds it about 70 s.
const SHORT: Duration = Duration::from_secs(60);
