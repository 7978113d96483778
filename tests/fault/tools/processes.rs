//! The processes of a server of this machine, and the end of them all at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use call_budget::service::scratch_postgres::{Halt, ScratchPostgres};

use super::kept::within;

const PATIENCE: Duration = Duration::from_secs(20);

/// `kill -9` of the server. Returns when its sessions are gone too: the last of them could still grant something.
pub fn kill(server: &mut ScratchPostgres) {
    let processes = processes(server);
    server.halt(Halt::Kill).unwrap_or_else(|error| panic!("{error}"));
    within(PATIENCE, "all processes of the server are gone", || {
        processes.iter().all(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    });
}

/// The server's first process, and all that it has started.
pub fn processes(server: &ScratchPostgres) -> Vec<u32> {
    let data_dir = server.data_dir().expect("only the processes of a server on this machine are known");
    let file = fs::read_to_string(data_dir.join("postmaster.pid")).expect("it runs");
    let first: u32 = file.lines().next().and_then(|line| line.parse().ok()).expect("its process id");
    let started = parents().into_iter().filter(|(_, parent)| *parent == first).map(|(pid, _)| pid);
    [first].into_iter().chain(started).collect()
}

/// The parent of each process.
fn parents() -> BTreeMap<u32, u32> {
    let processes = fs::read_dir("/proc").expect("this system tells of its processes").flatten();
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect()
}
