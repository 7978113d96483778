use std::fmt;

/// Where a store call was when its time ran out or it failed. One deadline covers them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Waiting in this process for a connection.
    LocalWait,
    /// Resolving the store's name.
    Dns,
    /// Opening the socket.
    Connect,
    /// Agreeing on TLS.
    Tls,
    /// Start-up and login.
    Startup,
    /// The query itself: lock wait, execution, commit, answer.
    Query,
}

impl Stage {
    /// The stable name in errors, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Stage::LocalWait => "local_wait",
            Stage::Dns => "dns",
            Stage::Connect => "connect",
            Stage::Tls => "tls",
            Stage::Startup => "startup",
            Stage::Query => "query",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
