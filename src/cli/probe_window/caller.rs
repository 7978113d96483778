//! Calls over HTTP/1.1 with connections that are kept, and what the vendor says to each.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::http::HeaderMap;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::cli::command_error::CommandError;
use crate::clock::{Clock, SystemClock};
use crate::policy::verdict::Verdict;
use crate::vendor::{Ended, Vendor};

/// From the look-up of the name to a connection that can be used.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// No answer that a vendor table looks at is longer.
const LONGEST_BODY: usize = 1 << 20;

pub type Connection = SendRequest<Empty<Bytes>>;

/// Where to call.
#[derive(Clone, Debug)]
pub struct Place {
    tls: bool,
    host: String,
    port: u16,
    /// As it stands in the URL: what the vendor is called.
    authority: String,
    path: String,
    path_and_query: Uri,
}

/// What the vendor said to a call.
pub enum Said {
    Admitted,
    /// One too many.
    TooMany,
    /// Neither, or nothing: why no probe can go on.
    Else(String),
}

/// Makes the one call again and again. Clones share the connections.
#[derive(Clone)]
pub struct Caller(Arc<Inner>);

struct Inner {
    place: Place,
    method: Method,
    headers: HeaderMap,
    vendor: Option<Vendor>,
    tls: Option<tokio_native_tls::TlsConnector>,
    idle: Mutex<Vec<Connection>>,
}

impl Place {
    pub fn parse(url: &str) -> Result<Place, CommandError> {
        // The URL itself is not shown: a key may be in it.
        let wrong = |why: &str| CommandError::usage(format!("the URL {why}")).hint("write https://host/path");
        let uri: Uri = url.parse().map_err(|_| wrong("cannot be read"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong("begins with neither http:// nor https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("holds a user or a password, which belongs into a header"));
        }
        let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Place {
            tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path().to_owned(),
            path_and_query: path_and_query.parse().map_err(|_| wrong("has a path that cannot be read"))?,
        })
    }
}

/// Without the query, in which a key may be.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.tls { "https" } else { "http" }, self.authority, self.path)
    }
}

impl Caller {
    pub fn new(place: Place, method: &str, headers: HeaderMap, vendor: Option<Vendor>) -> Result<Self, CommandError> {
        let method = method.parse().map_err(|_| CommandError::usage("the method is none: write for example GET"))?;
        let mut headers = headers;
        if !headers.contains_key(HOST) {
            let host = HeaderValue::try_from(place.authority.as_str());
            headers.insert(HOST, host.map_err(|_| CommandError::usage("the URL's host is none"))?);
        }
        let tls = match place.tls {
            true => {
                let connector = native_tls::TlsConnector::new()
                    .map_err(|error| CommandError::failed(format!("TLS cannot be used here: {error}")))?;
                Some(connector.into())
            }
            false => None,
        };
        Ok(Self(Arc::new(Inner { place, method, headers, vendor, tls, idle: Mutex::default() })))
    }

    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Opens connections, so that no call waits for one.
    pub async fn warm_up(&self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            let connection = self.open().await?;
            self.keep(connection);
        }
        Ok(())
    }

    /// One that is open, or a new one.
    pub async fn connection(&self) -> Result<Connection, String> {
        loop {
            let kept = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match kept {
                Some(kept) if kept.is_ready() => return Ok(kept),
                Some(_) => {}
                None => return self.open().await,
            }
        }
    }

    /// Sends the call and reads the whole answer. Where the vendor closed the connection just before, it is sent on another.
    pub async fn call(&self, connection: Connection) -> Said {
        let deadline = SystemClock.now() + ANSWER_TIMEOUT;
        match SystemClock.until(deadline, self.attempt(connection)).await {
            Some(Ok(said)) => said,
            Some(Err(why)) => Said::Else(why),
            None => Said::Else(format!("no answer came within {ANSWER_TIMEOUT:?}")),
        }
    }

    async fn attempt(&self, mut connection: Connection) -> Result<Said, String> {
        let broke = |error: hyper::Error| format!("the connection broke: {error}");
        let answer = match connection.try_send_request(self.request()).await {
            Ok(answer) => answer,
            Err(mut error) => match error.take_message() {
                Some(unsent) => {
                    connection = self.open().await?;
                    connection.send_request(unsent).await.map_err(broke)?
                }
                None => return Err(broke(error.into_error())),
            },
        };
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LONGEST_BODY).collect().await;
        let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?.to_bytes();
        self.keep(connection);
        let status = head.status.as_u16();
        let Some(vendor) = &self.0.vendor else {
            return Ok(match status {
                429 => Said::TooMany,
                200..=299 => Said::Admitted,
                _ => Said::Else(unlike_a_call(status, "")),
            });
        };
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        let finding = vendor.classify(&Ended::Answer { status, header: &header, body: &body }, SystemClock.wall());
        Ok(match finding.verdict {
            _ if finding.throttled => Said::TooMany,
            Verdict::Good if (200..300).contains(&status) => Said::Admitted,
            _ => {
                let code = finding.code.as_deref().map_or(String::new(), |code| format!(", code {code}"));
                Said::Else(unlike_a_call(status, &code))
            }
        })
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = self.0.method.clone();
        *request.uri_mut() = self.0.place.path_and_query.clone();
        *request.headers_mut() = self.0.headers.clone();
        request
    }

    fn keep(&self, connection: Connection) {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    async fn open(&self) -> Result<Connection, String> {
        let deadline = SystemClock.now() + CONNECT_TIMEOUT;
        let opened = SystemClock.until(deadline, self.open_in_time()).await;
        opened.unwrap_or_else(|| Err(format!("no connection within {CONNECT_TIMEOUT:?}")))
    }

    async fn open_in_time(&self) -> Result<Connection, String> {
        let Place { host, port, .. } = &self.0.place;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|error| format!("{host}:{port} cannot be connected to: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        match &self.0.tls {
            None => speak(stream).await,
            Some(tls) => {
                let stream = tls.connect(host, stream).await;
                speak(stream.map_err(|error| format!("TLS with {host} failed: {error}"))?).await
            }
        }
    }
}

fn unlike_a_call(status: u16, code: &str) -> String {
    match status {
        // Where it leads is not shown: a key may be in it.
        300..=399 => format!("it answered with a redirect ({status}): probe the address it leads to"),
        _ => format!("it answered with status {status}{code}, and a probe needs a call that succeeds"),
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection, String> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_its_query_is_not_shown() {
        let place = Place::parse("https://api.example.com/v1/price?key=not-a-real-key").unwrap();
        assert_eq!((place.tls, place.host.as_str(), place.port), (true, "api.example.com", 443));
        assert_eq!(place.path_and_query, "/v1/price?key=not-a-real-key");
        assert_eq!(place.to_string(), "https://api.example.com/v1/price");
        let place = Place::parse("http://[::1]:8080").unwrap();
        assert_eq!((place.tls, place.host.as_str(), place.port), (false, "::1", 8080));
    }

    #[test]
    fn what_is_no_url_is_refused_and_not_shown() {
        for url in ["", "api.example.com/not-a-real-key", "ftp://x/not-a-real-key", "http://me:not-a-real-key@x/"] {
            let error = Place::parse(url).unwrap_err().to_string();
            assert!(error.contains("the URL") && !error.contains("not-a-real-key"), "{error}");
        }
    }
}
