//! Requests to a URL of the vendor, over one connection: from sending to the first byte of the answer.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::http::HeaderMap;
use hyper::rt::{Read, Write};
use hyper::{Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::judge::Times;
use super::judge::way::Calls;
use crate::clock::{Clock, SystemClock};

/// For one request, connecting and reading the answer too.
const PATIENCE: Duration = Duration::from_secs(10);
/// A longer answer is not read to its end: the next request takes a new connection.
const LONGEST: usize = 1 << 20;

/// Where the requests go.
#[derive(Clone, Debug)]
pub struct Target {
    uri: Uri,
    host: String,
    port: u16,
    encrypted: bool,
}

type Sender = SendRequest<Empty<Bytes>>;
type Failure = Box<dyn Error + Send + Sync>;

/// Reads a URL, for clap.
pub fn target(text: &str) -> Result<Target, String> {
    let uri: Uri = text.parse().map_err(|_| "write a URL such as https://vendor.example/ping".to_owned())?;
    let encrypted = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err("a URL begins with http:// or https://".to_owned()),
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("a user or password in the URL is not sent: leave it out".to_owned());
    }
    let host = uri.host().filter(|host| !host.is_empty()).ok_or("the URL names no host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    Ok(Target { host, port, encrypted, uri })
}

/// Where it goes, without what may be secret in its query.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.uri.path())
    }
}

/// Sends `count` requests with these headers, no two closer than `pace`. Stops at the first that fails.
pub async fn call(target: &Target, headers: &HeaderMap, count: usize, pace: Duration) -> Calls {
    let mut calls = Calls { asked: count, ..Calls::default() };
    let (mut times, mut connection) = (Vec::new(), None);
    let mut at = SystemClock.now();
    for _ in 0..count {
        SystemClock.sleep_until(at).await;
        let outcome = tokio::time::timeout(PATIENCE, one(target, headers, &mut connection)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs()).into()));
        match outcome {
            Ok((sent, took, status)) => {
                times.push(took);
                *calls.statuses.entry(status).or_default() += 1;
                at = sent + pace;
            }
            Err(error) => {
                calls.failure = Some(chain(&*error));
                break;
            }
        }
    }
    calls.times = Times::of(times);
    calls
}

/// One request on the connection that is there, or on a new one: when it was sent, what it took, and its status.
async fn one(
    target: &Target,
    headers: &HeaderMap,
    kept: &mut Option<Sender>,
) -> Result<(crate::policy::Instant, Duration, u16), Failure> {
    let mut sender = match kept.take() {
        Some(sender) if !sender.is_closed() => sender,
        _ => target.connect().await?,
    };
    sender.ready().await?;
    let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = hyper::Request::get(path).body(Empty::new())?;
    *request.headers_mut() = headers.clone();
    request.headers_mut().entry(HOST).or_insert(HeaderValue::try_from(target.authority())?);
    let own_name = HeaderValue::from_static(concat!("call-budget/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(own_name);
    let sent = SystemClock.now();
    let response: Response<Incoming> = sender.send_request(request).await?;
    let took = SystemClock.now().saturating_since(sent);
    let status = response.status().as_u16();
    if Limited::new(response.into_body(), LONGEST).collect().await.is_ok() {
        *kept = Some(sender);
    }
    Ok((sent, took, status))
}

impl Target {
    async fn connect(&self) -> Result<Sender, Failure> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        if !self.encrypted {
            return shake_hands(TokioIo::new(stream)).await;
        }
        let connector = tokio_native_tls::TlsConnector::from(native_tls::TlsConnector::new()?);
        shake_hands(TokioIo::new(connector.connect(&self.host, stream).await?)).await
    }

    fn authority(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }
}

async fn shake_hands(io: impl Read + Write + Unpin + Send + 'static) -> Result<Sender, Failure> {
    let (sender, connection) = http1::handshake(io).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// The error and what caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_shown_without_its_query() {
        let read = target("https://vendor.example/ping?key=not-a-real-key").unwrap();
        assert_eq!((read.host.as_str(), read.port, read.encrypted), ("vendor.example", 443, true));
        assert_eq!(read.to_string(), "https://vendor.example/ping");
        let read = target("http://[::1]:8080").unwrap();
        assert_eq!((read.host.as_str(), read.port), ("::1", 8080));
        assert_eq!(read.to_string(), "http://[::1]:8080/");
    }

    #[test]
    fn what_is_no_url_of_a_vendor_is_refused_with_what_to_write() {
        for (text, words) in [
            ("vendor.example", "begins with http"),
            ("ftp://vendor.example", "begins with http"),
            ("https://me:not-a-real-password@vendor.example", "leave it out"),
            ("", "write a URL"),
        ] {
            let refusal = target(text).unwrap_err();
            assert!(refusal.contains(words) && !refusal.contains("not-a-real"), "{text:?}: {refusal}");
        }
    }
}
