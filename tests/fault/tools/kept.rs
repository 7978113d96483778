//! A process that ends with whoever started it, even when that one is killed: a small shell holds it, and kills it when
//! its own input ends.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A running program. Dropping it is `kill -9`.
pub struct Kept {
    keeper: Child,
    pid: u32,
}

impl Kept {
    /// Starts `program` as the user `owner` (user and group), with its output added to the file `log`.
    pub fn start<A: AsRef<OsStr>>(program: &Path, arguments: &[A], owner: (u32, u32), log: &Path) -> Self {
        const KEEPER: &str = r#"log=$1; shift
            "$@" </dev/null >>"$log" 2>&1 & held=$!
            echo "$held"; read -r _; kill -s KILL "$held"; wait "$held""#;
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(log).arg(program).args(arguments);
        // A group of its own: Ctrl-C in a terminal is for us.
        command.uid(owner.0).gid(owner.1).process_group(0).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = command.spawn().unwrap_or_else(|error| panic!("sh could not be started: {error}"));
        let mut line = String::new();
        let told = BufReader::new(keeper.stdout.take().expect("stdout is piped")).read_line(&mut line);
        let pid = told.ok().and_then(|_| line.trim().parse().ok());
        let pid = pid.unwrap_or_else(|| panic!("the keeper of {} did not tell its process id", program.display()));
        Self { keeper, pid }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends the signal of that name (`STOP`, `CONT`, `TERM`, ...).
    pub fn signal(&self, name: &str) {
        signal(self.pid, name);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Sends the signal of that name to a process that we may send it to.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "process {pid} could not be sent {name}");
}

/// What a program such as psql printed, bare; an error tells what it said when it failed or that it took longer.
pub fn told(command: &mut Command, patience: Duration) -> Result<String, String> {
    let output = bounded(command, patience)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Runs a command that prints little, and kills it when it takes longer.
pub fn bounded(command: &mut Command, patience: Duration) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name} could not be started: {error}"))?;
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return child.wait_with_output().map_err(|error| format!("{name}: {error}")),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{name} took longer than {patience:?}"));
            }
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
}

/// Waits until `condition` holds, for `patience` at most.
pub fn within(patience: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(patience, condition), "after {patience:?} still not: {what}");
}

/// Whether `condition` holds before `patience` is over.
pub fn holds_within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}
