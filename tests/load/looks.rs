//! What a process takes of the machine, from /proc.

use std::fs;
use std::time::Duration;

use serde::Serialize;

use crate::notes::now_us;

/// A look at a process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Look {
    pub at_us: u64,
    pub resident_kib: u64,
    pub threads: u64,
    pub descriptors: u64,
    /// On a core, all its threads, since it began.
    pub cpu_us: u64,
}

pub const EVERY: Duration = Duration::from_secs(1);

/// `None` where the system does not tell.
pub fn look(pid: u32) -> Option<Look> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    Some(Look {
        at_us: now_us(),
        resident_kib: field("VmRSS:")?,
        threads: field("Threads:")?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
        cpu_us: cpu_us(pid)?,
    })
}

fn cpu_us(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let of = |thread: fs::DirEntry| {
        let schedule = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        schedule.split(' ').next()?.parse::<u64>().ok()
    };
    Some(threads.filter_map(of).sum::<u64>() / 1000)
}

/// How many processes wanted a core in the last minute, on the average.
pub fn machine_load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
