//! A client of toxiproxy's HTTP API: the only way by which the fault tests use a proxy, so that the real one can stand in.

use std::env;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::FaultProxy;
use super::toxic::{Placed, Stream, Toxic};

/// Names a real toxiproxy, `http://HOST:PORT`.
const URL: &str = "TOXIPROXY_URL";

/// A toxiproxy, the real one or our own.
#[derive(Debug, Clone)]
pub struct Toxiproxy {
    /// HOST:PORT of the API.
    authority: String,
}

/// Why a call did not do what it should.
#[derive(Debug)]
pub enum ApiError {
    /// The server said no: its status and its sentence.
    Refused { status: u16, error: String },
    /// No answer within 10 s, or one that is not of this API.
    NoAnswer(String),
}

impl ApiError {
    /// None: there was no answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            ApiError::Refused { status, .. } => Some(*status),
            ApiError::NoAnswer(_) => None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiError::Refused { status, error } => write!(f, "toxiproxy answers {status}: {error}"),
            ApiError::NoAnswer(why) => write!(f, "no answer from toxiproxy: {why}"),
        }
    }
}

impl Toxiproxy {
    /// The one at `url`, `http://HOST:PORT`. Its proxies are reached at the same HOST.
    ///
    /// # Panics
    /// `url` does not start with `http://`.
    pub fn at(url: &str) -> Toxiproxy {
        let authority = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url} is not http://HOST:PORT"));
        Toxiproxy { authority: authority.trim_end_matches('/').to_owned() }
    }

    /// The one that `TOXIPROXY_URL` names, else `own`.
    pub fn of_environment_or(own: &FaultProxy) -> Toxiproxy {
        Toxiproxy::at(&env::var(URL).unwrap_or_else(|_| own.url()))
    }

    /// # Errors
    /// As every call: [`ApiError`].
    pub async fn version(&self) -> Result<String, ApiError> {
        let json = self.call(Method::GET, "/version", None).await?;
        json["version"].as_str().map(str::to_owned).ok_or_else(|| ApiError::NoAnswer(format!("{json} has no version")))
    }

    /// Makes a proxy. `listen` and `upstream` are addresses as the toxiproxy sees them, which may run in a container; port
    /// 0 asks for a free one.
    ///
    /// # Errors
    /// 409: the name is taken. 500: it cannot listen there.
    pub async fn create(&self, name: &str, listen: &str, upstream: &str) -> Result<RemoteProxy, ApiError> {
        let body = json!({ "name": name, "listen": listen, "upstream": upstream, "enabled": true });
        let json = self.call(Method::POST, "/proxies", Some(body)).await?;
        let port = json["listen"].as_str().and_then(|listen| listen.rsplit_once(':')?.1.parse().ok());
        let port = port.ok_or_else(|| ApiError::NoAnswer(format!("{json} has no port in \"listen\"")))?;
        Ok(RemoteProxy { toxiproxy: self.clone(), name: name.to_owned(), port })
    }

    /// Deletes a proxy that an earlier run may have left: a real toxiproxy outlives a test that panicked.
    ///
    /// # Errors
    /// As every call, but not where there is none.
    pub async fn delete_if_there(&self, name: &str) -> Result<(), ApiError> {
        match self.call(Method::DELETE, &format!("/proxies/{name}"), None).await {
            Err(error) if error.status() != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// All proxies, as JSON by their names.
    ///
    /// # Errors
    /// As every call.
    pub async fn proxies(&self) -> Result<Value, ApiError> {
        self.call(Method::GET, "/proxies", None).await
    }

    /// Enables all proxies and removes all toxics.
    ///
    /// # Errors
    /// As every call.
    pub async fn reset(&self) -> Result<(), ApiError> {
        self.call(Method::POST, "/reset", None).await.map(drop)
    }

    /// One call, at most 10 s. An empty answer is null.
    ///
    /// # Errors
    /// Every status from 400 on.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, ApiError> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let answered = timeout(LONGEST_CALL, self.exchange(method, path, body)).await;
        let (status, body) = answered
            .unwrap_or_else(|_| Err(format!("nothing within {LONGEST_CALL:?}")))
            .map_err(|why| ApiError::NoAnswer(format!("{} {path}: {why}", self.authority)))?;
        let json = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
        if status.is_success() {
            return json.map_err(|error| ApiError::NoAnswer(format!("{path} is not JSON: {error}")));
        }
        let error = match json.as_ref().ok().and_then(|json| json["error"].as_str()) {
            Some(error) => error.to_owned(),
            None => String::from_utf8_lossy(&body).into_owned(),
        };
        Err(ApiError::Refused { status: status.as_u16(), error })
    }

    /// A connection for each call: nothing is kept that could be stale.
    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        // The connection does the work and may end first, with the answer already given.
        let mut answer = std::pin::pin!(answer);
        let answer = tokio::select! {
            answer = &mut answer => answer,
            _ = connection => answer.await,
        };
        answer.map_err(|error| error.to_string())
    }
}

