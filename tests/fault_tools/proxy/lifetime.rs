//! Nothing is left: tasks, sockets, connections.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::{Rig, drain, receive, send, silent, soon};
use crate::tools::proxy::{Action, Counters, Stream, Toxic, Trigger};

#[tokio::test]
async fn dropping_the_server_ends_its_tasks_and_closes_its_sockets() {
    dropping_leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_server_leaves_nothing_on_several_threads_either() {
    dropping_leaves_nothing().await;
}

async fn dropping_leaves_nothing() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let rig = Rig::new().await;
    rig.proxy.add(Stream::Downstream, Toxic::Latency { latency: 60_000, jitter: 0 }).await.unwrap();
    let own = rig.own();
    let armed = own.arm(Trigger::new(Stream::Upstream, 1, Action::Hold));
    let mut connections = Vec::new();
    for _ in 0..5 {
        let (mut client, mut server) = rig.connection().await;
        send(&mut client, b"held").await;
        send(&mut server, b"late").await;
        connections.push((client, server));
    }
    let api_port = rig.server.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let (listen, upstream) = (rig.proxy.port(), rig.upstream.local_addr().unwrap().port());
    let sockets = || sockets_of_the_proxy(&[api_port, listen], upstream);
    // The API, the listener, and two for each connection.
    assert_eq!(sockets(), 2 + 2 * 5);
    assert!(tasks() >= before + 7, "a task for the API, one for the listener, one for each connection");

    let Rig { server, upstream: listener, .. } = rig;
    drop(server);
    let ended = Instant::now() + Duration::from_secs(5);
    while tasks() + sockets() > before && Instant::now() < ended {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((tasks(), sockets()), (before, 0));
    for (mut client, mut server) in connections {
        // FIN, or RST where something was not read any more.
        assert!(drain(&mut client).await.0.is_empty());
        assert!(drain(&mut server).await.0.len() <= 1);
    }
    assert_eq!(own.counters().open, 0);
    drop((listener, armed, own));
}

#[tokio::test]
async fn dropped_connections_are_closed_when_the_call_returns_and_new_ones_are_welcome() {
    let rig = Rig::new().await;
    for (reset, ending) in [(false, None), (true, Some(ErrorKind::ConnectionReset))] {
        let (mut client, mut server) = rig.connection().await;
        send(&mut client, b"x").await;
        receive(&mut server, 1).await;
        rig.own().drop_connections(reset).await.unwrap();
        assert_eq!(rig.own().counters().open, 0);
        assert_eq!(drain(&mut client).await, (vec![], ending));
        assert_eq!(drain(&mut server).await, (vec![], ending));
        let (mut client, _server) = rig.connection().await;
        assert!(silent(&mut client).await);
        rig.own().drop_connections(false).await.unwrap();
    }
}

#[tokio::test]
async fn it_counts_connections_and_bytes() {
    let rig = Rig::new().await;
    let own = rig.own();
    let none = Counters { accepted: 0, open: 0, upstream_bytes: 0, downstream_bytes: 0 };
    assert_eq!(own.counters(), none);
    let (mut client, mut server) = rig.connection().await;
    let (_second, _) = rig.connection().await;
    send(&mut client, b"12345").await;
    receive(&mut server, 5).await;
    send(&mut server, b"123").await;
    receive(&mut client, 3).await;
    own.open_connections(1, Duration::from_secs(5)).await.expect("the second lost its server");
    assert_eq!(own.counters(), Counters { accepted: 2, open: 1, upstream_bytes: 5, downstream_bytes: 3 });
    drop(client);
    own.open_connections(0, Duration::from_secs(5)).await.unwrap();
    assert!(own.open_connections(1, Duration::from_millis(10)).await.is_err());
}

#[tokio::test]
async fn a_deleted_proxy_is_gone_with_its_connections() {
    let rig = Rig::new().await;
    let (mut client, _server) = rig.connection().await;
    let address = rig.proxy.address();
    rig.proxy.delete().await.unwrap();
    assert_eq!(drain(&mut client).await, (vec![], None));
    assert!(soon(TcpStream::connect(address)).await.is_err());
    assert!(rig.server.own("rig").is_none());
}

/// How many sockets of this process listen or were accepted on one of `local`, or are connected to `remote`.
fn sockets_of_the_proxy(local: &[u16], remote: u16) -> usize {
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':').unwrap().1, 16).unwrap();
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let its: BTreeSet<&str> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<&str>>())
        .filter(|fields| local.contains(&port(fields[1])) || port(fields[2]) == remote)
        .map(|fields| fields[9])
        .collect();
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned))
        .filter(|inode| its.contains(inode.as_str()))
        .count()
}
