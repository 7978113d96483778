//! The command, as a process.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::wire::{Wire, request, within};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_call-budget"));
    command.arg("mock-vendor").args(args).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn first_line(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    within(lines.next_line()).await.unwrap().unwrap()
}

async fn answers(line: &str) -> bool {
    let addr: SocketAddr = line.strip_prefix("listening on http://").unwrap().parse().unwrap();
    Wire::to(addr).await.ask(&request("GET", "/mock/report", "", "")).await.status == 200
}

async fn ended(child: &mut Child) -> ExitStatus {
    within(child.wait()).await.unwrap()
}

#[tokio::test]
async fn it_tells_its_address_and_ends_well_on_sigterm_and_sigint() {
    for signal in ["-TERM", "-INT"] {
        let mut child = command(&[]).spawn().unwrap();
        assert!(answers(&first_line(&mut child).await).await);
        let pid = child.id().unwrap().to_string();
        assert!(within(Command::new("kill").args([signal, &pid]).status()).await.unwrap().success());
        assert_eq!(ended(&mut child).await.code(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn it_ends_when_its_stdin_ends_and_only_if_asked_to() {
    let mut child = command(&["--until-stdin-closes"]).spawn().unwrap();
    assert!(answers(&first_line(&mut child).await).await);
    drop(child.stdin.take());
    assert_eq!(ended(&mut child).await.code(), Some(0));

    let mut child = command(&[]).stdin(Stdio::null()).spawn().unwrap();
    let line = first_line(&mut child).await;
    assert!(answers(&line).await && answers(&line).await);
    assert_eq!(child.try_wait().unwrap(), None);
}

#[tokio::test]
async fn its_flags_reach_the_vendor_and_json_is_one_line() {
    let args = ["--json", "--limit", "3", "--window", "250ms", "--kind", "first-call", "--check-tokens"];
    let mut child = command(&args).spawn().unwrap();
    let line: serde_json::Value = serde_json::from_str(&first_line(&mut child).await).unwrap();
    let addr = line["listening"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    let mut wire = Wire::to(addr).await;
    let report = wire.ask(&request("GET", "/mock/report", "", "")).await.json();
    assert_eq!((&report["limit"], &report["window_us"]), (&3.into(), &250_000.into()));
    assert_eq!(report["kind"], "first-call");
    let path = "/uapi/domestic-stock/v1/quotations/inquire-price";
    assert_eq!(wire.ask(&request("GET", path, "tr_id: FHKST01010100\r\n", "")).await.code(), "EGW00122");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_a_sentence_with_exit_2() {
    for (args, named) in [
        (["--limit", "0"], "limit is 0"),
        (["--window", "0s"], "window"),
        (["--window", "soon"], "is not a duration"),
        (["--arrival-jitter=-1s", "--json"], "is not a duration of 0 or more"),
        (["--kind", "odd"], "odd"),
        (["--key", "lonely"], "APPKEY=APPSECRET"),
        (["--listen", "nowhere"], "nowhere"),
    ] {
        let output = within(command(&args).output()).await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test]
async fn an_address_in_use_is_named_with_exit_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = within(command(&["--listen", &addr]).output()).await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&addr) && stderr.contains("--listen"), "{stderr}");
}
