//! Where a PostgreSQL server can come from on this machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ScratchError;

/// A PostgreSQL that can be started.
#[derive(Clone, Debug)]
pub(super) enum Installation {
    /// The directory that holds `initdb` and `postgres`.
    Local(PathBuf),
    /// The public image, where there is Docker and no PostgreSQL.
    Docker,
}

pub(super) const IMAGE: &str = "postgres:18";

impl Installation {
    /// `PG_BIN` if set, else what PATH leads to, else Debian's and Homebrew's places, else Docker.
    pub(super) fn find() -> Result<Self, ScratchError> {
        if let Some(bin) = env::var_os("PG_BIN").map(PathBuf::from) {
            return if holds_server(&bin) {
                Ok(Self::Local(bin))
            } else {
                Err(ScratchError(format!(
                    "PG_BIN is {}, which has no initdb and postgres: name the bin directory of a PostgreSQL, or unset it",
                    bin.display()
                )))
            };
        }
        if let Some(bin) = on_path().or_else(debian).or_else(homebrew) {
            return Ok(Self::Local(bin));
        }
        if programs("docker").next().is_some() { Ok(Self::Docker) } else { Err(missing("no PostgreSQL found here")) }
    }
}

/// The sentence for a machine without PostgreSQL.
pub(super) fn missing(what: &str) -> ScratchError {
    let command = if cfg!(target_os = "macos") { "brew install postgresql@18" } else { "sudo apt install postgresql" };
    ScratchError(format!("{what}: install it ({command}), or set DATABASE_URL or PG_BIN"))
}

fn holds_server(bin: &Path) -> bool {
    bin.join("initdb").is_file() && bin.join("postgres").is_file()
}

/// PATH holds the programs themselves, or links to them, or only pg_config, which knows.
fn on_path() -> Option<PathBuf> {
    let linked = programs("initdb").filter_map(|initdb| Some(initdb.canonicalize().ok()?.parent()?.to_owned()));
    let told = programs("pg_config").filter_map(|pg_config| {
        let output = Command::new(pg_config).arg("--bindir").stderr(Stdio::null()).output().ok()?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
    });
    linked.chain(told).find(|bin| holds_server(bin))
}

fn programs(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = env::split_paths(&path).map(|place| place.join(name)).collect();
    places.into_iter().filter(|program| program.is_file())
}

fn debian() -> Option<PathBuf> {
    newest(Path::new("/usr/lib/postgresql"), "")
}

fn homebrew() -> Option<PathBuf> {
    ["/opt/homebrew/opt", "/usr/local/opt"].iter().find_map(|opt| newest(Path::new(opt), "postgresql@"))
}

/// The bin directory of the highest version among folders named like `postgresql@18`, or just `18`.
fn newest(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let versions = folder.read_dir().ok()?.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_prefix(prefix)?.parse::<u32>().ok()
    });
    let mut bins: Vec<_> =
        versions.map(|version| (version, folder.join(format!("{prefix}{version}")).join("bin"))).collect();
    bins.sort();
    bins.into_iter().rev().map(|(_, bin)| bin).find(|bin| holds_server(bin))
}
