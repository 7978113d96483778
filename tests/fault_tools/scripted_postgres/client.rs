//! A client of the scripted server: tokio-postgres over a socket that keeps what it heard, read by read.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, future, io};

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509NameBuilder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::DbError;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Row};

use crate::tools::scripted_postgres::{ScriptedPostgres, Step};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(10);

pub struct Caller {
    pub client: Client,
    /// The notices that came.
    pub notices: Arc<Mutex<Vec<DbError>>>,
    /// What was read, one entry a read.
    pub heard: Arc<Mutex<Vec<Vec<u8>>>>,
    connection: JoinHandle<Result<(), Error>>,
}

/// Logs in.
pub async fn connect(server: &ScriptedPostgres) -> Result<Caller, Error> {
    let socket = TcpStream::connect(server.address()).await.unwrap();
    Caller::over(socket).await
}

impl Caller {
    /// Logs in within TLS, trusting this certificate alone.
    pub async fn over_tls(server: &ScriptedPostgres, certificate: &[u8]) -> Self {
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(&SSL_REQUEST).await.unwrap();
        assert_eq!(socket.read_u8().await.unwrap(), b'S');
        let trusted = native_tls::Certificate::from_pem(certificate).unwrap();
        let connector =
            native_tls::TlsConnector::builder().disable_built_in_roots(true).add_root_certificate(trusted).build();
        let connector = tokio_native_tls::TlsConnector::from(connector.unwrap());
        Self::over(connector.connect("localhost", socket).await.unwrap()).await.unwrap()
    }

    async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Result<Self, Error> {
        let (heard, notices) = <(Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>)>::default();
        let tap = Tap { stream, heard: heard.clone() };
        let mut config = Config::new();
        config
            .user("caller")
            .password("not-a-secret")
            .dbname("store")
            .ssl_mode(tokio_postgres::config::SslMode::Disable);
        let (client, mut connection) = config.connect_raw(tap, NoTls).await?;
        let told = notices.clone();
        let connection = tokio::spawn(async move {
            while let Some(message) = future::poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message? {
                    told.lock().unwrap().push(notice);
                }
            }
            Ok(())
        });
        Ok(Self { client, notices, heard, connection })
    }

    /// Acquires, as the store does.
    pub async fn ask(&self, budget: &str, costs: &[i32], nonce: i64) -> Result<Vec<Row>, Error> {
        let sql = "SELECT * FROM call_budget.call_budget_acquire($1, $2, $3, $4, $5, $6)";
        self.client
            .query_typed(
                sql,
                &[
                    (&budget, Type::TEXT),
                    (&"order", Type::TEXT),
                    (&5_i64, Type::INT8),
                    (&costs, Type::INT4_ARRAY),
                    (&1_000_000_i64, Type::INT8),
                    (&nonce, Type::INT8),
                ],
            )
            .await
    }

    /// The SQLSTATE that an acquire is refused with.
    pub async fn refused(&self, nonce: i64) -> String {
        let error = self.ask("kis", &[1], nonce).await.expect_err("a refusal");
        error.code().map(|code| code.code().to_owned()).unwrap_or_else(|| panic!("no SQLSTATE: {error:?}"))
    }

    /// How the connection ended, where it does.
    pub async fn end(self) -> Result<(), Error> {
        timeout(LONG, self.connection).await.expect("the connection ends").unwrap()
    }

    /// Says goodbye.
    pub async fn leave(self) {
        drop(self.client);
        timeout(LONG, self.connection).await.expect("the connection ends").unwrap().unwrap();
    }

    pub fn heard(&self) -> Vec<u8> {
        self.heard.lock().unwrap().concat()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

/// What comes back for a TLS request: this many bytes at least, or all up to the end, and what follows in the next moment.
pub async fn ssl_request(server: &ScriptedPostgres, at_least: usize) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    socket.write_all(&SSL_REQUEST).await.unwrap();
    let mut heard = Vec::new();
    loop {
        let patience = if heard.len() < at_least { LONG } else { Duration::from_millis(150) };
        match timeout(patience, socket.read_buf(&mut heard)).await {
            Ok(Ok(1..)) => {}
            _ => return heard,
        }
    }
}

/// Says its part of a login up to this step, then only listens: what comes back until the end.
pub async fn login_up_to(server: &ScriptedPostgres, step: Step) -> io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    if step != Step::Accepted {
        socket.write_all(b"\0\0\0\x15\0\x03\0\0user\0caller\0\0").await.unwrap();
    }
    if matches!(step, Step::PasswordRead | Step::Authenticated) {
        socket.write_all(b"p\0\0\0\x11not-a-secret\0").await.unwrap();
    }
    let mut heard = Vec::new();
    timeout(LONG, socket.read_to_end(&mut heard)).await.expect("an end")?;
    Ok(heard)
}

pub async fn send_cancel_request(server: &ScriptedPostgres) {
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    socket.write_all(&[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 1]).await.unwrap();
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
}

/// Waits for what another thread is about to do.
pub async fn eventually(what: &str, happened: impl Fn() -> bool) {
    let waiting = async {
        while !happened() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A certificate for localhost and its key.
pub fn self_signed() -> (Vec<u8>, Vec<u8>) {
    let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "localhost").unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    let names = SubjectAlternativeName::new().dns("localhost").build(&builder.x509v3_context(None, None)).unwrap();
    builder.append_extension(names).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    (builder.build().to_pem().unwrap(), key.private_key_to_pem_pkcs8().unwrap())
}

struct Tap<S> {
    stream: S,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        self.heard.lock().unwrap().push(into.filled()[before..].to_vec());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
