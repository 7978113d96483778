//! Faults before there is a session.

use std::net::{Ipv4Addr, SocketAddr};

use call_budget::Code;
use call_budget::policy::stage::Stage;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, sleep};

use crate::suite::error::{judged, says};
use crate::suite::{Case, DATABASE_NAME, HEALS, HEALS_SOON, How, Length, Proxied, Round, nothing};
use crate::tools::namespace::{self, Firewall};
use crate::tools::proxy::{Stream, Toxic};
use crate::tools::scripted_dns::{Reply, ScriptedDns};

/// One store call: the default `statement_timeout` and half a second.
const STORE_CALL: Duration = Duration::from_secs(1);

pub const CASES: &[Case] = &[
    Case {
        row: 1,
        id: "1.handshake_delayed",
        name: "every answer to the TLS handshake comes 0.6 s late",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(delayed(round, Duration::from_millis(600), Stage::Tls)),
    },
    Case {
        row: 1,
        id: "1.login_delayed",
        name: "every answer comes 0.22 s late: the login takes too long",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(delayed(round, Duration::from_millis(220), Stage::Startup)),
    },
    Case {
        row: 1,
        id: "1.every_stage_slow",
        name: "DNS, TLS and login are each within the call's bound, and together over it",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(every_stage_slow(round)),
    },
    Case {
        row: 2,
        id: "2.syn",
        name: "the SYN is never answered",
        how: How::Namespace,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS,
        needs: namespace::available,
        own_process: Some(namespace::WORDS),
        run: |round| Box::pin(syn(round)),
    },
    Case {
        row: 3,
        id: "3.refused",
        name: "nobody listens: the connection is refused",
        how: How::Server,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(refused(round)),
    },
];

/// Each answer of the server comes `latency` late; in `stage` the time is over.
async fn delayed(round: &mut Round, latency: Duration, stage: Stage) {
    let proxy = Proxied::start(round).await;
    let mut settings = round.settings(proxy.url(round));
    settings.store_outage_max = Duration::ZERO;
    let caller = round.caller(&settings).await;
    let latency = u64::try_from(latency.as_millis()).expect("a short time");
    let toxic = proxy.poison(Stream::Downstream, Toxic::Latency { latency, jitter: 0 }).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    judged(&error, stage, 0);
    says(&error, &[&proxy.address().to_string(), "is connected and does not"]);

    round.healing(&caller, proxy.cure(&toxic)).await;
}

/// DNS takes 0.7 s, the two round trips of TLS 0.4 s, the four of the login 0.8 s. Timers that start anew with each stage
/// would let the call go on for more than 2 s.
async fn every_stage_slow(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let dns = ScriptedDns::start();
    let addresses = Reply::addresses(&[proxy.address().ip()], 1);
    dns.set_both(DATABASE_NAME, &addresses.clone().after(Duration::from_millis(700)));
    let toxic = proxy.poison(Stream::Downstream, Toxic::Latency { latency: 200, jitter: 0 }).await;
    let mut settings = round.settings(round.database().url_by_name(DATABASE_NAME, proxy.address().port()));
    settings.nameservers = vec![dns.address().to_string()];
    settings.max_wait = 3 * STORE_CALL;
    settings.store_outage_max = Duration::ZERO;
    let caller = round.caller(&settings).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    judged(&error, Stage::Tls, 0);
    says(&error, &[DATABASE_NAME, "does not answer the TLS handshake"]);

    dns.set_both(DATABASE_NAME, &addresses);
    round.healing(&caller, proxy.cure(&toxic)).await;
}

async fn syn(round: &mut Round) {
    let address = round.database().address();
    let mut settings = round.settings(round.database().url_by_way_of(address));
    settings.store_outage_max = Duration::ZERO;
    // The server is new, and slow to let in its first.
    round.caller(&settings).await.send().await;
    let caller = round.caller(&settings).await;
    let firewall = Firewall::new().unwrap_or_else(|why| panic!("{why}"));
    firewall.drop_syn(address.port());

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    judged(&error, Stage::Connect, 0);
    says(&error, &[&address.to_string(), "firewall"]);

    // Anywhere between two attempts, not always right after the beginning of one.
    let heal = async {
        sleep(STORE_CALL.mul_f64(fastrand::f64())).await;
        firewall.lift();
    };
    round.healing(&caller, heal).await;
}

async fn refused(round: &mut Round) {
    let closed = closed_port().await;
    let mut settings = round.settings(round.database().url_by_way_of(closed));
    settings.max_wait = STORE_CALL;
    let caller = round.caller(&settings).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!(error.stage(), Some(Stage::Connect), "{error}");
    assert!(matches!(error.code(), Code::StoreUnavailable | Code::WaitExceeded), "{error}");
    assert!(!error.may_have_spent(), "{error}");
    says(&error, &[&closed.to_string(), "refused", "listen_addresses"]);

    let server = round.database().address();
    let _listens = round.healing(&caller, Forward::start(closed, server)).await;
}

/// Somebody who listens after all, and passes everything on.
struct Forward(JoinHandle<()>);

impl Forward {
    async fn start(from: SocketAddr, to: SocketAddr) -> Self {
        let listener = TcpListener::bind(from).await.expect("the port is still free");
        Self(tokio::spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                links.spawn(async move {
                    let mut far = TcpStream::connect(to).await?;
                    near.set_nodelay(true)?;
                    far.set_nodelay(true)?;
                    copy_bidirectional(&mut near, &mut far).await
                });
            }
        }))
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A port of loopback on which nobody listens, below those that systems give to outgoing connections.
async fn closed_port() -> SocketAddr {
    loop {
        let address = (Ipv4Addr::LOCALHOST, fastrand::u16(15_000..32_000)).into();
        if TcpListener::bind(address).await.is_ok() {
            return address;
        }
    }
}
