//! Where the password comes from: the settings, a file, or a command. Read again after the server has refused it, since
//! passwords rotate.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use super::blocking::Blocking;
use super::{Failing, StoreError};
use crate::config::connection::Password;
use crate::policy::stage::Stage;

/// What is longer is neither a password nor a bundle of certificates.
const LONGEST: u64 = 16 * 1024 * 1024;

/// The password in use.
pub(super) struct PasswordSource {
    source: Password,
    known: Mutex<Option<Known>>,
    reading: Blocking<io::Result<Vec<u8>>>,
}

struct Known {
    password: String,
    /// It was read for an earlier login.
    is_old: bool,
}

impl PasswordSource {
    pub fn new(source: Password) -> Self {
        Self { source, known: Mutex::default(), reading: Blocking::default() }
    }

    /// The password, or `None` where the settings name no source.
    pub async fn password(&self) -> Result<Option<String>, StoreError> {
        if let Some(known) = &mut *self.slot() {
            known.is_old = true;
            return Ok(Some(known.password.clone()));
        }
        let password = match &self.source {
            Password::None => return Ok(None),
            Password::Given(secret) => return Ok(Some(secret.as_str().to_owned())),
            Password::File(path) => {
                let file = path.clone();
                let read = self.reading.run(move || read_plain_file(&file)).await;
                let bytes = read.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| {
                    unavailable(format!("password_file {} cannot be read: {error}", path.display()))
                })?;
                first_line(&bytes).ok_or_else(|| unavailable(format!("password_file {} is empty", path.display())))?
            }
            Password::Command(command) => output_of(command).await?,
        };
        *self.slot() = Some(Known { password: password.clone(), is_old: false });
        Ok(Some(password))
    }

    /// Whether there may be another one at its source.
    pub fn is_read_anew(&self) -> bool {
        matches!(self.source, Password::File(_) | Password::Command(_))
    }

    /// Where it comes from, and what to look at when it is refused.
    pub fn name(&self) -> String {
        match &self.source {
            Password::None | Password::Given(_) => "password".into(),
            Password::File(path) => format!("password_file {}", path.display()),
            Password::Command(_) => "password_command".into(),
        }
    }

    /// The server has refused it: the next login reads it anew. Whether there may be another by now.
    pub fn refused(&self) -> bool {
        self.slot().take().is_some_and(|known| known.is_old)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a file of a sensible size. A pipe or a device is refused: reading it may never end.
pub(super) fn read_plain_file(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What `sh -c` prints on its first line. Given up with everything that it started. What else it prints is shown nowhere: it
/// may hold the secret.
async fn output_of(command: &str) -> Result<String, StoreError> {
    let failed = |why: String| unavailable(format!("password_command {why}: run it by hand as this user"));
    let spawned = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut running = Group(spawned.map_err(|error| failed(format!("cannot be started ({error})")))?);
    let mut output = Vec::new();
    if let Some(stdout) = &mut running.0.stdout {
        let read = stdout.take(LONGEST).read_to_end(&mut output).await;
        read.map_err(|error| failed(format!("cannot be read ({error})")))?;
    }
    let status = running.0.wait().await.map_err(|error| failed(format!("was lost ({error})")))?;
    if !status.success() {
        return Err(failed(format!("failed ({status})")));
    }
    first_line(&output).ok_or_else(|| failed("printed nothing".into()))
}

/// A command with everything that it started.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // The number is the child's own for as long as nobody has waited for it.
        let group = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn first_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default();
    (!line.is_empty()).then(|| line.to_owned())
}

fn unavailable(message: String) -> StoreError {
    StoreError::new(Stage::Startup, Failing::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_never_end_is_not_read() {
        for path in ["/dev/zero", "/dev", "/nowhere at all"] {
            assert!(read_plain_file(Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(first_line(b"not-a-real-password\nsecond line\n").as_deref(), Some("not-a-real-password"));
        assert_eq!(first_line(b"\n"), None);
    }
}
