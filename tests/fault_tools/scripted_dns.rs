//! The scripted DNS server, judged at hickory-resolver.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;
use tokio::net::{TcpStream, UdpSocket};
use tokio::pin;
use tokio::time::timeout;

use crate::tools::scripted_dns::{Reply, ScriptedDns, Transport};

const NAME: &str = "store.example";
/// How long the resolver waits for one answer.
const PATIENCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn addresses_come_with_their_ttl_and_by_their_type() {
    let server = ScriptedDns::start();
    server.set_both(NAME, &Reply::addresses(&[ip("192.0.2.1"), ip("2001:db8::1"), ip("192.0.2.2")], 7));
    let lookup = resolver(&server).lookup(NAME, RecordType::A).await.unwrap();
    assert!(lookup.answers().iter().all(|record| record.ttl == 7), "{:?}", lookup.answers());
    assert_eq!(addresses(&server, RecordType::A).await.unwrap(), [ip("192.0.2.1"), ip("192.0.2.2")]);
    assert_eq!(addresses(&server, RecordType::AAAA).await.unwrap(), [ip("2001:db8::1")]);
    let asked = &server.queries()[0];
    assert_eq!((asked.name.as_str(), asked.record_type, asked.transport), (NAME, RecordType::A, Transport::Udp));
    assert_eq!(asked.server, server.address().ip());
}

#[tokio::test]
async fn an_answer_changes_while_it_runs() {
    let server = ScriptedDns::start();
    for address in ["192.0.2.1", "192.0.2.2"] {
        server.set(NAME, RecordType::A, Reply::addresses(&[ip(address)], 1));
        assert_eq!(addresses(&server, RecordType::A).await.unwrap(), [ip(address)]);
    }
}

#[tokio::test]
async fn silence_is_silence_and_ends_when_it_is_told() {
    let server = ScriptedDns::start();
    server.set_both(NAME, &Reply::silence());
    assert!(matches!(addresses(&server, RecordType::A).await.unwrap_err(), NetError::Timeout));
    assert!(!server.queries().is_empty());
    server.set_both(NAME, &Reply::addresses(&[ip("192.0.2.1")], 1));
    addresses(&server, RecordType::A).await.unwrap();
}

#[tokio::test]
async fn no_such_name_no_data_and_failures_are_told_apart() {
    let server = ScriptedDns::start();
    let no_records = |error: NetError| match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => (none.response_code, none.negative_ttl),
        other => panic!("{other:?}"),
    };
    server.set(NAME, RecordType::A, Reply::no_such_name(9));
    assert_eq!(no_records(addresses(&server, RecordType::A).await.unwrap_err()), (ResponseCode::NXDomain, Some(9)));
    server.set(NAME, RecordType::A, Reply::no_data(8));
    assert_eq!(no_records(addresses(&server, RecordType::A).await.unwrap_err()), (ResponseCode::NoError, Some(8)));
    // A name that nobody scripted; and addresses of the other type only.
    assert_eq!(no_records(addresses(&server, RecordType::AAAA).await.unwrap_err()).0, ResponseCode::NXDomain);
    server.set_both(NAME, &Reply::addresses(&[ip("2001:db8::1")], 5));
    assert_eq!(no_records(addresses(&server, RecordType::A).await.unwrap_err()), (ResponseCode::NoError, Some(5)));
    for (reply, code) in [(Reply::server_failure(), ResponseCode::ServFail), (Reply::refused(), ResponseCode::Refused)]
    {
        server.set(NAME, RecordType::A, reply);
        let error = addresses(&server, RecordType::A).await.unwrap_err();
        assert!(matches!(error, NetError::Dns(DnsError::ResponseCode(its)) if its == code), "{error:?}");
    }
}

#[tokio::test]
async fn an_alias_is_followed_in_the_same_answer() {
    let server = ScriptedDns::start();
    server.set(NAME, RecordType::A, Reply::alias("primary.example", 3));
    server.set("primary.example", RecordType::A, Reply::addresses(&[ip("192.0.2.9")], 3));
    assert_eq!(addresses(&server, RecordType::A).await.unwrap(), [ip("192.0.2.9")]);
    assert_eq!(server.queries().len(), 1);
}

#[tokio::test]
async fn one_type_answers_while_the_other_is_silent() {
    let server = ScriptedDns::start();
    server.set(NAME, RecordType::A, Reply::addresses(&[ip("192.0.2.1")], 1));
    server.set(NAME, RecordType::AAAA, Reply::silence());
    let resolver = resolver(&server);
    let slow = resolver.lookup(NAME, RecordType::AAAA);
    pin!(slow);
    assert!(timeout(Duration::from_millis(50), &mut slow).await.is_err());
    assert_eq!(addresses(&server, RecordType::A).await.unwrap(), [ip("192.0.2.1")]);
    assert!(slow.await.is_err());
}

