//! Stage `tls`: agreeing on encryption. From here on the stream is what the login and the queries run on.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use native_tls::{Certificate, Identity, TlsConnector};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use super::blocking::Blocking;
use super::connect::{Duplex, Target};
use super::ending::Ending;
use super::frames::{Frames, Status};
use super::secret::read_plain_file;
use super::{Failing, StoreError, descriptors};
use crate::config::connection::{Tls, TlsMode};
use crate::policy::stage::Stage;

/// Length and code of the message that asks for TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// How this process speaks TLS.
pub(super) struct Encryption {
    tls: Tls,
    /// Reading a bundle of hundred certificates takes milliseconds, so it is done once; and again after a failure, since
    /// certificates are renewed.
    connector: Mutex<Option<TlsConnector>>,
    making: Blocking<Result<TlsConnector, StoreError>>,
    /// One of them has served: what is wrong with the next is passing, such as a file that is just being renewed.
    has_served: AtomicBool,
}

impl Encryption {
    pub fn new(tls: Tls) -> Self {
        Self { tls, connector: Mutex::default(), making: Blocking::default(), has_served: AtomicBool::new(false) }
    }

    /// The stream to hand over to the login: encrypted, unless it is a Unix socket or the settings say `disable`.
    pub async fn secure(&self, mut stream: Box<dyn Duplex>, target: &Target) -> Result<Wire, StoreError> {
        let host = match target {
            Target::Tcp { host, .. } if self.tls.mode != TlsMode::Disable => host,
            _ => return Ok(Wire::new(stream, None)),
        };
        let connector = self.connector().await?;
        let answer = ask_for_tls(&mut stream).await.map_err(|error| broke(target, &error))?;
        accepted(answer, target)?;
        let (stream, ended) = Ending::of(stream);
        let stream = tokio_native_tls::TlsConnector::from(connector).connect(host, stream).await.map_err(|error| {
            self.forget();
            if ended.is_so() {
                return broke(target, &io::ErrorKind::UnexpectedEof.into());
            }
            handshake_failed(target, error)
        })?;
        self.has_served.store(true, Ordering::Relaxed);
        let server_end_point = stream.get_ref().tls_server_end_point().ok().flatten();
        Ok(Wire::new(Box::new(stream), server_end_point))
    }

    /// The next stream is secured with certificates that are read anew.
    pub fn forget(&self) {
        *self.slot() = None;
    }

    /// Made in a thread of its own: it reads files and works through every certificate that the system trusts, tens of
    /// milliseconds in which nobody's deadline would be looked at.
    async fn connector(&self) -> Result<TlsConnector, StoreError> {
        if let Some(connector) = self.slot().clone() {
            return Ok(connector);
        }
        let tls = self.tls.clone();
        let made = self.making.run(move || connector(&tls)).await;
        let made = made.unwrap_or_else(|error| Err(misconfigured(format!("TLS cannot be set up: {error}"))));
        let connector = made.map_err(|error| match self.has_served.load(Ordering::Relaxed) {
            true => StoreError { kind: Failing::Unavailable, ..error },
            false => error,
        })?;
        *self.slot() = Some(connector.clone());
        Ok(connector)
    }

    fn slot(&self) -> MutexGuard<'_, Option<TlsConnector>> {
        self.connector.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connector(tls: &Tls) -> Result<TlsConnector, StoreError> {
    let Tls { mode, root_cert, client } = tls;
    let mut builder = TlsConnector::builder();
    // As libpq has it: with a root certificate, `require` checks the chain too.
    let checks_chain = *mode != TlsMode::Require || root_cert.is_some();
    builder.danger_accept_invalid_certs(!checks_chain).danger_accept_invalid_hostnames(*mode != TlsMode::VerifyFull);
    if let Some(path) = root_cert {
        let certificates = Certificate::stack_from_pem(&read(path, "sslrootcert")?).unwrap_or_default();
        if certificates.is_empty() {
            return Err(unusable("sslrootcert", path, "it holds no certificate in PEM form"));
        }
        builder.disable_built_in_roots(true);
        for certificate in certificates {
            builder.add_root_certificate(certificate);
        }
    }
    if let Some(client) = client {
        let (cert, key) = (read(&client.cert, "sslcert")?, read(&client.key, "sslkey")?);
        let identity = Identity::from_pkcs8(&cert, &key).map_err(|error| {
            let way_out = "it and sslcert must be PEM, the key as PKCS#8 (openssl pkcs8 -topk8 -nocrypt)";
            unusable("sslkey", &client.key, &format!("{error}: {way_out}"))
        })?;
        builder.identity(identity);
    }
    let connector = builder.build().map_err(|error| misconfigured(format!("TLS cannot be set up: {error}")))?;
    // The library takes the system's certificates that it could not open for none, and would refuse every server's.
    if root_cert.is_none() && descriptors::none_left() {
        let message = format!("the system's certificates cannot be read: {}", descriptors::USED_UP);
        return Err(StoreError::new(Stage::Tls, Failing::Unavailable, message));
    }
    Ok(connector)
}

fn read(path: &Path, setting: &str) -> Result<Vec<u8>, StoreError> {
    read_plain_file(path).map_err(|error| match error {
        error if descriptors::used_up(&error) => {
            let message = format!("{setting} {} cannot be read: {}", path.display(), descriptors::USED_UP);
            StoreError::new(Stage::Tls, Failing::Unavailable, message)
        }
        error => unusable(setting, path, &format!("{error}: check the path, and that this user may read it")),
    })
}

fn unusable(setting: &str, path: &Path, why: &str) -> StoreError {
    misconfigured(format!("{setting} {} cannot be used: {why}", path.display()))
}

fn misconfigured(message: String) -> StoreError {
    StoreError::new(Stage::Tls, Failing::Misconfigured, message)
}

/// The one byte that answers is all that is read: whatever came behind it in plain text would not be the server's.
async fn ask_for_tls(stream: &mut Box<dyn Duplex>) -> io::Result<u8> {
    stream.write_all(&SSL_REQUEST).await?;
    stream.flush().await?;
    stream.read_u8().await
}

fn accepted(answer: u8, target: &Target) -> Result<(), StoreError> {
    match answer {
        b'S' => Ok(()),
        b'N' => Err(misconfigured(format!(
            "{target} does not speak TLS: switch ssl on there, or write sslmode=disable if you trust the network"
        ))),
        // What an error before TLS says cannot be trusted, and a server that is starting may say it.
        b'E' => Err(StoreError::new(
            Stage::Tls,
            Failing::Unavailable,
            format!("{target} answered the request for TLS with an error: see the server's log"),
        )),
        _ => Err(misconfigured(format!("{target} is no PostgreSQL: check host and port"))),
    }
}

fn broke(target: &Target, error: &io::Error) -> StoreError {
    let message = format!("{target} ended the connection before TLS was agreed on ({error}): see the server's log");
    StoreError::new(Stage::Tls, Failing::Unavailable, message)
}

fn handshake_failed(target: &Target, error: native_tls::Error) -> StoreError {
    let broken = std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source())
        .find_map(|error| error.downcast_ref::<io::Error>());
    if let Some(cause) = broken {
        return broke(target, cause);
    }
    let text = error.to_string();
    let message = match Reason::of(&text) {
        Reason::Certificate(why) => {
            format!("the certificate that {target} shows is refused here ({why}): {}", way_out(why, target))
        }
        Reason::Handshake(why) => {
            format!("the TLS handshake with {target} failed ({why}): check what listens there, and sslcert here")
        }
    };
    misconfigured(message).caused_by(error)
}

