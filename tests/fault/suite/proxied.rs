//! A proxy in front of a round's database, by toxiproxy's API: our own one, or the real one that `TOXIPROXY_URL` names.
//!
//! The real one may run elsewhere, in a container say, and sees the machine with other eyes. `TOXIPROXY_LISTEN` is what it
//! is to listen on, `TOXIPROXY_UPSTREAM` where it finds the database: HOST or HOST:PORT each. What they leave out is a free
//! port, and the port that the database has here.

use std::env;
use std::net::SocketAddr;
use std::ops::Deref;

use tokio::net::lookup_host;
use tokio::runtime::Handle;

use super::ground;
use super::round::Round;
use crate::tools::proxy::{FaultProxy, OwnProxy, RemoteProxy, Stream, Toxic, Toxiproxy};

/// The proxy, with toxiproxy's own calls. Dropping it ends our own one, and deletes its place in the real one.
pub struct Proxied {
    /// `None`: the real one.
    own: Option<FaultProxy>,
    proxy: RemoteProxy,
    address: SocketAddr,
}

impl Proxied {
    /// One in front of the round's database, with no fault yet.
    ///
    /// # Panics
    /// The toxiproxy that is named does not answer, or cannot listen.
    pub async fn start(round: &Round) -> Self {
        // One beside a database that was given from outside reaches that database alone, no server of the round's own.
        let reached = !ground::is_given() || round.database().images().is_some();
        match env::var("TOXIPROXY_URL") {
            Ok(url) if reached => {
                round.uses("toxiproxy");
                Self::at(round, &Toxiproxy::at(&url), None, &place_of("TOXIPROXY_LISTEN", LOOPBACK, 0)).await
            }
            _ => Self::our_own(round).await,
        }
    }

    /// Our own one wherever the real one is, for what only it can do: faults at an exact byte, and counting. The report's
    /// row says so.
    pub async fn start_own(round: &mut Round) -> Self {
        if env::var_os("TOXIPROXY_URL").is_some() {
            round.note("by the own fault proxy, since toxiproxy has no faults at an exact byte and counts nothing");
        }
        Self::our_own(round).await
    }

    async fn our_own(round: &Round) -> Self {
        let own = FaultProxy::start().await;
        let toxiproxy = Toxiproxy::at(&own.url());
        Self::at(round, &toxiproxy, Some(own), &format!("{LOOPBACK}:0")).await
    }

    async fn at(round: &Round, toxiproxy: &Toxiproxy, own: Option<FaultProxy>, listen: &str) -> Self {
        let database = round.database().address();
        let upstream = match own {
            Some(_) => database.to_string(),
            None => place_of("TOXIPROXY_UPSTREAM", &database.ip().to_string(), database.port()),
        };
        // A round may have several, and one that was killed may have left its own in the real one.
        let name = format!("{}-{:04x}", round.application_name().replace(' ', "-"), fastrand::u16(..));
        let proxy = toxiproxy.create(&name, listen, &upstream).await.unwrap_or_else(|error| panic!("{error}"));
        let found = lookup_host(proxy.address()).await.map(|mut found| found.next());
        let address = found.ok().flatten().unwrap_or_else(|| panic!("{} has no address here", proxy.address()));
        Self { own, proxy, address }
    }

    /// Where callers reach the database through it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The callers' URL, by way of it.
    pub fn url(&self, round: &Round) -> String {
        round.database().url_by_way_of(self.address)
    }

    /// What is not in toxiproxy's API.
    ///
    /// # Panics
    /// It is the real one: [`Proxied::start_own`] never gives that.
    pub fn own(&self) -> OwnProxy {
        let own = self.own.as_ref().expect("a case that needs the own proxy starts it with start_own");
        own.own(self.proxy.name()).expect("it was made with this one")
    }

    /// Adds a toxic to every connection, open ones too. Returns its name.
    ///
    /// # Panics
    /// As the proxy says no, or nothing.
    pub async fn poison(&self, stream: Stream, toxic: Toxic) -> String {
        self.proxy.add(stream, toxic).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Takes a toxic away. (That of a `Timeout` closes the connections whose data was dropped.)
    ///
    /// # Panics
    /// As the proxy says no, or nothing.
    pub async fn cure(&self, toxic: &str) {
        self.proxy.remove(toxic).await.unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Deref for Proxied {
    type Target = RemoteProxy;

    fn deref(&self) -> &RemoteProxy {
        &self.proxy
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        // The real one outlives the run. What is left of its answer is nobody's business.
        if let (None, Ok(runtime)) = (&self.own, Handle::try_current()) {
            runtime.spawn(self.proxy.clone().delete());
        }
    }
}

/// HOST:PORT as the variable says it; what it leaves out is as given.
fn place_of(variable: &str, host: &str, port: u16) -> String {
    match env::var(variable) {
        Ok(place) if place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => place,
        Ok(host) => format!("{host}:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}

const LOOPBACK: &str = "127.0.0.1";
