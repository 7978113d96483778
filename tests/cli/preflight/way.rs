//! The ways there: cut, slow, encrypted; and the vendor's.

use std::io::{Read, Write};
use std::net::TcpListener as Listener;
use std::time::Duration;

use openssl::ssl::{SslAcceptor, SslFiletype, SslMethod};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Ground, preflight, preflight_calling, preflight_with, set_up};
use crate::tools::certificates::{Certificates, Identity, Shown};
use crate::tools::proxy::{FaultProxy, Stream, Toxic, Toxiproxy};
use crate::tools::tls_server::{Clients, TlsServer};
use crate::{call_budget, support, words};

#[tokio::test]
async fn where_no_server_answers_the_stage_that_failed_is_told_and_the_exit_says_so() {
    let port = Listener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let report = preflight(&format!("postgresql://me:not-a-real-password@127.0.0.1:{port}/prices"), "").await;
    report.passes(&["dns"]);
    report.says("connect", "fail", "check that PostgreSQL runs there");
    report.says("login", "not_measured", "see connect");
    report.says("schema", "not_measured", "the store cannot be reached");
    assert_eq!((report.exit, report.verdict.as_str()), (3, "fail"));
    assert!(!format!("{:?}{}", report.worse_than_pass(), report.stderr).contains("not-a-real-password"));
    let report = preflight("postgresql://me@no-such-host.invalid/prices", "").await;
    report.says("dns", "fail", "no-such-host.invalid");
    assert_eq!(report.exit, 3);
}

#[tokio::test]
async fn a_refused_login_is_told_by_its_line_after_those_of_the_stages_before() {
    let ground = Ground::new().await;
    let report = preflight(&ground.role.url.replace(":secret@", ":not-a-real-password@"), "").await;
    report.says("login", "fail", "refuses the password");
    report.says("tls", "pass", "loopback");
    report.passes(&["dns"]);
    report.says("rights", "not_measured", "the store cannot be reached");
    assert_eq!(report.exit, 3);
}

