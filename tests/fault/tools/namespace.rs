//! Lost packets, in a network namespace of our own: a child process sees nothing but its own loopback, on which packets
//! can be dropped without a word. Outside nothing changes, and all of it is gone with the child.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::kept::bounded;

/// Why no namespace can be made here, if so.
pub fn available() -> Result<(), String> {
    let probe: [&str; 0] = [];
    for program in ["unshare", "ip", "nft"] {
        if find(program).is_none() {
            return Err(format!("no {program} found here: install util-linux, iproute2 and nftables"));
        }
    }
    let mut command = enter("nft list ruleset", Path::new("true"), &probe);
    let output = bounded(&mut command, Duration::from_secs(10))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(format!("no network namespace with packet filter can be made (this needs root): {words}"))
}

/// The command that runs `program` in a new namespace whose loopback is up and is all there is. It is the process that
/// is started itself, not a child of it: a signal to it reaches the program.
pub fn command<A: AsRef<OsStr>>(program: &Path, arguments: &[A]) -> Command {
    enter(":", program, arguments)
}

/// The words before a program and its arguments that do the same as [`command`], for whoever starts it in another way.
pub const WORDS: &[&str] = &[
    "sh",
    "-c",
    r#"PATH=$PATH:/usr/sbin:/sbin CALL_BUDGET_FAULT_OUTER_NAMESPACE=$(readlink /proc/self/ns/net) \
       exec unshare --net -- sh -c 'ip link set lo up && exec "$0" "$@"' "$0" "$@""#,
];

/// What happens to packets, for a process that was started by [`command`] or [`WORDS`]. Dropping it lifts everything.
pub struct Firewall(());

/// Named so that nobody takes it for a table of his own.
const TABLE: &str = "call_budget_fault";
/// Tells a process inside which namespace is the outer one.
const OUTER: &str = "CALL_BUDGET_FAULT_OUTER_NAMESPACE";

impl Firewall {
    /// Refuses to be made outside: the machine's own network is not for tests to cut.
    pub fn new() -> Result<Self, String> {
        let outer =
            std::env::var(OUTER).map_err(|_| "not in a namespace of the fault suite: run it there".to_owned())?;
        if here() == Path::new(&outer) {
            return Err("this is the outer network namespace: nothing is dropped here".to_owned());
        }
        let firewall = Self(());
        firewall.lift();
        Ok(firewall)
    }

    /// Drops whatever goes to or comes from the TCP port: a wire that was cut, a NAT that forgot.
    pub fn drop_port(&self, port: u16) {
        self.add(&format!("tcp dport {port} drop"));
        self.add(&format!("tcp sport {port} drop"));
    }

    /// Drops only attempts to connect to the port; who is connected stays so.
    pub fn drop_syn(&self, port: u16) {
        self.add(&format!("tcp dport {port} tcp flags & (syn | ack) == syn drop"));
    }

    /// Answers whatever goes to the port with a reset.
    pub fn reset_port(&self, port: u16) {
        self.add(&format!("tcp dport {port} reject with tcp reset"));
    }

    /// Lets everything through again.
    pub fn lift(&self) {
        nft(&format!(
            "add table inet {TABLE}; delete table inet {TABLE}; add table inet {TABLE}; \
             add chain inet {TABLE} arriving {{ type filter hook input priority 0; }}"
        ));
    }

    fn add(&self, rule: &str) {
        nft(&format!("add rule inet {TABLE} arriving {rule}"));
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        self.lift();
    }
}

/// The namespace that this process is in.
pub fn here() -> PathBuf {
    fs::read_link("/proc/self/ns/net").unwrap_or_else(|error| panic!("network namespaces need Linux: {error}"))
}

fn enter<A: AsRef<OsStr>>(before: &str, program: &Path, arguments: &[A]) -> Command {
    let mut command = Command::new(find("unshare").unwrap_or_else(|| "unshare".into()));
    let outer = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    command.args(["--net", "--", "sh", "-c"]).arg(format!(r#"ip link set lo up && {before} && exec "$0" "$@""#));
    command.arg(program).args(arguments).env(OUTER, outer).env("PATH", path());
    command
}

fn nft(script: &str) {
    let output = Command::new("nft").env("PATH", path()).arg(script).output();
    let output = output.unwrap_or_else(|error| panic!("nft could not be started: {error}"));
    assert!(output.status.success(), "nft {script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// With the places of system programs, which plain users' PATH may lack.
fn path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&path()).map(|place| place.join(program)).find(|program| program.is_file())
}
