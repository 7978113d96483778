//! Faults before there is a connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use call_budget::Code;
use call_budget::policy::stage::Stage;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::suite::{Case, HEALS_SOON, How, Length, Round, nothing};

pub const CASES: &[Case] = &[Case {
    row: 3,
    id: "3.refused",
    name: "nobody listens: the connection is refused",
    how: How::Server,
    deadline: Duration::from_secs(1),
    length: Length::Short,
    heals: HEALS_SOON,
    needs: nothing,
    own_process: None,
    run: |round| Box::pin(refused(round)),
}];

async fn refused(round: &mut Round) {
    let closed = closed_port().await;
    let mut settings = round.settings(round.database().url_by_way_of(closed));
    settings.max_wait = Duration::from_secs(1);
    let caller = round.caller(&settings).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!(error.stage(), Some(Stage::Connect), "{error}");
    assert!(matches!(error.code(), Code::StoreUnavailable | Code::WaitExceeded), "{error}");
    assert!(!error.may_have_spent(), "{error}");

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
