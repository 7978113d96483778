//! What one server has that others do not.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

use super::installation::Installation;
use super::{ScratchError, ScratchPostgres};

/// What a server has that others do not: see [`ScratchPostgres::start_with`]. All but `settings` need a PostgreSQL on
/// this machine; in a container they are refused.
#[derive(Clone, Copy)]
pub struct ScratchOptions<'a> {
    /// Passed on as `-c name=value`.
    pub settings: &'a [(&'a str, &'a str)],
    /// Variables of the server's process and its children.
    pub environment: &'a [(&'a str, &'a str)],
    /// Where it listens: an address of this machine's loopback, 127.0.0.1 unless said otherwise.
    pub address: Ipv4Addr,
    /// The port, where it may not be any free one.
    pub port: Option<u16>,
    /// The folder in which the server's own folder is made, so that its files lie on that disk. Nothing else of it is
    /// touched. Default: the system's temporary folder.
    pub within: Option<&'a Path>,
    /// A running server to copy and to follow, as its streaming standby. Roles and passwords are those of the primary.
    pub standby_of: Option<&'a ScratchPostgres>,
}

impl Default for ScratchOptions<'_> {
    fn default() -> Self {
        Self {
            settings: &[],
            environment: &[],
            address: Ipv4Addr::LOCALHOST,
            port: None,
            within: None,
            standby_of: None,
        }
    }
}

impl ScratchOptions<'_> {
    /// Only the settings go through to a container.
    pub(super) fn check(&self, installation: &Installation) -> Result<(), ScratchError> {
        let plain = self.environment.is_empty()
            && self.address == Ipv4Addr::LOCALHOST
            && self.port.is_none()
            && self.within.is_none()
            && self.standby_of.is_none();
        match installation {
            Installation::Docker if !plain => Err(super::installation::missing(
                "this server needs a PostgreSQL on this machine, a container will not do",
            )),
            _ => Ok(()),
        }
    }

    /// The variables as a shell reads them.
    pub(super) fn environment_script(&self) -> String {
        self.environment.iter().fold(String::new(), |mut script, (name, value)| {
            let quoted = value.replace('\'', r"'\''");
            writeln!(script, "export {name}='{quoted}'").expect("a String takes everything");
            script
        })
    }
}
