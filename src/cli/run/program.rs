//! The command itself: found before a slot is spent on it, started at once, and followed to its end.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::{Child, Command};

use super::signals::{Signals, name};
use crate::cli::Exit;
use crate::cli::command_error::CommandError;

/// As shells say it.
const NOT_EXECUTABLE: Exit = Exit::Code(126);
const NOT_FOUND: Exit = Exit::Code(127);
/// Where a shell looks if nobody has told it.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// A command that can be started.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    /// What it was called by, which some programs go by.
    called: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// Looks for it where a shell would.
    pub fn find(words: &[OsString]) -> Result<Self, CommandError> {
        let (called, arguments) = words.split_first().ok_or_else(|| CommandError::usage("a command is missing"))?;
        let path = if called.as_bytes().contains(&b'/') {
            vec![PathBuf::from(called)]
        } else {
            let path = env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
            env::split_paths(&path).map(|place| place.join(called)).collect()
        };
        let there: Vec<PathBuf> = path.into_iter().filter(|path| !called.is_empty() && path.exists()).collect();
        match there.iter().find(|path| is_executable(path)) {
            Some(path) => Ok(Self { path: path.clone(), called: called.clone(), arguments: arguments.to_vec() }),
            None if there.is_empty() => Err(cannot(NOT_FOUND, called, "is not found")),
            None => Err(cannot(NOT_EXECUTABLE, called, "cannot be executed")),
        }
    }

    /// Starts it, with the standard streams, the process group and the environment of this process.
    pub fn start(&self) -> Result<Running, CommandError> {
        let started = match Command::new(&self.path).arg0(&self.called).args(&self.arguments).spawn() {
            // A script that does not say what it is for: shells run it themselves.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOEXEC) => {
                Command::new("/bin/sh").arg(&self.path).args(&self.arguments).spawn()
            }
            started => started,
        };
        started.map(Running).map_err(|error| {
            let exit = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
            cannot(exit, &self.called, &format!("cannot be started: {error}"))
        })
    }
}

/// A command under way.
pub struct Running(Child);

impl Running {
    /// Passes on what this process is told until the command has ended, and returns its exit code.
    pub async fn ended(&mut self, signals: &mut Signals) -> Result<u8, CommandError> {
        loop {
            tokio::select! {
                biased;
                status = self.0.wait() => {
                    return status
                        .map(exit_code)
                        .map_err(|error| CommandError::failed(format!("how the command ended is not known: {error}")));
                }
                signal = signals.next() => self.tell(signal),
            }
        }
    }

    fn tell(&self, signal: Signal) {
        // From its keys a terminal tells the whole group in its foreground, and the command is in this process's group.
        if matches!(signal, Signal::INT | Signal::QUIT) && is_in_foreground() {
            return;
        }
        let pid = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
            tracing::warn!(%error, signal = name(signal), "the signal could not be passed on to the command");
        }
    }
}

/// What a shell says of a command that this signal has ended.
pub fn ended_by(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, signal) => ended_by(signal.unwrap_or_default()),
    }
}

/// Whether the controlling terminal, wherever the standard streams lead, has this process's group in its foreground.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn cannot(exit: Exit, called: &OsStr, why: &str) -> CommandError {
    CommandError { exit, message: format!("the command {called:?} {why}"), hint: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_as_a_shell_says_it() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(64)), 192);
    }
}
