//! Fresh connections: what each stage of opening one takes, and which process of the server each session meets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::judge::{Line, Times};
use crate::config::Connection;
use crate::config::connection::{Place, TlsMode};
use crate::policy::stage::Stage;
use crate::store::StoreError;
use crate::store::direct::{Direct, Opening, Openings, Way};
use crate::store::inspect::{self, Session};
use crate::store::operation::{Operation, OperationError};

/// The stage of the line `tls`.
pub const TLS: Stage = Stage::Tls;
/// One stays open all the while, the others are opened and closed beside it.
const MORE: usize = 5;

/// What opening them brought.
#[derive(Default)]
pub struct Fresh {
    /// Stages that each connection goes through, also where one is over before it can be seen: an address from the hosts
    /// file, a Unix socket.
    needed: Vec<Stage>,
    stages: BTreeMap<Stage, Vec<Duration>>,
    /// From the beginning to the end of the login.
    pub totals: Vec<Duration>,
    /// The same for the first of them, where others followed: it also reads the certificates to trust, as each process does
    /// once.
    pub first: Option<Duration>,
    /// For each session that was opened, the server's processes that it met. Through a transaction pooler one session
    /// meets several, or several sessions one.
    pub met: Vec<BTreeSet<i32>>,
    pub way: Option<Way>,
    /// Version and cipher, as the server sees them.
    pub tls: Option<(String, String)>,
    failure: Option<StoreError>,
}

/// Where the settings lead, before anybody has answered there: a network, unless all hosts are of this machine.
pub fn intended(connection: &Connection) -> Way {
    let sockets = connection.hosts.iter().all(|host| matches!(host.place, Place::Socket(_)));
    let local = connection.hosts.iter().all(|host| match &host.place {
        Place::Socket(_) => true,
        Place::Address(ip) => ip.is_loopback(),
        Place::Name(name) => name.eq_ignore_ascii_case("localhost"),
    });
    match (sockets, local) {
        (true, _) => Way::Socket,
        (_, true) => Way::Loopback,
        _ => Way::Network,
    }
}

/// Whether the settings have this way encrypted, and if so, whether the server's certificate is checked.
pub fn wanted(connection: &Connection, way: Way) -> Option<bool> {
    match connection.tls.mode {
        _ if way == Way::Socket => None,
        TlsMode::Disable => None,
        mode => Some(mode != TlsMode::Require),
    }
}

impl Fresh {
    /// None is open yet.
    pub fn to(connection: &Connection) -> Fresh {
        let names = connection.hosts.iter().any(|host| matches!(host.place, Place::Name(_)));
        let needed = names.then_some(Stage::Dns).into_iter().chain([Stage::Connect]).collect();
        Fresh { needed, ..Fresh::default() }
    }

    /// Opens the session that stays; none where the store cannot be reached.
    pub async fn open_first(&mut self, openings: &Openings) -> Option<Direct> {
        let mut direct = self.open(openings).await?;
        self.way = Some(direct.way());
        let met = self.who_answers(&mut direct).await;
        self.met.extend(met.map(|pid| [pid].into()));
        Some(direct)
    }

    /// Opens others beside it, one after the other, and asks all of them who answers.
    pub async fn open_more(&mut self, openings: &Openings, standing: &mut Direct) {
        for _ in 0..MORE {
            let Some(mut direct) = self.open(openings).await else { return };
            let met = self.who_answers(&mut direct).await;
            self.met.extend(met.map(|pid| [pid].into()));
        }
        for times in self.stages.values_mut() {
            times.remove(0);
        }
        self.first = Some(self.totals.remove(0));
        let again = self.who_answers(standing).await;
        if let Some(first) = self.met.first_mut() {
            first.extend(again);
        }
    }

    /// The line of one stage: as `judge` has it, unless connections failed there or before.
    pub fn line(&self, name: &'static str, stage: Stage, judge: impl FnOnce(&Times) -> Line) -> Line {
        let times = Times::of(self.stages.get(&stage).cloned().unwrap_or_default());
        match &self.failure {
            Some(error) if error.stage == stage => {
                Line::new(name, "every connection gets past it").fail(error.to_string())
            }
            Some(error) if error.stage < stage && times.count() == 0 => {
                Line::not_measured(name, format!("no connection came so far: see {}", line_of(error.stage)))
            }
            _ => judge(&times),
        }
    }

    async fn open(&mut self, openings: &Openings) -> Option<Direct> {
        let Opening { stages, outcome } = openings.open().await;
        let finished = if outcome.is_ok() { stages.len() } else { stages.len().saturating_sub(1) };
        for (stage, took) in &stages[..finished] {
            self.stages.entry(*stage).or_default().push(*took);
        }
        for stage in &self.needed {
            let passed = outcome.as_ref().err().is_none_or(|error| error.stage > *stage);
            if passed && !stages.iter().any(|(seen, _)| seen == stage) {
                self.stages.entry(*stage).or_default().push(Duration::ZERO);
            }
        }
        match outcome {
            Ok(direct) => {
                self.totals.push(stages.iter().map(|(_, took)| *took).sum());
                Some(direct)
            }
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }

    /// The server's process that answers this session; what it sees of TLS is kept.
    async fn who_answers(&mut self, direct: &mut Direct) -> Option<i32> {
        match look(direct).await {
            Ok(Session { pid, tls }) => {
                self.tls = tls.or(self.tls.take());
                Some(pid)
            }
            Err(error) => {
                tracing::debug!(%error, "the server did not say which of its processes answers");
                None
            }
        }
    }
}

async fn look(direct: &mut Direct) -> Result<Session, OperationError> {
    let operation = Operation::begin(direct.client()).await?;
    inspect::session(&operation).await
}

/// The line that is about this stage.
fn line_of(stage: Stage) -> &'static str {
    if stage == Stage::Startup { "login" } else { stage.as_str() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn the_way_and_its_protection_are_known_from_the_settings() {
        let of = |text: &str| {
            let settings = Settings { database_url: Some(text.into()), ..Settings::default() };
            let connection = Connection::of(&settings).unwrap();
            let way = intended(&connection);
            (way, wanted(&connection, way))
        };
        assert_eq!(of("host=/run/postgresql user=u"), (Way::Socket, None));
        assert_eq!(of("host=127.0.0.1 user=u sslmode=disable"), (Way::Loopback, None));
        assert_eq!(of("host=localhost,::1 user=u"), (Way::Loopback, Some(true)));
        assert_eq!(of("host=localhost,db.example user=u sslmode=require"), (Way::Network, Some(false)));
    }
}
