//! What the system or a person tells this process, to be passed on.

use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Those that mean something to a command, and their names.
const PASSED_ON: [(Signal, &str); 6] = [
    (Signal::TERM, "SIGTERM"),
    (Signal::INT, "SIGINT"),
    (Signal::HUP, "SIGHUP"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::USR2, "SIGUSR2"),
];

/// The signals to this process from now on, those aside that it was started to ignore.
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub fn listen() -> io::Result<Self> {
        // Where whoever started this process ignores SIGCHLD, the system would throw the command's exit code away.
        drop(unix::signal(SignalKind::child())?);
        let ignored = ignored();
        let listened = PASSED_ON.iter().filter(|(signal, _)| ignored >> (signal.as_raw() - 1) & 1 == 0);
        let listened = listened.map(|&(signal, _)| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)));
        listened.collect::<io::Result<_>>().map(Self)
    }

    /// The next one. Dropping the future loses none.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            let came = self.0.iter_mut().find_map(|(signal, listened)| match listened.poll_recv(context) {
                Poll::Ready(Some(())) => Some(*signal),
                _ => None,
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// As people write it.
pub fn name(signal: Signal) -> &'static str {
    PASSED_ON.iter().find(|(passed_on, _)| *passed_on == signal).map_or("a signal", |(_, name)| name)
}

/// The signals that this process was started to ignore, a bit each: nohup's SIGHUP, and SIGINT and SIGQUIT for what a
/// script has put in the background. Whoever listens to one would give it back to the command. Only Linux tells.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
