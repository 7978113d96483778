//! Faults while the two agree on encryption: certificates, and servers that do not speak TLS at all.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::{Code, Settings};

use crate::suite::{Case, DATABASE_NAME, Database, HEALS_SOON, How, Length, Round, nothing, says, served};
use crate::tools::certificates::{Identity, Shown};
use crate::tools::door::Door;
use crate::tools::scripted_postgres::{Act, Report, Script, ScriptedPostgres, Step};
use crate::tools::tls_server::{Clients, TlsServer};

pub const CASES: &[Case] = &[
    Case {
        id: "12.wrong_host",
        name: "the server's certificate is for another host",
        run: |round| Box::pin(bad_certificate(round, Shown::WrongHost, &["mismatch", "must hold for \"127.0.0.1\""])),
        ..CERTIFICATE
    },
    Case {
        id: "12.expired",
        name: "the server's certificate has expired",
        run: |round| Box::pin(bad_certificate(round, Shown::Expired, &["certificate has expired", "renew it"])),
        ..CERTIFICATE
    },
    Case {
        id: "12.unknown_authority",
        name: "the server's certificate is signed by an unknown authority",
        run: |round| {
            Box::pin(bad_certificate(
                round,
                Shown::UnknownAuthority,
                &["unable to get local issuer certificate", "sslrootcert"],
            ))
        },
        ..CERTIFICATE
    },
    Case {
        id: "12.bundle",
        name: "sslrootcert is a bundle of 120 authorities, the right one last",
        length: Length::Short,
        heals: None,
        run: |round| Box::pin(bundle(round)),
        ..CERTIFICATE
    },
    Case {
        id: "12.client_certificate",
        name: "the server wants a certificate of its clients: missing, a stranger's, the right one",
        run: |round| Box::pin(client_certificate(round)),
        ..CERTIFICATE
    },
    Case {
        id: "30.no_tls",
        name: "the server answers N to the TLS request",
        run: |round| {
            Box::pin(no_tls(
                round,
                Act::SendInstead(b"N".into()),
                Code::Misconfigured,
                &["does not speak TLS", "sslmode"],
            ))
        },
        ..NO_TLS
    },
    Case {
        id: "30.garbage",
        name: "what answers the TLS request is no PostgreSQL",
        run: |round| {
            Box::pin(no_tls(
                round,
                Act::SendInstead(b"H".into()),
                Code::Misconfigured,
                &["is no PostgreSQL", "host and port"],
            ))
        },
        ..NO_TLS
    },
    Case {
        id: "30.error",
        name: "the server answers the TLS request with an error",
        run: |round| {
            Box::pin(no_tls(
                round,
                Act::Error(Report::fatal("53300")),
                Code::StoreUnavailable,
                &["with an error", "log"],
            ))
        },
        ..NO_TLS
    },
    Case {
        id: "30.plain_text_after_yes",
        name: "plain text comes right behind the server's yes to TLS",
        run: |round| {
            Box::pin(no_tls(
                round,
                Act::SendInstead(b"SR\0\0\0\x08\0\0\0\0".into()),
                Code::Misconfigured,
                &["TLS handshake"],
            ))
        },
        ..NO_TLS
    },
    Case {
        id: "30.hangs_up",
        name: "the server hangs up at the TLS request",
        run: |round| Box::pin(no_tls(round, Act::Close, Code::StoreUnavailable, &["ended the connection", "log"])),
        ..NO_TLS
    },
];

const CERTIFICATE: Case = Case {
    row: 12,
    id: "",
    name: "",
    how: How::Server,
    deadline: Duration::from_secs(1),
    // A server of the case's own has to start.
    length: Length::Long,
    heals: HEALS_SOON,
    needs: nothing,
    own_process: None,
    run: |_| Box::pin(async {}),
};

const NO_TLS: Case = Case { row: 30, how: How::ScriptedServer, length: Length::Short, ..CERTIFICATE };

/// Length and code: all that may be said before TLS.
const TLS_REQUEST_BYTES: usize = 8;

async fn bad_certificate(round: &mut Round, shown: Shown, words: &[&str]) {
    let server = own_server(round, Clients::ByPassword).await;
    show(&server, shown).await;
    let url = with_tls(round, &server, None);
    let caller = round.caller(&settings(round, url)).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::Misconfigured, Some(Stage::Tls)), "{error}");
    says(&error, words);
    says(&error, &["the certificate that 127.0.0.1:", "stage tls, after 0."]);

    round.healing(&caller, show(&server, Shown::Good)).await;
}

