//! Stage `dns`: the addresses of a name.
//!
//! Resolved in this process and by futures alone, so that giving up leaves nothing behind (a `getaddrinfo` in a thread
//! cannot be given up). Nothing is kept from one resolution to the next, neither answers nor refusals nor the machine's
//! configuration: when a name server recovers, the very next attempt may use it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};

use super::{Failing, StoreError, descriptors};
use crate::clock::Clock;
use crate::policy::stage::Stage;

/// A question without an answer is asked again this often; the earlier ones go on waiting, for a slow server.
const REPEAT: Duration = Duration::from_millis(200);

/// Each has a socket of its own. When there are more, all of these are given up: 5 s are enough for an answer.
const MOST_IN_FLIGHT: usize = 25;

/// An answer is used for as long as it says, within these bounds.
const FRESH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Longer than any deadline around this: the deadline is the caller's.
const NEVER: Duration = Duration::from_secs(3600);

/// What a name stands for at present.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    /// In the order of the answer, IPv4 first; never empty.
    pub addresses: Vec<IpAddr>,
    /// When to ask again.
    pub fresh_for: Duration,
    /// Whose addresses there may be, for all that was answered.
    pub silent: Option<Family>,
}

/// One of the two kinds of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// Asks for IPv4 and IPv6 addresses at once. Once IPv4 has answered, IPv6 is waited for as long as `wait_for_v6`, often not
/// at all: many name servers are silent about a type that they do not know.
pub(super) async fn resolve<C: Clock>(
    clock: &C,
    name: &str,
    nameservers: &[SocketAddr],
    wait_for_v6: Duration,
) -> Result<Resolved, StoreError> {
    let questions = Questions::read(name, nameservers).map_err(|error| failed(name, &error))?;
    let (mut v4, mut v6) = (FuturesUnordered::new(), FuturesUnordered::new());
    let (mut answered_v4, mut answered_v6) = (None, None);
    let mut v6_until = None;
    loop {
        for (asked, kind, is_open) in
            [(&mut v4, RecordType::A, answered_v4.is_none()), (&mut v6, RecordType::AAAA, answered_v6.is_none())]
        {
            if is_open {
                if asked.len() == MOST_IN_FLIGHT {
                    asked.clear();
                }
                asked.push(questions.ask(kind));
            }
        }
        let again = clock.now() + REPEAT;
        loop {
            tokio::select! {
                biased;
                Some(answer) = v4.next(), if answered_v4.is_none() => answered_v4 = Some(answer),
                Some(answer) = v6.next(), if answered_v6.is_none() => answered_v6 = Some(answer),
                () = clock.sleep_until(v6_until.map_or(again, |moment| again.min(moment))) => break,
            }
            match (&answered_v4, &answered_v6) {
                (Some(Ok(first)), Some(Ok(second))) => return Ok(first.and(second)),
                (Some(Ok(found)), Some(Err(error))) => return Ok(found.but(Family::V6, error)),
                (Some(Err(error)), Some(Ok(found))) => return Ok(found.but(Family::V4, error)),
                (Some(Err(error)), Some(Err(_))) => return Err(failed(name, error)),
                (Some(Ok(_)), None) => v6_until = v6_until.or(Some(clock.now() + wait_for_v6)),
                _ => {}
            }
        }
        match (&answered_v4, &answered_v6) {
            (Some(Ok(found)), None) if v6_until.is_some_and(|moment| moment <= clock.now()) => {
                return Ok(Resolved { silent: Some(Family::V6), ..found.clone() });
            }
            // IPv4 has had its time.
            (None, Some(Ok(found))) => return Ok(Resolved { silent: Some(Family::V4), ..found.clone() }),
            // A name that has no IPv4 address may have another. One that does not exist, or whose server fails, may not.
            (Some(Err(error)), None) if error.is_nx_domain() || !error.is_no_records_found() => {
                return Err(failed(name, error));
            }
            _ => {}
        }
    }
}

