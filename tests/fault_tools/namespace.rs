use std::env;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use call_budget::service::scratch_postgres::ScratchPostgres;

use crate::not_tried;
use crate::tools::kept::bounded;
use crate::tools::namespace::{Firewall, available, command, here};
use crate::tools::psql::ask;

#[test]
fn packets_are_lost_inside_the_namespace_and_the_outer_one_is_untouched() {
    if let Err(why) = available() {
        return not_tried("lost packets", &why);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let rules_before = rules();
    let inside = |name: &str| {
        let arguments = ["--ignored", "--exact", "--nocapture", name];
        command(&env::current_exe().unwrap(), &arguments)
            .env("FAULT_TOOLS_OUTSIDE", address.to_string())
            .spawn()
            .unwrap()
    };
    let mut child = Ended(inside("namespace::inside"));
    // While packets are dropped in there, the same port works out here.
    while child.0.try_wait().unwrap().is_none() {
        TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        listener.accept().unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    assert!(child.0.wait().unwrap().success());
    assert_eq!(rules(), rules_before);
}

#[test]
fn outside_no_packet_can_be_dropped() {
    assert!(Firewall::new().err().unwrap().contains("not in a namespace"));
    if let Err(why) = available() {
        return not_tried("the outer namespace", &why);
    }
    // Somebody who claims to be inside and is not.
    let claims = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "namespace::claims_to_be_inside"])
        .env("CALL_BUDGET_FAULT_OUTER_NAMESPACE", here())
        .status();
    assert!(claims.unwrap().success());
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn claims_to_be_inside() {
    assert!(Firewall::new().err().unwrap().contains("the outer network namespace"));
}

#[test]
#[ignore = "run by the test above, in a namespace of its own"]
fn inside() {
    let outside: SocketAddr = env::var("FAULT_TOOLS_OUTSIDE").unwrap().parse().unwrap();
    let refused = TcpStream::connect_timeout(&outside, PATIENCE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "the outer loopback is not in here");
    let firewall = Firewall::new().unwrap();
    // The port that is in use outside.
    let listener = TcpListener::bind(outside).unwrap();
    syn_is_never_answered(&firewall, &listener);
    an_open_connection_goes_silent(&firewall, &listener);
    a_reset_is_one(&firewall, &listener);
    postgres_runs_in_here(&firewall);
}

fn syn_is_never_answered(firewall: &Firewall, listener: &TcpListener) {
    let address = listener.local_addr().unwrap();
    for drop in [Firewall::drop_syn, Firewall::drop_port] {
        let (mut near, mut far) = pair(listener);
        drop(firewall, address.port());
        let began = Instant::now();
        assert_eq!(TcpStream::connect_timeout(&address, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() >= SHORT);
        firewall.lift();
        TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        listener.accept().unwrap();
        says(&mut near, &mut far);
    }
    let (mut near, mut far) = pair(listener);
    firewall.drop_syn(address.port());
    says(&mut near, &mut far);
    firewall.lift();
}

fn an_open_connection_goes_silent(firewall: &Firewall, listener: &TcpListener) {
    let (mut near, mut far) = pair(listener);
    says(&mut near, &mut far);
    firewall.drop_port(listener.local_addr().unwrap().port());
    near.write_all(b"lost").unwrap();
    far.write_all(b"lost").unwrap();
    for end in [&mut near, &mut far] {
        let silence = end.read(&mut [0; 16]).unwrap_err();
        assert_eq!(silence.kind(), ErrorKind::WouldBlock, "neither data nor a reset");
    }
    // Even the end of one side, with unread data a reset, does not reach the other.
    drop(far);
    assert_eq!(near.read(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
    firewall.lift();
}

fn a_reset_is_one(firewall: &Firewall, listener: &TcpListener) {
    let (mut near, _far) = pair(listener);
    firewall.reset_port(listener.local_addr().unwrap().port());
    near.write_all(b"x").unwrap();
    assert_eq!(near.read(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    firewall.lift();
}

fn postgres_runs_in_here(firewall: &Firewall) {
    let server = ScratchPostgres::start(&[]).unwrap();
    assert_eq!(ask(&server, "SELECT 1"), "1");
    firewall.drop_port(server.port());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    assert_eq!(TcpStream::connect_timeout(&address, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
    firewall.lift();
    assert_eq!(ask(&server, "SELECT 1"), "1");
}

fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect_timeout(&listener.local_addr().unwrap(), PATIENCE).unwrap();
    let far = listener.accept().unwrap().0;
    for end in [&near, &far] {
        end.set_read_timeout(Some(SHORT)).unwrap();
    }
    (near, far)
}

fn says(near: &mut TcpStream, far: &mut TcpStream) {
    near.write_all(b"word").unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = [0; 4];
    far.read_exact(&mut heard).unwrap();
    far.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(&heard, b"word");
}

/// Does not outlive its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The packet filter's tables out here.
fn rules() -> String {
    let nft = ["/usr/sbin/nft", "/usr/bin/nft", "/sbin/nft"].into_iter().find(|nft| Path::new(nft).exists()).unwrap();
    String::from_utf8(bounded(Command::new(nft).args(["list", "tables"]), PATIENCE).unwrap().stdout).unwrap()
}

const SHORT: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(10);
