//! The generic cell rate algorithm as a script in a real Redis: one key a budget, one round trip a grant. The shape is that
//! of redis_rate (github.com/go-redis/redis_rate, script_allow_n.lua), with the pool of connections that its client has.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::pool::Connection;
use crate::Outcome;
use crate::ground::{Spent, cpu_of};

/// Ends the server when nobody is left to tell it to: its input ends with us.
const KEEPER: &str = r#""$@" >redis.log 2>&1 & server=$!; read -r _; kill "$server"; wait "$server""#;
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the interval and the longest wait in microseconds; answers whether it granted, and the wait.
const SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, longest = tonumber(ARGV[1]), tonumber(ARGV[2])
local arrival = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
if arrival - now > longest then return {0, arrival - now} end
local after = arrival + interval
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000) + 1000)
return {1, arrival - now}";

/// When it writes what it was told to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appends {
    /// As Redis comes: it appends to no file, and a crash loses what came after the last snapshot.
    Default,
    /// Before each answer.
    Always,
}

pub struct Redis {
    keeper: Child,
    port: u16,
    pid: i32,
    appends: Appends,
    _folder: TempDir,
}

impl Appends {
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "GCRA script, Redis as it comes",
            Self::Always => "GCRA script, Redis, appendfsync always",
        }
    }
}

impl Redis {
    /// Starts the program on loopback, in a folder of its own. It ends with this value, or with this process.
    pub async fn start(program: &Path, appends: Appends) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("call-budget-redis-").tempdir()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("sh");
        // Not to the end of links: the program goes by its name.
        command.args(["-c", KEEPER, "redis-keeper"]).arg(std::path::absolute(program)?);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        if appends == Appends::Always {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
            // A rewrite would make the file shorter, and its length is the figure.
            command.args(["--auto-aof-rewrite-percentage", "0"]);
        }
        command.current_dir(folder.path()).stdin(Stdio::piped());
        let mut redis = Self { keeper: command.spawn()?, port, pid: 0, appends, _folder: folder };
        redis.pid = redis.figure("process_id").await?.try_into()?;
        Ok(redis)
    }

    pub async fn connect(&self) -> Outcome<Asker> {
        let mut asker = Asker { stream: self.open().await?, sha: String::new() };
        let Reply::Text(sha) = asker.command(&["SCRIPT", "LOAD", SCRIPT]).await? else {
            return Err("Redis did not take the script".into());
        };
        asker.sha = sha;
        asker.grant(0).await?;
        Ok(asker)
    }

    /// `wal_bytes` is what it has appended to its file.
    pub async fn spent(&self) -> Outcome<Spent> {
        let wal_bytes = match self.appends {
            Appends::Default => 0,
            Appends::Always => u64::try_from(self.figure("aof_current_size").await?)?,
        };
        Ok(Spent { cpu: cpu_of(self.pid), wal_bytes })
    }

    async fn open(&self) -> Outcome<BufReader<TcpStream>> {
        let begin = Instant::now();
        loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(BufReader::new(stream));
                }
                Err(error) if begin.elapsed() > PATIENCE => return Err(format!("Redis did not start: {error}").into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// One of the figures that it tells of itself.
    async fn figure(&self, name: &str) -> Outcome<i64> {
        let mut asker = Asker { stream: self.open().await?, sha: String::new() };
        let Reply::Text(info) = asker.command(&["INFO", "everything"]).await? else {
            return Err("Redis told nothing of itself".into());
        };
        let told = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(told.ok_or_else(|| format!("Redis did not tell {name}"))?.trim().parse()?)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.keeper.stdin = None;
        let _ = self.keeper.wait();
    }
}

/// A connection that takes grants.
pub struct Asker {
    stream: BufReader<TcpStream>,
    sha: String,
}

impl Connection for Asker {
    async fn grant(&mut self, key: usize) -> Outcome<()> {
        let (sha, key) = (self.sha.clone(), format!("key-{key}"));
        match self.command(&["EVALSHA", &sha, "1", &key, "1", "5000000"]).await? {
            Reply::Numbers(reply) if reply.first() == Some(&1) => Ok(()),
            other => Err(format!("Redis granted nothing, although its limit is never reached: {other:?}").into()),
        }
    }
}

#[derive(Debug)]
enum Reply {
    Text(String),
    Numbers(Vec<i64>),
}

impl Asker {
    async fn command(&mut self, words: &[&str]) -> Outcome<Reply> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(request.as_bytes()).await?;
        let head = self.line().await?;
        let (kind, rest) = head.split_at_checked(1).ok_or("an empty answer from Redis")?;
        match kind {
            "$" => {
                let mut text = vec![0; rest.parse::<usize>()? + 2];
                self.stream.read_exact(&mut text).await?;
                Ok(Reply::Text(String::from_utf8(text)?.trim_end().to_owned()))
            }
            "*" => {
                let mut numbers = Vec::new();
                for _ in 0..rest.parse::<usize>()? {
                    numbers.push(self.line().await?.trim_start_matches(':').parse()?);
                }
                Ok(Reply::Numbers(numbers))
            }
            _ => Err(format!("Redis answered {head}").into()),
        }
    }

    async fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err("Redis closed the connection".into());
        }
        Ok(line.trim_end().to_owned())
    }
}