impl Resolved {
    fn of(lookup: &Lookup) -> Result<Self, NetError> {
        let addresses: Vec<_> = lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
        if addresses.is_empty() {
            return Err(NetError::Message("the answer holds no address"));
        }
        let ttl = lookup.answers().iter().map(|record| record.ttl).min().unwrap_or_default();
        Ok(Self { addresses, fresh_for: Duration::from_secs(ttl.into()).clamp(FRESH.0, FRESH.1), silent: None })
    }

    /// The other family's answer was an error: a no, or a failure that says nothing of it.
    fn but(&self, other: Family, error: &NetError) -> Self {
        Self { silent: (!error.is_no_records_found()).then_some(other), ..self.clone() }
    }

    fn and(&self, other: &Self) -> Self {
        let addresses = self.addresses.iter().chain(&other.addresses).copied().collect();
        Self { addresses, fresh_for: self.fresh_for.min(other.fresh_for), silent: None }
    }
}

/// The name and whom to ask, read anew for each resolution.
struct Questions {
    name: Name,
    hosts: Hosts,
    config: ResolverConfig,
    options: ResolverOpts,
}

impl Questions {
    fn read(name: &str, nameservers: &[SocketAddr]) -> Result<Self, NetError> {
        // Without a resolv.conf there is still the hosts file, and the name servers of the settings.
        let (mut config, mut options) = read_system_conf()
            .unwrap_or_else(|_| (ResolverConfig::from_name_servers(Vec::new()), ResolverOpts::default()));
        if !nameservers.is_empty() {
            let servers = nameservers.iter().map(|address| {
                let mut server = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut server.connections {
                    connection.port = address.port();
                }
                server
            });
            config = ResolverConfig::from_parts(config.domain().cloned(), config.search().to_vec(), servers.collect());
        }
        options.timeout = NEVER;
        // They are retries, multiply with every search domain, and share the first question's fate.
        options.attempts = 0;
        options.cache_size = 0;
        Ok(Self { name: Name::from_utf8(name)?, hosts: Hosts::from_system().unwrap_or_default(), config, options })
    }

    /// Asks once: a resolver of its own, since one resolver asks the same question only once at a time.
    async fn ask(&self, kind: RecordType) -> Result<Resolved, NetError> {
        // With search domains the resolver would look for the first of its candidates only.
        let mut whole = self.name.clone();
        whole.set_fqdn(true);
        let in_file = |kind| self.hosts.lookup_static_host(&Query::query(whole.clone(), kind));
        if let Some(lookup) = in_file(kind) {
            return Resolved::of(&lookup);
        }
        // Whoever wrote an address of one kind there meant this machine to use no other.
        if [RecordType::A, RecordType::AAAA].into_iter().any(|kind| in_file(kind).is_some()) {
            return Err(NoRecords::new(Query::query(whole, kind), ResponseCode::NoError).into());
        }
        let mut builder = TokioResolver::builder_with_config(self.config.clone(), TokioRuntimeProvider::default());
        *builder.options_mut() = self.options.clone();
        Resolved::of(&builder.build()?.lookup(self.name.clone(), kind).await?)
    }
}

fn failed(name: &str, error: &NetError) -> StoreError {
    let message = match error {
        error if error.is_nx_domain() => format!("there is no host {name:?}: check host or database_url"),
        error if error.is_no_records_found() => {
            format!("the name {name:?} has no address: check host or database_url, and the name server's entry")
        }
        NetError::Dns(DnsError::ResponseCode(code)) => {
            format!("the name server cannot look up {name:?} ({code}): see its log, or set nameservers")
        }
        NetError::NoConnections if descriptors::none_left() => {
            format!("{name:?} cannot be looked up: {}", descriptors::USED_UP)
        }
        NetError::NoConnections => {
            format!("no name server to look up {name:?}: check /etc/resolv.conf, or set nameservers")
        }
        error => format!("{name:?} cannot be looked up ({error}): check the name server, or set nameservers"),
    };
    StoreError::new(Stage::Dns, Failing::Unavailable, message)
}