/// Reading so many takes milliseconds, and it is the right one that is looked for.
async fn bundle(round: &mut Round) {
    let url = round.database().url_by_way_of(round.database().address()).replace("authority.pem", "bundle.pem");
    assert!(url.contains("bundle.pem"), "the authorities' bundle lies beside the authority: {url}");
    let caller = round.caller(&settings(round, url)).await;
    round.fault();
    served(&caller).await;
}

/// Served without a restart as soon as the certificate is one that the server accepts.
async fn client_certificate(round: &mut Round) {
    let server = own_server(round, Clients::ByCertificateToo).await;
    let (own, strangers) = {
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        (server.certificates().client(), server.certificates().stranger_client())
    };

    let url = with_tls(round, &server, None);
    let caller = round.caller(&settings(round, url)).await;
    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (Code::Misconfigured, Some(Stage::Startup)), "{error}");
    says(&error, &["28000", "certificate (sslcert)", "stage startup, after 0."]);

    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let shown = Identity { certificate: folder.path().join("shown.pem"), key: folder.path().join("shown.key") };
    let show = |identity: &Identity| {
        fs::copy(&identity.certificate, &shown.certificate).unwrap();
        fs::copy(&identity.key, &shown.key).unwrap();
    };
    show(&strangers);
    let url = with_tls(round, &server, Some(&shown));
    let caller = round.caller(&settings(round, url)).await;
    let error = caller.try_send().await.refused();
    // With TLS 1.3 the server looks at it only once the client is through.
    assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Startup)), "{error}");
    says(&error, &["whether it accepts sslcert", "stage startup, after 0."]);

    round.healing(&caller, async { show(&own) }).await;
}

/// Nothing is said in plain text but the request for TLS, and in the end the real server is found behind the same address.
async fn no_tls(round: &mut Round, answer: Act, code: Code, words: &[&str]) {
    let scripted = ScriptedPostgres::start();
    let said_yes = matches!(&answer, Act::SendInstead(bytes) if bytes.starts_with(b"S"));
    scripted.always(Script::well().at(Step::TlsRequest, answer));
    let door = Door::anywhere(scripted.address()).await;
    let url = round.database().url_by_way_of(door.address());
    let caller = round.caller(&settings(round, url)).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert_eq!((error.code(), error.stage()), (code, Some(Stage::Tls)), "{error}");
    says(&error, words);
    says(&error, &["127.0.0.1", "stage tls, after 0."]);

    let server = round.database().address();
    round.healing(&caller, async { door.lead_to(server) }).await;
    for connection in scripted.connections() {
        assert!(connection.parameters.is_empty(), "it logged in without TLS: {connection:?}");
        // (After a yes come the bytes of a handshake.)
        assert!(said_yes || connection.bytes == TLS_REQUEST_BYTES, "more than the request for TLS: {connection:?}");
    }
}

/// An attempt that fails is told at once.
fn settings(round: &Round, url: String) -> Settings {
    let mut settings = round.settings(url);
    settings.max_wait = Duration::from_secs(1);
    settings.store_outage_max = Duration::ZERO;
    settings
}

/// A server of the round's own, whose certificates the case may change; its books are the round's.
async fn own_server(round: &mut Round, clients: Clients) -> Arc<Mutex<TlsServer>> {
    let start = move || TlsServer::start(&[DATABASE_NAME], Shown::Good, clients, &[]);
    let mut server = tokio::task::spawn_blocking(start).await.expect("a server of this round's own");
    server.let_in_plainly("postgres");
    let database = Arc::new(Database::on(server.postgres()).await);
    let server = Arc::new(Mutex::new(server));
    round.keep(Arc::clone(&server));
    round.judge_at(database).await;
    round.prepared().await;
    server
}

async fn show(server: &Arc<Mutex<TlsServer>>, shown: Shown) {
    let server = Arc::clone(server);
    let show = move || server.lock().unwrap_or_else(PoisonError::into_inner).show(shown);
    tokio::task::spawn_blocking(show).await.expect("another certificate");
}

/// The callers' URL to a server of the round's own, with what TLS takes.
fn with_tls(round: &Round, server: &Arc<Mutex<TlsServer>>, client: Option<&Identity>) -> String {
    let authority = server.lock().unwrap_or_else(PoisonError::into_inner).certificates().authority();
    let shown = client.map_or_else(String::new, |identity| {
        format!("&sslcert={}&sslkey={}", identity.certificate.display(), identity.key.display())
    });
    let protection = format!("sslmode=verify-full&sslrootcert={}{shown}", authority.display());
    let url = round.database().url_by_way_of(round.database().address());
    assert!(url.contains("sslmode=disable"), "what Database::on says of TLS");
    url.replace("sslmode=disable", &protection)
}
