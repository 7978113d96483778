//! A small fault proxy that speaks toxiproxy's HTTP API, and a client of that API.
//!
//! Why: toxiproxy itself is in no package registry, and the fault tests have to run where only Cargo is. They use
//! [`Toxiproxy`], the client, and so run unchanged through the real one where `TOXIPROXY_URL` names it. What only our own
//! proxy can do (faults at an exact byte, counters, dropping connections) is not in the HTTP API: it is on [`OwnProxy`].
//!
//! Promises: every wait is bounded. A change has taken effect when its call returns: whatever is sent afterwards feels
//! it, also on open connections. Dropping [`FaultProxy`] ends all its tasks and closes its sockets.
//!
//! As in toxiproxy 2: toxics act in the order in which they were added. A half close of one side is a full close for the
//! other, and a reset by one side reaches the other as FIN. A removed toxic sets free at once what it held, except that
//! removing `timeout` closes the connection, since it drops data. `timeout` counts anew with all data that it drops.
//! `reset_peer` waits for the first data. `limit_data` counts from when it was added. `listen` with port 0 is answered
//! with the port found, which stays over `enabled`. `/reset` enables all proxies and removes all toxics.
//!
//! Different from it, on purpose:
//! - `reset_peer` resets open connections too; the real one does that only to connections opened after it was added, and
//!   ends older ones with FIN.
//! - Toxicity is drawn once for a connection and toxic, not again when another toxic is added.
//! - Adding a toxic lets nothing slip past those that are there; the real one lets through what the last one holds.
//! - `limit_data` lowered below what has passed closes at once, not with the next data.
//! - Unknown or negative attributes, and a toxicity outside 0 to 1, are refused (400): a fault that is mistyped must not
//!   be a fault that is missing.
//! - No `/populate`, no `/metrics`, no check of the user agent. An empty `listen` is a free port on 127.0.0.1.
//! - Slices are cut by chance one after the other, the real one halves; tokio's timer makes a `delay` last up to 1 ms
//!   longer.

mod api;
mod client;
mod connection;
mod listener;
mod pipe;
mod stage;
mod toxic;
mod trigger;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

pub use client::{ApiError, RemoteProxy, Toxiproxy};
pub use listener::{Armed, Counters, OwnProxy};
pub use toxic::{Placed, Stream, Toxic};
pub use trigger::{Action, Trigger};

use api::Registry;

/// The own server, running in this process until it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    registry: Arc<Registry>,
    addr: SocketAddr,
    serving: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts the HTTP API on a free loopback port.
    pub async fn start() -> FaultProxy {
        FaultProxy::start_at((Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Starts the HTTP API at that address.
    ///
    /// # Panics
    /// It cannot be listened on.
    pub async fn start_at(addr: SocketAddr) -> FaultProxy {
        let listener = TcpListener::bind(addr).await.unwrap_or_else(|error| panic!("{addr}: {error}"));
        let addr = listener.local_addr().expect("a bound socket has an address");
        let registry = Arc::<Registry>::default();
        let serving = tokio::spawn(serve(listener, Arc::clone(&registry)));
        FaultProxy { registry, addr, serving }
    }

    /// Where its API is: what `TOXIPROXY_URL` would be.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A proxy of this server, with what is not in the API.
    pub fn own(&self, name: &str) -> Option<OwnProxy> {
        self.registry.find(name).map(OwnProxy)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.serving.abort();
        // An OwnProxy may outlive the server: its listener must not.
        for proxy in self.registry.all() {
            proxy.abort();
        }
    }
}

async fn serve(listener: TcpListener, registry: Arc<Registry>) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    calls.spawn(timeout(LONGEST_CALL, converse(stream, Arc::clone(&registry))));
                }
                // Out of sockets, most likely: others have to be closed first.
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = calls.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, registry: Arc<Registry>) {
    let service = service_fn(move |request| {
        let registry = Arc::clone(&registry);
        async move { Ok::<_, Infallible>(answer(request, &registry).await) }
    });
    // A caller that hangs up is not missed.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let (status, json) = match Limited::new(body, LONGEST_BODY).collect().await {
        Ok(body) => registry.answer(&head.method, head.uri.path(), &body.to_bytes()).await,
        Err(error) => (StatusCode::BAD_REQUEST, Some(Value::String(error.to_string()))),
    };
    let mut response = Response::new(Full::new(json.map_or_else(Bytes::new, |json| Bytes::from(json.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    response
}

/// A connection to the API, with all calls on it.
const LONGEST_CALL: Duration = Duration::from_secs(30);
const LONGEST_BODY: usize = 1 << 20;
