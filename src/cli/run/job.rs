//! What became of the many runs of one job: a small file a job, which parallel runs take turns to replace.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use serde::{Deserialize, Serialize};

use crate::cli::command_error::CommandError;
use crate::clock::{Clock, SystemClock};
use crate::policy::Wall;

const LONGEST_NAME: usize = 200;
/// One lock for all jobs of the directory. It stays, since a lock on a file that is replaced would keep nobody out.
const LOCK: &str = ".lock";
/// A turn takes milliseconds: whoever has not had one by then meets a run that was stopped in the middle of its own.
const LONGEST_TURN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(3);

/// Reads a job's name, for clap: it becomes the name of a file in one directory.
pub fn name(text: &str) -> Result<String, String> {
    let wrong = if text.is_empty() {
        "is not empty"
    } else if text.len() > LONGEST_NAME {
        "has at most 200 bytes"
    } else if text.starts_with('.') {
        "does not begin with a dot"
    } else if text.contains(|c: char| c == '/' || c.is_control()) {
        "holds no slash and no control character"
    } else {
        return Ok(text.to_owned());
    };
    Err(format!("a job's name {wrong}"))
}

/// One job and the place of its counts.
pub struct Job {
    name: String,
    directory: PathBuf,
}

impl Job {
    /// The job of this name, in this directory or else in the one of the user's state.
    pub fn of(name: &str, directory: Option<&Path>) -> Result<Self, CommandError> {
        let directory = directory.map(Path::to_owned).or_else(state_directory).ok_or_else(|| {
            CommandError::usage("--job has no place for its counts, since neither XDG_STATE_HOME nor HOME is set")
                .hint("name one with --job-dir DIRECTORY")
        })?;
        Ok(Self { name: name.to_owned(), directory })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the place, and finds out before anything is sent whether the job can be counted.
    pub fn prepare(&self) -> Result<(), CommandError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.and_then(|()| self.lock_file()).map_err(|error| self.cannot("cannot be counted", &error))?;
        self.read().map(drop)
    }

    /// What was counted until now.
    pub fn counts(&self) -> Result<Counts, CommandError> {
        self.read()?.ok_or_else(|| {
            let Self { name, directory } = self;
            CommandError::usage(format!("nothing was counted under the job {name:?} in {}", directory.display()))
        })
    }

    /// One more command was started.
    pub async fn sent(&self, at: Wall, waited: Duration) -> Result<(), CommandError> {
        self.count(|counts| {
            counts.sends = counts.sends.saturating_add(1);
            counts.first_us = Some(counts.first_us.map_or(at.unix_us(), |first| first.min(at.unix_us())));
            counts.last_us = Some(counts.last_us.map_or(at.unix_us(), |last| last.max(at.unix_us())));
            counts.wait(waited);
        })
        .await
    }

    /// One more command was not started.
    pub async fn refused(&self, waited: Duration) -> Result<(), CommandError> {
        self.count(|counts| {
            counts.refused = counts.refused.saturating_add(1);
            counts.wait(waited);
        })
        .await
    }

    /// Whoever holds the lock is alone with the file.
    async fn count(&self, change: impl FnOnce(&mut Counts)) -> Result<(), CommandError> {
        let _turn = self.turn().await.map_err(|error| self.cannot("was not counted", &error))?;
        let mut counts = self.read()?.unwrap_or_default();
        change(&mut counts);
        self.replace(&counts).map_err(|error| self.cannot("was not counted", &error))
    }

    async fn turn(&self) -> io::Result<File> {
        let file = self.lock_file()?;
        let deadline = SystemClock.now() + LONGEST_TURN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if SystemClock.now() >= deadline => {
                    let stopped = format!("another run has held {LOCK} for {} s", LONGEST_TURN.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, stopped));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        OpenOptions::new().create(true).truncate(false).write(true).open(self.directory.join(LOCK))
    }

    fn read(&self) -> Result<Option<Counts>, CommandError> {
        let file = match fs::read(self.file()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.cannot("cannot be counted", &error)),
        };
        // What a machine that went down in the middle of a write can leave: counts are no reason to stop the job for good.
        if file.is_empty() {
            tracing::warn!(file = %self.file().display(), "the counts of the job are lost: its file is empty, and it is counted anew");
            return Ok(None);
        }
        serde_json::from_slice(&file).map(Some).map_err(|error| {
            CommandError::usage(format!("{} does not hold the counts of a job: {error}", self.file().display()))
                .hint("move it away, or give the job another name")
        })
    }

    /// Written beside it and then moved over it: readers find the old counts or the new ones.
    fn replace(&self, counts: &Counts) -> io::Result<()> {
        let readable = Permissions::from_mode(0o644);
        let mut file = tempfile::Builder::new().prefix(".new-").permissions(readable).tempfile_in(&self.directory)?;
        file.write_all(&serde_json::to_vec(counts)?)?;
        // Else a crash could leave the new name with nothing in it.
        file.as_file().sync_all()?;
        file.persist(self.file())?;
        Ok(())
    }

    fn file(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.name))
    }

    fn cannot(&self, what: &str, error: &io::Error) -> CommandError {
        let Self { name, directory } = self;
        CommandError::usage(format!("the job {name:?} {what} in {}: {error}", directory.display()))
    }
}

