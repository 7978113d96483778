//! A PostgreSQL whose wall clock can be stepped while it runs, by libfaketime. Monotonic clocks go on as they are, as on
//! a machine whose date is set.
//!
//! What it cannot do: libfaketime leaves the clock alone inside the calls that it wraps, so a timer that fires while the
//! server waits (for a lock, for its client) goes by the machine's clock. One that fires while it computes is late by a
//! step back, as on a real server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use call_budget::service::scratch_postgres::{ScratchOptions, ScratchPostgres};
use tempfile::TempDir;

/// A server with a wall clock of its own, right until it is stepped. Both end with the value.
pub struct SteppedServer {
    pub postgres: ScratchPostgres,
    /// Read by the server at each look at its clock.
    clock: TempDir,
}

/// Which way the server's wall clock is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    None,
    Ahead(Duration),
    Behind(Duration),
}

impl SteppedServer {
    /// An error says what to install.
    pub fn start(settings: &[(&str, &str)]) -> Result<Self, String> {
        let library = library().ok_or(MISSING)?;
        let clock = tempfile::Builder::new().prefix("call-budget-clock-").tempdir();
        let clock = clock.map_err(|error| format!("no temporary folder for the clock: {error}"))?;
        // The server may run as somebody else.
        fs::set_permissions(clock.path(), Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        set(clock.path(), Offset::None);
        let file = offset_file(clock.path()).display().to_string();
        let environment = [
            ("LD_PRELOAD", &*library.to_string_lossy()),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_NO_CACHE", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ];
        let options = ScratchOptions { settings, environment: &environment, ..ScratchOptions::default() };
        let postgres = ScratchPostgres::start_with(&options).map_err(|error| error.to_string())?;
        Ok(Self { postgres, clock })
    }

    /// Sets the server's wall clock; the offset is to the machine's own, not to the last one. In force when it returns,
    /// in open sessions too.
    pub fn step(&self, offset: Offset) {
        set(self.clock.path(), offset);
    }
}

/// Whether there is a libfaketime here, or why not.
pub fn available() -> Result<(), String> {
    library().map(|_| ()).ok_or_else(|| MISSING.to_owned())
}

const MISSING: &str = "no libfaketime found here: install it (sudo apt install faketime)";

/// Replaced as a whole: a server that looks meanwhile sees the old offset or the new one.
fn set(clock: &Path, offset: Offset) {
    let text = match offset {
        Offset::None => "+0".to_owned(),
        Offset::Ahead(by) => format!("+{:.6}", by.as_secs_f64()),
        Offset::Behind(by) => format!("-{:.6}", by.as_secs_f64()),
    };
    let (file, next) = (offset_file(clock), clock.join("next"));
    fs::write(&next, text).and_then(|()| fs::rename(&next, &file)).expect("the clock's folder is ours");
}

fn offset_file(clock: &Path) -> PathBuf {
    clock.join("offset")
}

/// Debian keeps it in a folder named after the architecture, others beside it.
fn library() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64"].iter().flat_map(|place| {
        let inner = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        [PathBuf::from(place)].into_iter().chain(inner).collect::<Vec<_>>()
    });
    folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|library| library.is_file())
}
