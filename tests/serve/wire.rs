//! A client that sees the very bytes. Every wait has a bound.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Far longer than anything here takes; reached only where something hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that is kept.
pub struct Wire(pub BufReader<TcpStream>);

pub struct Answer {
    pub status: u16,
    /// The head as it came, status line included.
    pub head: String,
    pub body: String,
}

/// A request, built up.
#[derive(Clone)]
pub struct Ask {
    method: &'static str,
    path: String,
    host: String,
    headers: String,
    body: String,
}

pub fn get(path: &str) -> Ask {
    ask("GET", path)
}

pub fn ask(method: &'static str, path: &str) -> Ask {
    Ask { method, path: path.into(), host: "127.0.0.1".into(), headers: String::new(), body: String::new() }
}

pub fn post(path: &str, body: &Value) -> Ask {
    ask("POST", path).body(&body.to_string())
}

impl Ask {
    pub fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    pub fn host(self, host: &str) -> Self {
        Self { host: host.into(), ..self }
    }

    /// With the content type that goes with it.
    pub fn body(self, body: &str) -> Self {
        self.plain(body).header("Content-Type", "application/json")
    }

    pub fn plain(self, body: &str) -> Self {
        Self { body: body.into(), ..self }
    }

    pub fn bytes(&self) -> String {
        let Self { method, path, host, headers, body } = self;
        let length = body.len();
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
    }
}

impl Wire {
    pub async fn to(address: SocketAddr) -> Wire {
        let stream = within(TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Wire(BufReader::new(stream))
    }

    pub async fn send(&mut self, bytes: &str) {
        within(self.0.write_all(bytes.as_bytes())).await.unwrap();
    }

    pub async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match within(self.0.read_line(&mut line)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    pub async fn head(&mut self) -> io::Result<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &self.line().await?;
        }
        Ok(head)
    }

    pub async fn read(&mut self) -> io::Result<Answer> {
        let head = self.head().await?;
        let mut answer = Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body: String::new() };
        let mut body = vec![0; answer.header("content-length").map_or(0, |length| length.parse().unwrap())];
        within(self.0.read_exact(&mut body)).await?;
        answer.body = String::from_utf8(body).unwrap();
        Ok(answer)
    }

    pub async fn ask(&mut self, ask: &Ask) -> Answer {
        self.send(&ask.bytes()).await;
        self.read().await.unwrap()
    }

    /// The next event of a stream, by its name and what it says.
    pub async fn event(&mut self) -> io::Result<(String, Value)> {
        let mut name = String::new();
        loop {
            let line = self.line().await?;
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Ok((name, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Completes when the other side has ended it.
    pub async fn ended(&mut self) {
        let mut left = Vec::new();
        // A reset is an end too.
        let _ = within(self.0.read_to_end(&mut left)).await;
    }
}

impl Answer {
    /// The value of a header, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}{}", self.head, self.body))
    }

    /// Panics unless it is a yes; what it says.
    #[track_caller]
    pub fn done(self) -> Value {
        assert_eq!(self.status, 200, "{}{}", self.head, self.body);
        self.json()
    }

    /// Panics unless it is a problem of this status and code; what it says.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}{}", self.head, self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!((&problem["code"], &problem["status"]), (&code.into(), &status.into()), "{problem}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        if matches!(status, 429 | 503) {
            let seconds: u64 = self.header("retry-after").expect("when to come back").parse().unwrap();
            let ms = problem["retry_after_ms"].as_f64().expect("the same in milliseconds");
            assert!(seconds >= 1 && seconds as f64 * 1000.0 >= ms, "{}{problem}", self.head);
        }
        problem
    }
}

pub async fn within<F: Future>(work: F) -> F::Output {
    timeout(PATIENCE, work).await.expect("something hangs")
}
