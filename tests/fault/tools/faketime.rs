//! A PostgreSQL whose wall clock can be stepped while it runs, by libfaketime. Monotonic clocks go on as they are, as on
//! a machine whose date is set.
//!
//! What it cannot do: libfaketime leaves the clock alone inside the calls that it wraps, so a timer that fires while the
//! server waits (for a lock, for its client) goes by the machine's clock. One that fires while it computes is late by a
//! step back, as on a real server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use call_budget::service::scratch_postgres::{ScratchOptions, ScratchPostgres};
use tempfile::TempDir;

/// A wall clock that can be stepped, for processes that are started with its [`environment`](SteppedClock::environment).
/// To be kept for as long as they run: they read it at each look at their clock.
pub struct SteppedClock {
    folder: TempDir,
    library: PathBuf,
}

/// A server with a wall clock of its own, right until it is stepped. Both end with the value.
pub struct SteppedServer {
    pub postgres: ScratchPostgres,
    clock: SteppedClock,
}

/// Which way a wall clock is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    None,
    Ahead(Duration),
    Behind(Duration),
}

impl SteppedClock {
    /// A clock that is right. An error says what to install.
    pub fn new() -> Result<Self, String> {
        let library = library().ok_or(MISSING)?;
        let folder = tempfile::Builder::new().prefix("call-budget-clock-").tempdir();
        let folder = folder.map_err(|error| format!("no temporary folder for the clock: {error}"))?;
        // Whoever reads it may run as somebody else.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        let clock = Self { folder, library };
        clock.step(Offset::None);
        Ok(clock)
    }

    /// Sets the clock; the offset is to the machine's own, not to the last one. In force when it returns.
    pub fn step(&self, offset: Offset) {
        let text = match offset {
            Offset::None => "+0".to_owned(),
            Offset::Ahead(by) => format!("+{:.6}", by.as_secs_f64()),
            Offset::Behind(by) => format!("-{:.6}", by.as_secs_f64()),
        };
        // Replaced as a whole: a process that looks meanwhile sees the old offset or the new one.
        let next = self.folder.path().join("next");
        fs::write(&next, text).and_then(|()| fs::rename(&next, self.file())).expect("the clock's folder is ours");
    }

    /// The variables of a process that is to have this clock. Its monotonic clocks stay the machine's: without the two
    /// that say so, libfaketime steps them too, CLOCK_BOOTTIME among them.
    pub fn environment(&self) -> [(&'static str, String); 6] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }
}

impl SteppedServer {
    /// An error says what to install.
    pub fn start(settings: &[(&str, &str)]) -> Result<Self, String> {
        let clock = SteppedClock::new()?;
        let environment = clock.environment();
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let options = ScratchOptions { settings, environment: &environment, ..ScratchOptions::default() };
        let postgres = ScratchPostgres::start_with(&options).map_err(|error| error.to_string())?;
        Ok(Self { postgres, clock })
    }

    /// Sets the server's wall clock, in open sessions too: see [`SteppedClock::step`].
    pub fn step(&self, offset: Offset) {
        self.clock.step(offset);
    }
}

/// Whether there is a libfaketime here, or why not.
pub fn available() -> Result<(), String> {
    library().map(|_| ()).ok_or_else(|| MISSING.to_owned())
}

const MISSING: &str = "no libfaketime found here: install it (sudo apt install faketime)";

/// Debian keeps it in a folder named after the architecture, others beside it.
fn library() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64"].iter().flat_map(|place| {
        let inner = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        [PathBuf::from(place)].into_iter().chain(inner).collect::<Vec<_>>()
    });
    folders.map(|folder| folder.join("faketime/libfaketime.so.1")).find(|library| library.is_file())
}
