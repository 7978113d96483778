//! `probe-window` against the mock vendor, which plays each kind of window.

use std::time::Duration;

use call_budget::service::mock_vendor::{Kind, MockVendor, Settings};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::watching::Terminal;
use crate::{Outcome, call_budget};

const PRICE: &str = "/uapi/domestic-stock/v1/quotations/inquire-price";

async fn vendor(change: impl FnOnce(&mut Settings)) -> MockVendor {
    let mut settings = Settings { limit: 8, ..Settings::default() };
    change(&mut settings);
    MockVendor::start(settings).await.unwrap()
}

async fn probe(vendor: &MockVendor, more: &[&str]) -> Outcome {
    let url = format!("http://{}{PRICE}?secret=not-a-real-query", vendor.addr());
    let fixed = ["probe-window", url.as_str(), "--window", "1s", "--vendor", "kis", "--header", "tr_id: FHKST01010100"];
    call_budget("postgres://nobody@127.0.0.1:1/none", &[&fixed, more].concat()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_is_told_from_the_others_at_the_real_vendor_with_few_refusals() {
    let mut told = [0; 3];
    for _ in 0..2 {
        let [sliding, fixed, first_call] = [Kind::Sliding, Kind::Fixed, Kind::FirstCall].map(told_rightly);
        let (sliding, fixed, first_call) = tokio::join!(sliding, fixed, first_call);
        for (count, this) in told.iter_mut().zip([sliding, fixed, first_call]) {
            *count += u32::from(this);
        }
    }
    assert!(told.iter().all(|count| *count > 0), "sliding, fixed, first-call of two each: {told:?}");
}

/// False where it was left undecided, as on a machine that stands still. Panics where another kind is told.
async fn told_rightly(kind: Kind) -> bool {
    let vendor = vendor(|settings| settings.kind = kind).await;
    let outcome = probe(&vendor, &["--limit", "8", "--yes", "--json"]).await;
    let report = vendor.report();
    vendor.stop().await;
    let figures: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.stderr));
    println!("{kind:?}: {figures}");
    assert_eq!((&figures["calls"], &figures["refused"]), (&report.arrivals.into(), &report.refused.into()));
    assert!(report.refused <= figures["most_refused"].as_u64().unwrap(), "{figures}");
    assert!(report.arrivals <= figures["most_calls"].as_u64().unwrap(), "{figures}");
    assert_eq!(figures["safe_interval_us"], 137_639);
    let told = figures["kind"] == serde_json::to_value(kind).unwrap();
    let too_slow = figures["undecided"].as_str().is_some_and(|why| why.starts_with("nothing contradicts"));
    assert!(told && outcome.exit == 0 || too_slow && outcome.exit == 4, "{kind:?}: {figures}");
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_believed_wrongly_is_named_and_nothing_is_told() {
    for (limit, said) in [(5, "not 8"), (20, "higher than 8")] {
        let vendor = vendor(|settings| settings.limit = limit).await;
        let outcome = probe(&vendor, &["--limit", "8", "--yes"]).await;
        vendor.stop().await;
        assert_eq!(outcome.exit, 4, "{outcome:?}");
        assert!(outcome.stdout.starts_with("undecided: ") && outcome.stdout.contains(said), "{outcome:?}");
        assert!(!outcome.stdout.contains("budget set"), "{outcome:?}");
    }
}

#[tokio::test]
async fn without_a_terminal_and_without_yes_nothing_is_sent() {
    let vendor = vendor(|_| {}).await;
    let outcome = probe(&vendor, &["--limit", "8"]).await;
    outcome.refused(2, &["up to 144 calls", "--yes"]);
    assert_eq!(vendor.report().arrivals, 0);
    vendor.stop().await;
}

#[tokio::test]
async fn at_a_terminal_it_says_how_much_it_sends_and_a_no_sends_nothing() {
    let vendor = vendor(|_| {}).await;
    let mut terminal =
        Terminal::run("", &format!("probe-window http://{}{PRICE} --limit 8 --window 1s", vendor.addr()));
    let asked = async { while !terminal.shown.contains("go on? [y/N]") && terminal.more().await {} };
    timeout(Duration::from_secs(30), asked).await.expect("it asks");
    assert!(terminal.shown.starts_with("sends at most 144 calls to http://127.0.0.1"), "{}", terminal.shown);
    terminal.type_in("n\n").await;
    let rest = async { while terminal.more().await {} };
    timeout(Duration::from_secs(30), rest).await.expect("it ends");
    let status = timeout(Duration::from_secs(30), terminal.child.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.code(), Some(1), "{}", terminal.shown);
    assert!(terminal.shown.contains("nothing was sent"), "{}", terminal.shown);
    assert_eq!(vendor.report().arrivals, 0);
    vendor.stop().await;
}

#[tokio::test]
async fn a_vendor_that_cannot_be_called_is_named_and_no_key_is_shown() {
    let vendor = vendor(|settings| settings.check_tokens = true).await;
    let url = format!("http://{}{PRICE}?secret=not-a-real-query", vendor.addr());
    let secret = "authorization: Bearer not-a-real-token";
    let believed = ["--limit", "8", "--window", "1s", "--yes", "--header", secret];
    // The vendor wants a token, nobody listens, nobody speaks TLS, and the header is none.
    let refused = call_budget("", &[&["probe-window", &url, "--vendor", "kis"], &believed[..]].concat()).await;
    let nobody =
        call_budget("", &[&["probe-window", "http://127.0.0.1:1/?key=not-a-real-key"], &believed[..]].concat()).await;
    let tls = call_budget("", &[&["probe-window", &url.replace("http:", "https:")], &believed[..]].concat()).await;
    let header =
        call_budget("", &[&["probe-window", &url], &believed[..], &["--header", "not-a-real-token"]].concat()).await;
    for (outcome, exit, word) in [
        (refused, 1, "a probe needs a call that succeeds"),
        (nobody, 1, "cannot be connected to"),
        (tls, 1, "TLS with 127.0.0.1 failed"),
        (header, 2, "--header number 2 has no colon"),
    ] {
        assert_eq!((outcome.exit, outcome.stdout.as_str()), (exit, ""), "{outcome:?}");
        assert!(outcome.stderr.contains(word) && !outcome.stderr.contains("not-a-real"), "{outcome:?}");
    }
    vendor.stop().await;
}

#[tokio::test]
async fn a_redirect_is_no_call_that_was_let_through_and_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/price", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let moved = "HTTP/1.1 301 Moved\r\nlocation: /not-a-real-key\r\ncontent-length: 0\r\n\r\n";
                        let _ = stream.write_all(moved.as_bytes()).await;
                    }
                }
            });
        }
    });
    for vendor in [&[][..], &["--vendor", "kis"][..]] {
        let probe = ["probe-window", url.as_str(), "--limit", "8", "--window", "200ms", "--yes"];
        let outcome = call_budget("", &[&probe, vendor].concat()).await;
        assert_eq!((outcome.exit, outcome.stdout.as_str()), (1, ""), "{outcome:?}");
        let told = outcome.stderr.contains("it answered with a redirect (301): probe the address it leads to");
        assert!(told && !outcome.stderr.contains("not-a-real-key"), "{outcome:?}");
    }
}