/// What a failed handshake says of itself.
#[derive(Debug, PartialEq, Eq)]
enum Reason<'a> {
    /// The certificate was looked at.
    Certificate(&'a str),
    Handshake(&'a str),
}

impl<'a> Reason<'a> {
    /// OpenSSL says `error:NUMBER:LIBRARY:FUNCTION:REASON:FILE:LINE:`, and behind that in brackets what is wrong with the
    /// certificate. Whoever says it in another way is quoted whole.
    fn of(text: &'a str) -> Self {
        let certificate = text.contains("certificate verify failed").then(|| text.strip_suffix(')')).flatten();
        if let Some((_, why)) = certificate.and_then(|text| text.rsplit_once(" (")) {
            return Self::Certificate(why);
        }
        let why = text.strip_prefix("error:").and_then(|rest| rest.split(':').nth(3)).filter(|why| !why.is_empty());
        Self::Handshake(why.unwrap_or(text))
    }
}

/// Advice, for people: nothing is decided by these words.
fn way_out(why: &str, target: &Target) -> String {
    let Target::Tcp { host, .. } = target else { return "check it".into() };
    if why.contains("mismatch") {
        format!(
            "it must hold for {host:?}; name the server as its certificate does (host), or have it issued for this name"
        )
    } else if why.contains("expired") || why.contains("not yet valid") {
        "renew it there, and check the date on both machines".into()
    } else if why.contains("issuer") || why.contains("self") {
        "put the certificate of who signed it into the file that sslrootcert names".into()
    } else {
        "check its names, its dates and who signed it, and sslrootcert here".into()
    }
}

/// A stream on which TLS is settled, one way or the other.
pub(super) struct Wire {
    stream: Box<dyn Duplex>,
    frames: Frames,
    status: Arc<Status>,
    /// Hash of the server's certificate, to which the login is bound.
    server_end_point: Option<Vec<u8>>,
}

impl Wire {
    fn new(stream: Box<dyn Duplex>, server_end_point: Option<Vec<u8>>) -> Self {
        Self { stream, frames: Frames::default(), status: Arc::default(), server_end_point }
    }

    /// The session's status, as it comes by.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }
}

/// Hands [`Wire`] to the driver, which would else ask for TLS itself.
pub(super) struct Settled;

impl TlsConnect<Wire> for Settled {
    type Stream = Wire;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Wire>>;

    fn connect(self, stream: Wire) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}

impl TlsStream for Wire {
    fn channel_binding(&self) -> ChannelBinding {
        self.server_end_point.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, frames, status, .. } = &mut *self;
        let before = buf.filled().len();
        let polled = Pin::new(stream).poll_read(cx, buf);
        frames.see(&buf.filled()[before..], status);
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_handshake_is_told_by_its_reason_alone() {
        let of_the_library = "error:0A000086:SSL routines:tls_post_process_server_certificate:certificate verify failed:\
                              ../ssl/statem/statem_clnt.c:1889:";
        let expired = format!("{of_the_library} (certificate has expired)");
        assert_eq!(Reason::of(&expired), Reason::Certificate("certificate has expired"));
        assert_eq!(Reason::of(of_the_library), Reason::Handshake("certificate verify failed"));
        let other = "error:0A00010B:SSL routines:ssl3_get_record:wrong version number:../ssl/record/ssl3_record.c:350:";
        assert_eq!(Reason::of(other), Reason::Handshake("wrong version number"));
        assert_eq!(Reason::of("the peer left"), Reason::Handshake("the peer left"));
    }
}