#[tokio::test]
async fn a_delay_is_as_long_as_it_says_and_holds_nobody_else() {
    let server = ScriptedDns::start();
    let reply = Reply::addresses(&[ip("192.0.2.1")], 1);
    server.set(NAME, RecordType::A, reply.clone().after(Duration::from_millis(150)));
    server.set("fast.example", RecordType::A, reply);
    let (slow, fast) = (resolver(&server), resolver(&server));
    let asked = Instant::now();
    let slow = async { slow.lookup(NAME, RecordType::A).await.map(|_| asked.elapsed()).unwrap() };
    let fast = async { fast.lookup("fast.example", RecordType::A).await.map(|_| asked.elapsed()).unwrap() };
    let (slow, fast) = tokio::join!(slow, fast);
    assert!((Duration::from_millis(150)..PATIENCE).contains(&slow), "{slow:?}");
    assert!(fast < slow, "{fast:?}, {slow:?}");
}

#[tokio::test]
async fn a_truncated_answer_is_whole_over_tcp_unless_nobody_listens_there() {
    let server = ScriptedDns::start();
    server.set(NAME, RecordType::A, Reply::addresses(&[ip("192.0.2.1")], 1).truncated());
    assert_eq!(addresses(&server, RecordType::A).await.unwrap(), [ip("192.0.2.1")]);
    let transports: Vec<Transport> = server.queries().iter().map(|query| query.transport).collect();
    assert_eq!(transports, [Transport::Udp, Transport::Tcp]);

    server.tcp(false);
    let refused = TcpStream::connect(server.address()).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let heard = addresses(&server, RecordType::A).await;
    assert!(matches!(heard, Err(NetError::Truncated)), "{heard:?}");
    server.tcp(true);
    assert_eq!(addresses(&server, RecordType::A).await.unwrap(), [ip("192.0.2.1")]);
}

#[tokio::test]
async fn a_wrong_id_and_garbage_are_no_answer() {
    let server = ScriptedDns::start();
    let good = Reply::addresses(&[ip("192.0.2.1")], 1);
    for bad in [good.clone().with_wrong_id(), Reply::garbage()] {
        server.set(NAME, RecordType::A, bad.clone());
        assert!(addresses(&server, RecordType::A).await.is_err(), "{bad:?}");
    }
    // As sent: something does come, which is how both differ from silence.
    server.set(NAME, RecordType::A, good.clone().with_wrong_id());
    assert_eq!(raw_answer(&server).await[..2], [0x12, 0x35]);
    server.set(NAME, RecordType::A, Reply::garbage());
    let heard = raw_answer(&server).await;
    assert_eq!(heard[..2], [0x12, 0x34]);
    assert!(hickory_resolver::proto::op::Message::from_vec(&heard).is_err());
    server.set(NAME, RecordType::A, good);
    assert_eq!(raw_answer(&server).await[..2], [0x12, 0x34]);
}

#[tokio::test]
async fn several_addresses_are_several_servers_of_one_port() {
    let (first, second) = (ip("127.0.0.2"), ip("127.0.0.3"));
    let server = ScriptedDns::start_on(&[first, second]);
    let [one, two] = server.addresses() else { panic!("{:?}", server.addresses()) };
    assert_eq!(one.port(), two.port());
    server.set(NAME, RecordType::A, Reply::addresses(&[ip("192.0.2.1")], 1));
    server.set_server(first, Some(Reply::silence()));
    assert!(resolver_at(*one).lookup(NAME, RecordType::A).await.is_err());
    resolver_at(*two).lookup(NAME, RecordType::A).await.unwrap();
    server.set_server(first, None);
    resolver_at(*one).lookup(NAME, RecordType::A).await.unwrap();
    assert!(server.queries().iter().any(|query| query.server == second));
}

#[tokio::test]
async fn when_it_is_dropped_nobody_answers_any_more() {
    let server = ScriptedDns::start();
    let address = server.address();
    let connected = TcpStream::connect(address).await.unwrap();
    drop(server);
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    UdpSocket::bind(address).await.expect("the port is free again");
    connected.readable().await.unwrap();
    assert!(connected.try_read(&mut [0]).map_or(true, |read| read == 0));
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

async fn addresses(server: &ScriptedDns, record_type: RecordType) -> Result<Vec<IpAddr>, NetError> {
    let lookup = resolver(server).lookup(NAME, record_type).await?;
    Ok(lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect())
}

/// A resolver that asks this server alone, once, and remembers nothing.
fn resolver(server: &ScriptedDns) -> TokioResolver {
    resolver_at(server.address())
}

fn resolver_at(address: SocketAddr) -> TokioResolver {
    let mut name_server = NameServerConfig::udp_and_tcp(address.ip());
    for connection in &mut name_server.connections {
        connection.port = address.port();
    }
    let config = ResolverConfig::from_parts(None, vec![], vec![name_server]);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    (options.timeout, options.attempts, options.cache_size) = (PATIENCE, 0, 0);
    options.use_hosts_file = ResolveHosts::Never;
    builder.build().unwrap()
}

/// What comes back over UDP for a question with the id 0x1234.
async fn raw_answer(server: &ScriptedDns) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05store\x07example\x00\x00\x01\x00\x01";
    socket.send_to(question, server.address()).await.unwrap();
    let mut answer = vec![0; 512];
    let (length, _) = timeout(Duration::from_secs(5), socket.recv_from(&mut answer)).await.expect("an answer").unwrap();
    answer.truncate(length);
    answer
}
