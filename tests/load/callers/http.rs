//! A caller over HTTP: one connection that is kept, and the next service when it breaks.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::StatusCode;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::Asked;
use crate::notes::now_us;

pub struct Caller {
    doors: Vec<SocketAddr>,
    at: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
    body: Bytes,
}

/// The part of the answer that says how long it is good for.
#[derive(Deserialize)]
struct Leave {
    governed: bool,
    held_ms: f64,
    remaining_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    retry_after_ms: Option<f64>,
}

/// Nobody listens: somebody may again.
const AFTER_NOBODY: Duration = Duration::from_millis(10);

impl Caller {
    pub fn new(doors: Vec<SocketAddr>, at: usize, budget: &str, class: &str, max_wait_us: u64) -> Self {
        let wanted = serde_json::json!({ "budget": budget, "class": class, "max_wait_ms": max_wait_us / 1000 });
        Self { doors, at, connection: None, body: wanted.to_string().into() }
    }

    pub async fn ask(&mut self) -> Asked {
        let mut connection = self.connection().await;
        let door = self.door();
        // Noted before the request leaves: the caller's own clock, on which it is told how long the answer is good.
        let asked_us = now_us();
        match exchange(&mut connection, door, self.body.clone()).await {
            Ok((status, body)) => {
                self.connection = Some(connection);
                read(asked_us, status, &body)
            }
            Err(_) => {
                self.at += 1;
                Asked::Broken
            }
        }
    }

    /// The one that it has, or one to whoever listens.
    async fn connection(&mut self) -> SendRequest<Full<Bytes>> {
        if let Some(kept) = self.connection.take().filter(|kept| !kept.is_closed()) {
            return kept;
        }
        loop {
            match connect(self.door()).await {
                Ok(connection) => return connection,
                Err(_) => {
                    self.at += 1;
                    tokio::time::sleep(AFTER_NOBODY).await;
                }
            }
        }
    }

    fn door(&self) -> SocketAddr {
        self.doors[self.at % self.doors.len()]
    }
}

async fn connect(door: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect(door).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn exchange(
    connection: &mut SendRequest<Full<Bytes>>,
    door: SocketAddr,
    body: Bytes,
) -> Result<(StatusCode, Bytes), Box<dyn Error + Send + Sync>> {
    let request = hyper::Request::post("/v1/acquire")
        .header("host", door.to_string())
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let answer = connection.send_request(request).await?;
    let status = answer.status();
    Ok((status, answer.into_body().collect().await?.to_bytes()))
}

fn read(asked_us: u64, status: StatusCode, body: &[u8]) -> Asked {
    if status == StatusCode::OK {
        let leave: Leave = serde_json::from_slice(body).expect("leave, as the contract has it");
        assert!(leave.governed, "the switch of the service is on");
        let remaining_ms = leave.remaining_ms.expect("a window, where the switch is on");
        return Asked::Leave { until_us: asked_us + us(leave.held_ms) + us(remaining_ms) };
    }
    match serde_json::from_slice(body) {
        Ok(Problem { code, retry_after_ms }) => Asked::Refused { code, retry_after_us: retry_after_ms.map(us) },
        Err(_) => Asked::Refused { code: format!("status {status} without a code"), retry_after_us: None },
    }
}

/// They come with three decimals at most.
fn us(ms: f64) -> u64 {
    (ms * 1000.0).round() as u64
}
