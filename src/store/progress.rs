//! Where a store call is. One deadline covers all of its stages and is kept outside, by whoever made the call; what ran out
//! of time is told from here.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::stage::Stage;

/// The stage of a store call, and what it waits for. Shared between the call and whoever may give it up.
#[derive(Debug, Default)]
pub struct Progress {
    stage: AtomicU8,
    awaited: Mutex<Awaited>,
}

/// Who is to do the next thing, in words.
#[derive(Debug)]
enum Awaited {
    /// Names or addresses.
    Peer(Arc<str>),
    /// Where the password comes from: a file or a command of this machine.
    Password(String),
}

impl Progress {
    const STAGES: [Stage; 6] = [Stage::LocalWait, Stage::Dns, Stage::Connect, Stage::Tls, Stage::Startup, Stage::Query];

    /// The call begins this stage.
    pub fn enter(&self, stage: Stage) {
        let index = Self::STAGES.iter().position(|s| *s == stage).unwrap_or_default();
        self.stage.store(u8::try_from(index).unwrap_or_default(), Ordering::Release);
    }

    /// The stage the call is in.
    pub fn stage(&self) -> Stage {
        Self::STAGES[usize::from(self.stage.load(Ordering::Acquire))]
    }

    /// The name or the addresses from which the call expects something.
    pub fn towards(&self, whom: impl Into<Arc<str>>) {
        *self.awaited() = Awaited::Peer(whom.into());
    }

    /// Before the login goes on, the password has to come from here.
    pub fn towards_password(&self, source: impl Into<String>) {
        *self.awaited() = Awaited::Password(source.into());
    }

    /// In words, who did not answer, and what to look at.
    pub fn silence(&self) -> String {
        let whom = match &*self.awaited() {
            Awaited::Peer(whom) => Arc::clone(whom),
            Awaited::Password(source) => {
                return format!("{source} gave no password in time: try it by hand as this user");
            }
        };
        match self.stage() {
            Stage::LocalWait => "no connection of this process came free in time: raise pool_size".into(),
            Stage::Dns => format!("no name server answered about {whom}: check the name server, or set nameservers"),
            Stage::Connect => {
                format!(
                    "no answer from {whom}: check host and port, whether the machine is up, and firewalls in between"
                )
            }
            Stage::Tls => {
                format!("{whom} is connected and does not answer the TLS handshake: check what listens there")
            }
            Stage::Startup => {
                format!("{whom} is connected and does not finish the login: see the server's load and log")
            }
            Stage::Query => {
                format!("the request to {whom} has left and no answer came: see locks and load there, and the network")
            }
        }
    }

    fn awaited(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Awaited {
    fn default() -> Self {
        Self::Peer("".into())
    }
}
