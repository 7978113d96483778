//! No file descriptor is left in this process: no fault of the settings nor of the store, and over as soon as others are
//! closed. It may hit at any stage, and each would otherwise blame what it wanted to open.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use rustix::io::Errno;

/// What to say, and what to do.
pub(super) const USED_UP: &str =
    "this process has no file descriptor left: raise its limit (ulimit -n), or find out what it keeps open";

/// Whether this is why something could not be opened.
pub(super) fn used_up(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// The same, where the error at hand does not tell: asked of the system.
pub(super) fn none_left() -> bool {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).is_err_and(|error| used_up(&error))
}
