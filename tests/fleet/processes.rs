//! Members of a fleet as the demo starts them, and whether a process is still there.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use call_budget::cli::demo::plan::{BUDGET, Task};
use call_budget::cli::demo::worker::{Orders, Pacing, Start};
use call_budget::policy::Instant;

/// One process, told to call under the budget. It ends with its stdin.
pub struct Member {
    pub child: Child,
    stdin: Option<ChildStdin>,
}

impl Member {
    pub fn start(vendor: &str, database_url: &str, tasks: Vec<Task>, at: Instant) -> Member {
        let mut child = Command::new(env!("CARGO_BIN_EXE_call-budget"))
            .arg("demo-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let pacing = Pacing::Budget { database_url: database_url.into() };
        let orders = Orders { vendor: vendor.into(), budget: BUDGET.into(), pacing, tasks };
        let start = Start { at_us: at.since_boot().as_micros() as u64 };
        for line in [serde_json::to_string(&orders).unwrap(), serde_json::to_string(&start).unwrap()] {
            writeln!(stdin, "{line}").unwrap();
        }
        Member { child, stdin: Some(stdin) }
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn stop(mut self) {
        self.stdin = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The children of a process and their children.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for entry in std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(entry.path().join("children")).unwrap_or_default();
            let children: Vec<u32> = children.split_whitespace().map(|child| child.parse().unwrap()).collect();
            parents.extend(&children);
            found.extend(children);
        }
    }
    found
}

/// Waits until none of the processes is there.
pub async fn until_gone(pids: &[u32]) {
    let alive = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie has ended; whoever inherited it has not looked yet.
        !stat.is_empty() && !stat.contains(") Z ")
    };
    let gone = async {
        while pids.iter().any(alive) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let left = || pids.iter().filter(|pid| alive(pid)).collect::<Vec<_>>();
    assert!(tokio::time::timeout(Duration::from_secs(20), gone).await.is_ok(), "still there: {:?}", left());
}