#[tokio::test]
async fn a_slow_way_is_told_with_the_share_of_grants_that_it_costs() {
    let ground = Ground::new().await;
    let (_, place) = ground.role.url.rsplit_once('@').unwrap();
    let (server, _) = place.split_once('/').unwrap();
    let proxy = FaultProxy::start().await;
    let slow = Toxiproxy::at(&proxy.url()).create("store", "127.0.0.1:0", server).await.unwrap();
    slow.add(Stream::Downstream, Toxic::Latency { latency: 45, jitter: 0 }).await.unwrap();
    let report = preflight(&ground.role.url.replace(server, &slow.address()), "").await;
    let line = report.says("round_trip", "fail", "100.0 % of the grants would be dropped");
    assert!(line["figures"]["p50_ms"].as_f64().unwrap() >= 45.0, "{line}");
    report.says("lookahead", "warn", "--lookahead");
    report.says("lock_waits", "fail", "took too long");
    report.passes(&["rights", "budget", "pooler"]);
    // Several answers have to come before a session is ready, and a call has 510 ms.
    slow.update("latency_downstream", Toxic::Latency { latency: 200, jitter: 0 }).await.unwrap();
    let variables = [("CALL_BUDGET_STATEMENT_TIMEOUT", "10ms")];
    let report = preflight_with(&ground.role.url.replace(server, &slow.address()), "", &variables).await;
    report.says("login", "fail", "cannot end in time");
    report.says("fresh_connection", "fail", "no call could reconnect");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_told_by_version_and_cipher_and_an_unchecked_certificate_is_told_of() {
    let server =
        tokio::task::spawn_blocking(|| TlsServer::start(&[], Shown::Good, Clients::ByPassword, &[])).await.unwrap();
    let plain = {
        server.let_in_plainly("postgres");
        server.url("127.0.0.1", "postgres") + "?sslmode=disable"
    };
    drop(support::connect_and_migrate(&plain).await);
    set_up(&plain).await;
    let root = server.certificates().authority();
    let url = |mode: &str, root: &str| format!("{}?sslmode={mode}{root}", server.url("localhost", "postgres"));
    let verified = url("verify-full", &format!("&sslrootcert={}", root.display()));
    let mut checked = preflight(&verified, "").await;
    // A busy machine makes handshakes long.
    for _ in 0..5 {
        if checked.lines["tls"]["verdict"] == "pass" && checked.lines["dns"]["verdict"] == "pass" {
            break;
        }
        checked = preflight(&verified, "").await;
    }
    let line = checked.says("tls", "pass", "who it is");
    assert!(line["figures"]["version"].as_str().unwrap().starts_with("TLSv1."), "{line}");
    assert!(!line["figures"]["cipher"].as_str().unwrap().is_empty(), "{line}");
    // A name to look up, and with it the time that takes.
    assert!(checked.says("dns", "pass", "has time")["figures"]["max_ms"].is_number());
    preflight(&url("require", ""), "").await.says("tls", "warn", "nobody checks");
    let refused = preflight(&url("verify-full", ""), "").await;
    refused.says("tls", "fail", "sslrootcert");
    assert_eq!(refused.exit, 3);
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
}

#[tokio::test]
async fn a_vendor_that_answers_unevenly_or_not_at_all_is_told() {
    let ground = Ground::new().await;
    let (url, asked) = uneven_vendor().await;
    let report = ground.preflight(&format!("--url {url}?key=not-a-real-key --url-calls 6")).await;
    let line = report.says("arrival_jitter", "fail", "--arrival-jitter");
    assert!(line["figures"]["half_range_ms"].as_f64().unwrap() >= 100.0, "{line}");
    assert_eq!(line["figures"]["answers"], 6);
    assert!(report.stderr.contains(&format!("6 GET requests to {url}, one every 61 ms")), "{}", report.stderr);
    assert!(!report.stderr.contains("not-a-real-key"));
    let times = asked.lock().unwrap().clone();
    assert_eq!(times.len(), 6);
    // No faster than the budget, also after a quick answer. On a busy machine one may be read late and the next at once.
    let gaps: Duration = [0, 2, 4].iter().map(|quick| times[quick + 1] - times[*quick]).sum();
    assert!(gaps >= Duration::from_millis(2 * 61), "{gaps:?}");

    let port = Listener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let report = ground.preflight(&format!("--url http://127.0.0.1:{port}/")).await;
    report.says("arrival_jitter", "fail", "refused");
    ground.preflight("").await.says("arrival_jitter", "not_measured", "give --url");
}

#[tokio::test]
async fn answers_that_no_call_would_get_are_told_and_headers_make_it_one() {
    let ground = Ground::new().await;
    // A wide bar: how even it is, a busy machine decides.
    let wide = "budget set kis-real --limit 18 --window 1s --arrival-jitter 5s";
    call_budget(&ground.database.url, &words(wide)).await.done();
    let options = format!("--url http://127.0.0.1:{}/price --url-calls 4", vendor_with_a_key());
    let report = ground.preflight(&options).await;
    report.says("arrival_jitter", "warn", "4 of 4 answers were 500: another call may take another time; see --header");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("headers");
    std::fs::write(&file, "# the key\nappkey: not-a-real-key\n").unwrap();
    let headers = ["--header", "tr_id: not-a-real-call", "--header-file", file.to_str().unwrap()];
    let report = preflight_calling(&ground.role.url, &options, &headers).await;
    let line = report.says("arrival_jitter", "pass", "");
    assert_eq!(line["figures"]["status_200"], 4, "{line}");
    assert!(!format!("{}{:?}", report.stderr, report.lines).contains("not-a-real"));
}

/// An HTTP server that wants the two headers, and else answers 500. It ends with the test's process.
fn vendor_with_a_key() -> u16 {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
                if head.ends_with(b"\r\n\r\n") {
                    let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
                    let given = ["appkey: not-a-real-key\r\n", "tr_id: not-a-real-call\r\n"];
                    let status = if given.iter().all(|header| text.contains(header)) { "200 OK" } else { "500 No" };
                    let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn a_vendor_behind_tls_is_asked_only_if_its_certificate_is_trusted() {
    let ground = Ground::new().await;
    let certificates = Certificates::make(&[]);
    let port = vendor_behind_tls(&certificates.server(Shown::Good));
    let options = format!("--url https://localhost:{port}/ping --url-calls 3");
    let report = ground.preflight(&options).await;
    report.says("arrival_jitter", "fail", "certificate verify failed");
    let authority = certificates.authority().display().to_string();
    let trusting = preflight_with(&ground.role.url, &options, &[("SSL_CERT_FILE", &authority)]).await;
    // How even it is, a busy machine decides.
    let figures = &trusting.lines["arrival_jitter"]["figures"];
    assert_eq!((&figures["answers"], &figures["status_204"]), (&3.into(), &3.into()), "{figures}");
    assert!(trusting.stderr.contains("3 GET requests to https://localhost:"), "{}", trusting.stderr);
}

/// An HTTPS server that answers 204 to whatever comes. It ends with the test's process.
fn vendor_behind_tls(identity: &Identity) -> u16 {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    acceptor.set_certificate_chain_file(&identity.certificate).unwrap();
    acceptor.set_private_key_file(&identity.key, SslFiletype::PEM).unwrap();
    let (acceptor, listener) = (acceptor.build(), Listener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = acceptor.accept(stream.unwrap()) else { continue };
            let (mut head, mut byte) = (Vec::new(), [0]);
            while stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
                }
            }
        }
    });
    port
}

type Moments = std::sync::Arc<std::sync::Mutex<Vec<std::time::Instant>>>;

/// An HTTP server that takes 300 ms for every other answer, and notes when it was asked.
async fn uneven_vendor() -> (String, Moments) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/ping", listener.local_addr().unwrap());
    let asked = Moments::default();
    let noted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let noted = noted.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let count = {
                            let mut noted = noted.lock().unwrap();
                            noted.push(std::time::Instant::now());
                            noted.len()
                        };
                        if count % 2 == 0 {
                            tokio::time::sleep(Duration::from_millis(300)).await;
                        }
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    }
                }
            });
        }
    });
    (url, asked)
}
