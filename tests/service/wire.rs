//! A client that sees the very bytes. Every wait has a bound.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Far longer than anything here takes; reached only where something hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Wire(pub TcpStream);

pub struct Answer {
    pub status: u16,
    /// The head as it came, status line included.
    pub head: String,
    pub body: String,
}

impl Wire {
    pub async fn to(addr: SocketAddr) -> Wire {
        Wire(within(TcpStream::connect(addr)).await.unwrap())
    }

    pub async fn send(&mut self, bytes: &str) {
        within(self.0.write_all(bytes.as_bytes())).await.unwrap();
    }

    pub async fn read(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(self.0.read_u8()).await?);
        }
        let head = String::from_utf8(head).unwrap();
        let mut answer = Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body: String::new() };
        let mut body = vec![0; answer.header("content-length").map_or(0, |length| length.parse().unwrap())];
        within(self.0.read_exact(&mut body)).await?;
        answer.body = String::from_utf8(body).unwrap();
        Ok(answer)
    }

    pub async fn ask(&mut self, bytes: &str) -> Answer {
        self.send(bytes).await;
        self.read().await.unwrap()
    }
}

impl Answer {
    /// The value of a header, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The vendor's code, in whichever of the two shapes it came.
    pub fn code(&self) -> String {
        let json = self.json();
        let code = json.get("msg_cd").or(json.get("error_code")).unwrap_or_else(|| panic!("no code in {json}"));
        code.as_str().unwrap().to_owned()
    }
}

/// The bytes of a request; the extra headers end each in a line break.
pub fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: mock\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

pub async fn within<F: Future>(work: F) -> F::Output {
    timeout(PATIENCE, work).await.expect("something hangs")
}