/// The file of a job.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    sends: u64,
    refused: u64,
    /// Microseconds since 1970, UTC, as the wall clock showed them.
    first_us: Option<i64>,
    last_us: Option<i64>,
    /// From asking to the permit or the refusal, all runs together.
    waited_us: u64,
}

/// The counts for programs; dates in RFC 3339.
#[derive(Serialize)]
pub struct InFull<'a> {
    job: &'a str,
    sends: u64,
    refused: u64,
    first: Option<String>,
    last: Option<String>,
    lasted_us: u64,
    waited_us: u64,
}

impl Counts {
    /// One line: `job eod: 2 sends, first 09:00:01.204, last 09:00:02.511 (1.3 s), waited 0.1 s in all, refused 0`.
    pub fn in_words(&self, job: &str, now: Wall) -> String {
        let (first, last) = (self.first_us.map(Wall::from_unix_us), self.last_us.map(Wall::from_unix_us));
        let today = local(now).date();
        let another_day = [first, last].into_iter().flatten().any(|wall| local(wall).date() != today);
        let format = if another_day { "%Y-%m-%d %H:%M:%S%.3f" } else { "%H:%M:%S%.3f" };
        let sends = if self.sends == 1 { "1 send".to_owned() } else { format!("{} sends", self.sends) };
        let span = match (first, last) {
            (Some(first), Some(last)) => format!(
                ", first {}, last {} ({:.1} s)",
                local(first).strftime(format),
                local(last).strftime(format),
                last.saturating_since(first).as_secs_f64()
            ),
            _ => String::new(),
        };
        let waited = Duration::from_micros(self.waited_us).as_secs_f64();
        format!("job {job}: {sends}{span}, waited {waited:.1} s in all, refused {}", self.refused)
    }

    /// The same as an object.
    pub fn in_full<'a>(&self, job: &'a str) -> InFull<'a> {
        let date = |us: Option<i64>| {
            us.map(|us| local(Wall::from_unix_us(us)).strftime("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string())
        };
        let lasted = self.last_us.zip(self.first_us).map_or(0, |(last, first)| last.saturating_sub(first));
        InFull {
            job,
            sends: self.sends,
            refused: self.refused,
            first: date(self.first_us),
            last: date(self.last_us),
            lasted_us: u64::try_from(lasted).unwrap_or_default(),
            waited_us: self.waited_us,
        }
    }

    fn wait(&mut self, waited: Duration) {
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waited_us = self.waited_us.saturating_add(waited);
    }
}

/// By the XDG Base Directory Specification, which passes over a path that is not absolute.
fn state_directory() -> Option<PathBuf> {
    let absolute = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("call-budget/jobs"))
}

/// The moment as the clock on the wall shows it here: in the zone of this machine, or of the variable TZ.
fn local(wall: Wall) -> ZonedDateTime {
    Timestamp::from_microsecond(wall.unix_us()).unwrap_or_default().to_zoned_datetime(TimeZone::system())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_directory() {
        for wrong in ["", ".", "..", "../x", "a/b", "/etc/passwd", ".lock", "a\nb", "a\0b", &"x".repeat(201)] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
        for right in ["eod-2026-11-30", "마감 수집", "a..b", "x.json"] {
            assert_eq!(name(right).as_deref(), Ok(right));
        }
    }

    #[test]
    fn a_line_names_the_days_once_they_are_not_today() {
        const DAY: i64 = 86_400_000_000;
        let noon = local(Wall::default()).start_of_day().unwrap().timestamp().as_microsecond() + DAY / 2;
        let counts = Counts {
            sends: 2,
            refused: 1,
            first_us: Some(noon + 204_000),
            last_us: Some(noon + 1_511_900),
            waited_us: 12_340_000,
        };
        assert_eq!(
            counts.in_words("eod", Wall::from_unix_us(noon)),
            "job eod: 2 sends, first 12:00:00.204, last 12:00:01.511 (1.3 s), waited 12.3 s in all, refused 1"
        );
        let tomorrow = counts.in_words("eod", Wall::from_unix_us(noon + DAY));
        assert!(
            tomorrow.contains("-01 12:00:00.204, last ") || tomorrow.contains("-31 12:00:00.204, last "),
            "{tomorrow}"
        );
        let nothing = Counts { refused: 1, ..Counts::default() };
        assert_eq!(nothing.in_words("eod", Wall::default()), "job eod: 0 sends, waited 0.0 s in all, refused 1");
    }
}