/// A proxy of a toxiproxy. It stays until [`RemoteProxy::delete`]: a drop cannot wait for the network.
#[derive(Debug, Clone)]
pub struct RemoteProxy {
    toxiproxy: Toxiproxy,
    name: String,
    port: u16,
}

impl RemoteProxy {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// HOST:PORT where it is reached: the API's host, the port that it listens on.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host(), self.port)
    }

    pub fn host(&self) -> &str {
        self.toxiproxy.authority.rsplit_once(':').map_or(self.toxiproxy.authority.as_str(), |(host, _)| host)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds a toxic that acts on every connection, named `<type>_<stream>`. Returns its name.
    ///
    /// # Errors
    /// 409: there is one of that name.
    pub async fn add(&self, stream: Stream, toxic: Toxic) -> Result<String, ApiError> {
        let placed = Placed { name: toxic.default_name(stream), stream, toxicity: 1.0, toxic };
        self.add_placed(&placed).await?;
        Ok(placed.name)
    }

    /// Adds a toxic with a name and a toxicity of its own.
    ///
    /// # Errors
    /// 409: there is one of that name.
    pub async fn add_placed(&self, placed: &Placed) -> Result<(), ApiError> {
        self.call(Method::POST, "/toxics", Some(placed.to_json())).await.map(drop)
    }

    /// Gives a toxic other attributes.
    ///
    /// # Errors
    /// 404: there is none of that name.
    pub async fn update(&self, name: &str, toxic: Toxic) -> Result<(), ApiError> {
        let body = json!({ "attributes": toxic.to_json()["attributes"] });
        self.call(Method::POST, &format!("/toxics/{name}"), Some(body)).await.map(drop)
    }

    /// # Errors
    /// 404: there is none of that name.
    pub async fn remove(&self, name: &str) -> Result<(), ApiError> {
        self.call(Method::DELETE, &format!("/toxics/{name}"), None).await.map(drop)
    }

    /// The toxics, as a JSON list.
    ///
    /// # Errors
    /// As every call.
    pub async fn toxics(&self) -> Result<Value, ApiError> {
        self.call(Method::GET, "/toxics", None).await
    }

    /// Listens again, on the same port.
    ///
    /// # Errors
    /// 500: the port is taken.
    pub async fn enable(&self) -> Result<(), ApiError> {
        self.call(Method::POST, "", Some(json!({ "enabled": true }))).await.map(drop)
    }

    /// Closes the listener and all connections.
    ///
    /// # Errors
    /// As every call.
    pub async fn disable(&self) -> Result<(), ApiError> {
        self.call(Method::POST, "", Some(json!({ "enabled": false }))).await.map(drop)
    }

    /// Closes all of it, and the name is free.
    ///
    /// # Errors
    /// 404: it is gone already.
    pub async fn delete(self) -> Result<(), ApiError> {
        self.call(Method::DELETE, "", None).await.map(drop)
    }

    async fn call(&self, method: Method, below: &str, body: Option<Value>) -> Result<Value, ApiError> {
        self.toxiproxy.call(method, &format!("/proxies/{}{below}", self.name), body).await
    }
}

const LONGEST_CALL: Duration = Duration::from_secs(10);
