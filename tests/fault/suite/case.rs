//! What a case is: one fault, tried as often as the form of the run says, and the bounds it must keep.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;

use super::judge::Spread;
use super::round::Round;

/// One fault. `main.rs` shows how to write one.
pub struct Case {
    /// The row of the design's list of faults: 1 to 36.
    pub row: u8,
    /// Row and a word, such as `11.silent`. Stable: documents and planted bugs name it.
    pub id: &'static str,
    /// A sentence: what is wrong.
    pub name: &'static str,
    pub how: How,
    /// Every call made under the fault ends by this, give or take `judge::GRACE`.
    pub deadline: Duration,
    pub length: Length,
    /// How soon after healing somebody is granted a slot again; `None` where nothing heals.
    pub heals: Option<Spread>,
    /// Whether this machine can do it. The error says what is missing, and the case counts as not tried.
    pub needs: fn() -> Result<(), String>,
    /// `Some`: in a process of its own, started through this command (empty: directly). The command's last words are
    /// followed by the program and its arguments. It has a ground of its own: everything of the case is on its side of
    /// `["unshare", "--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]`, say.
    pub own_process: Option<&'static [&'static str]>,
    pub run: for<'a> fn(&'a mut Round) -> BoxFuture<'a, ()>,
}

/// What makes the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum How {
    #[serde(rename = "proxy")]
    Proxy,
    /// A PostgreSQL or a DNS server that misbehaves by script.
    #[serde(rename = "scripted server")]
    ScriptedServer,
    #[serde(rename = "namespace")]
    Namespace,
    /// PostgreSQL itself, or what stands in front of it.
    #[serde(rename = "server")]
    Server,
    #[serde(rename = "clock")]
    Clock,
    /// The calling process itself is stopped, starved or made to leave.
    #[serde(rename = "process")]
    Process,
}

/// How long one round takes: that decides how many the long form makes, and after how long a round is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Under 2 s.
    Short,
    Long,
}

impl Length {
    pub const fn repeats(self) -> u32 {
        match self {
            Length::Short => 20,
            Length::Long => 3,
        }
    }

    /// Nothing hangs: a round that has not ended by then is given up and counts as failed.
    pub fn patience(self) -> Duration {
        match self {
            Length::Short => Duration::from_secs(30),
            Length::Long => Duration::from_secs(240),
        }
    }
}

/// After most faults: the retry's pause, and what a dead connection still costs.
pub const HEALS: Option<Spread> =
    Some(Spread { median: Duration::from_millis(700), worst: Duration::from_millis(1300) });
/// After refusals, resets and DNS faults nothing has to time out first.
pub const HEALS_SOON: Option<Spread> =
    Some(Spread { median: Duration::from_millis(500), worst: Duration::from_millis(500) });

/// For [`Case::needs`]: any machine will do.
pub fn nothing() -> Result<(), String> {
    Ok(())
}
