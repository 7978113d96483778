//! A small HTTP server of an example: it answers each request as one function says.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is sent back.
pub struct Reply {
    pub status: u16,
    /// Each ends in a line break.
    pub headers: String,
    pub body: String,
}

/// Serves until it is dropped.
pub struct Server {
    addr: SocketAddr,
    serving: JoinHandle<()>,
}

impl Server {
    /// `answer` is told the request line, such as `GET /depth HTTP/1.1`.
    pub async fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (addr, answer) = (listener.local_addr()?, Arc::new(answer));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                // A client that goes away ends its own connection and nothing else.
                tokio::spawn(async move { serve(stream, &*answer).await });
            }
        });
        Ok(Server { addr, serving })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One request, whose body is not looked at, and one answer.
async fn serve(mut stream: TcpStream, answer: &(dyn Fn(&str) -> Reply + Send + Sync)) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let Reply { status, headers, body } = answer(head.lines().next().unwrap_or_default());
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}
