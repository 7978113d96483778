//! A superuser's session, to look at the server past all faults: by the driver alone, so that what the suite reads does
//! not depend on the code under test.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, NoTls};

/// Whom to be, and where.
#[derive(Clone, Debug)]
pub struct Superuser {
    config: Config,
    host: String,
    port: u16,
    /// The authority's certificate; `None`: the session is in plain text.
    authority: Option<String>,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Superuser {
    /// By a URL with a user, a password and one host. Where it names an `sslrootcert`, the session is encrypted and the
    /// server's name checked; else it is in plain text.
    ///
    /// # Errors
    /// What the URL lacks.
    pub fn of(url: &str) -> Result<Self, String> {
        let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut config = Config::from_str(place).map_err(|error| format!("no URL of a database: {error}"))?;
        let [Host::Tcp(host)] = config.get_hosts() else { return Err("the URL is to name one host".into()) };
        let (host, port) = (host.clone(), config.get_ports().first().copied().unwrap_or(5432));
        let authority = parameters.split('&').find_map(|one| one.strip_prefix("sslrootcert=")).map(str::to_owned);
        config.ssl_mode(if authority.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, host, port, authority })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same in another database of that server.
    #[must_use]
    pub fn of_database(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other
    }

    /// What the URL names as `sslrootcert`.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// A session, within 10 s.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self) -> Result<Client, String> {
        timeout(PATIENCE, self.session())
            .await
            .map_err(|_| format!("the server gave no session within {PATIENCE:?}"))?
    }

    async fn session(&self) -> Result<Client, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(none)?;
        stream.set_nodelay(true).map_err(none)?;
        match &self.authority {
            None => {
                let (client, connection) = self.config.connect_raw(stream, NoTls).await.map_err(none)?;
                tokio::spawn(connection);
                Ok(client)
            }
            Some(authority) => {
                let tls = Encrypted { connector: connector(Path::new(authority))?, host: self.host.clone() };
                let (client, connection) = self.config.connect_raw(stream, tls).await.map_err(none)?;
                tokio::spawn(connection);
                Ok(client)
            }
        }
    }
}

fn none(error: impl std::fmt::Debug) -> String {
    format!("the server gives no session: {error:?}")
}

fn connector(authority: &Path) -> Result<native_tls::TlsConnector, String> {
    let unusable = |why: String| format!("the authority's certificate {}: {why}", authority.display());
    let pem = std::fs::read(authority).map_err(|error| unusable(error.to_string()))?;
    let certificate = native_tls::Certificate::from_pem(&pem).map_err(|error| unusable(error.to_string()))?;
    let mut builder = native_tls::TlsConnector::builder();
    builder.disable_built_in_roots(true).add_root_certificate(certificate);
    builder.build().map_err(|error| unusable(error.to_string()))
}

/// The driver's way to TLS.
struct Encrypted {
    connector: native_tls::TlsConnector,
    host: String,
}

struct Stream(tokio_native_tls::TlsStream<TcpStream>);

impl TlsConnect<TcpStream> for Encrypted {
    type Stream = Stream;
    type Error = native_tls::Error;
    type Future = BoxFuture<'static, Result<Stream, native_tls::Error>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move {
            let connector = tokio_native_tls::TlsConnector::from(self.connector);
            connector.connect(&self.host, stream).await.map(Stream)
        })
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
