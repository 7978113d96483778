//! A PostgreSQL whose disk can be filled: it lies on a small file system in memory, mounted for it alone.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use call_budget::service::scratch_postgres::{ScratchOptions, ScratchPostgres};
use tempfile::TempDir;

use super::kept::within;
use super::psql::try_ask;

/// A server on a disk of its own. Server, mount and folder end with the value.
pub struct SmallDiskServer {
    /// First: a disk can be unmounted when nobody uses it.
    pub postgres: ScratchPostgres,
    disk: SmallDisk,
}

impl SmallDiskServer {
    /// Starts one. An error says why no disk can be mounted here.
    pub fn start(settings: &[(&str, &str)]) -> Result<Self, String> {
        let disk = SmallDisk::mount()?;
        let options = ScratchOptions { settings, within: Some(disk.folder.path()), ..ScratchOptions::default() };
        let postgres = ScratchPostgres::start_with(&options).map_err(|error| error.to_string())?;
        Ok(Self { postgres, disk })
    }

    /// Takes all the space that is left. What fits into pages and write-ahead log that are there already still works.
    pub fn fill(&self) {
        let mut filler = File::options().create(true).append(true).open(self.filler()).expect("the disk is ours");
        // Down to the last page of memory.
        for piece in [vec![0; 1 << 20], vec![0; 4096]] {
            while filler.write_all(&piece).is_ok() {}
        }
    }

    /// Gives the space back.
    pub fn free(&self) {
        fs::remove_file(self.filler()).expect("a filled disk has a filler");
    }

    /// After [`Self::fill`]: makes the server need room for its write-ahead log. It panics; what it does next depends on
    /// how far its recovery comes without space.
    pub fn crash(&self) {
        // Until the piece at hand is full or switched, writing goes on.
        within(PATIENCE, "the server crashes for want of space", || {
            try_ask(&self.postgres, "SELECT txid_current(), pg_switch_wal()").is_err()
        });
    }

    /// After [`Self::free`]: waits until the server has recovered, and starts it where it has given up. 30 s at most.
    pub fn wait_until_up(&mut self) {
        within(PATIENCE, "the server serves again", || {
            // Refused while it still runs.
            try_ask(&self.postgres, "SELECT 1").is_ok() || self.postgres.resume().is_ok()
        });
    }

    fn filler(&self) -> PathBuf {
        self.disk.folder.path().join("filler")
    }
}

/// Why no disk can be mounted here, if so.
pub fn available() -> Result<(), String> {
    SmallDisk::mount().map(|_| ())
}

struct SmallDisk {
    keeper: Child,
    /// After the keeper, which unmounts it: fields are dropped in order.
    folder: TempDir,
}

impl SmallDisk {
    fn mount() -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("a small disk is mounted as Linux does it (tmpfs), which this system cannot".to_owned());
        }
        let folder = tempfile::Builder::new().prefix("call-budget-disk-").tempdir();
        let folder = folder.map_err(|error| format!("no temporary folder for a small disk: {error}"))?;
        if fs::metadata(folder.path()).map_err(|error| error.to_string())?.uid() != 0 {
            return Err("a small disk cannot be mounted: this needs root".to_owned());
        }
        // It unmounts when its input ends: when we are done, and also when we are killed.
        const KEEPER: &str = r#"mount -t tmpfs -o "size=$2,mode=0755" tmpfs "$1" 2>&1 && echo mounted || exit
            read -r _; umount "$1" || umount -l "$1"; rmdir "$1""#;
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(folder.path())
            .arg(SIZE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let keeper = keeper.map_err(|error| format!("sh could not be started: {error}"))?;
        let mut disk = Self { keeper, folder };
        let mut words = String::new();
        let told = BufReader::new(disk.keeper.stdout.take().expect("stdout is piped")).read_line(&mut words);
        match told {
            Ok(_) if words.trim() == "mounted" => Ok(disk),
            _ => Err(format!("a small disk cannot be mounted: {}", words.trim())),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Whether something is mounted there.
pub fn is_mounted(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == place.to_str())
}

const PATIENCE: Duration = Duration::from_secs(30);
/// Enough for a fresh server and a little work.
const SIZE: &str = "160m";
