//! `status --watch`: on a terminal, in a pipe, as JSON, and while the server is away.

use std::process::Stdio;
use std::time::Duration;

use call_budget::service::scratch_postgres::Halt;
use call_budget::{CallBudget, Settings};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::support;
use crate::{call_budget, database_with_budget, words};

/// Runs its arguments on a terminal of 80 columns and 24 rows: what is shown comes out, what is typed goes in.
const TERMINAL: &str = r#"
import fcntl, os, pty, select, struct, sys, termios
pid, master = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    ready, _, _ = select.select([master, 0], [], [])
    if 0 in ready:
        typed = os.read(0, 1024)
        if not typed:
            os.kill(pid, 9)
        os.write(master, typed)
    if master in ready:
        try:
            shown = os.read(master, 65536)
        except OSError:
            shown = b""
        if not shown:
            break
        os.write(1, shown)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

const SHOWN: &str = "\x1b[?25h\x1b[?1049l";

pub struct Terminal {
    pub child: Child,
    typed: ChildStdin,
    screen: ChildStdout,
    pub shown: String,
}

impl Terminal {
    pub fn run(url: &str, arguments: &str) -> Terminal {
        let mut child = Command::new("python3")
            .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_call-budget")])
            .args(words(arguments))
            .env("DATABASE_URL", url)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python3 plays the terminal");
        let (typed, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Terminal { child, typed, screen, shown: String::new() }
    }

    /// Waits for a picture that is so, and returns its lines.
    async fn until(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let looking = async {
            loop {
                if let Some(last) = self.pictures().pop()
                    && is_so(&last)
                {
                    return last;
                }
                assert!(self.more().await, "it ended: {}", self.shown);
            }
        };
        let found = timeout(Duration::from_secs(30), looking).await;
        found.unwrap_or_else(|_| panic!("never {what}: {:#?}", self.pictures().pop()))
    }

    /// Reads what has come; false at the end.
    pub async fn more(&mut self) -> bool {
        let mut bytes = Vec::with_capacity(65_536);
        // A picture's bytes come together or are waited for.
        let count = self.screen.read_buf(&mut bytes).await.unwrap();
        while std::str::from_utf8(&bytes).is_err() {
            bytes.push(self.screen.read_u8().await.unwrap());
        }
        self.shown += std::str::from_utf8(&bytes).unwrap();
        count > 0
    }

    /// Every whole picture so far, as lines without escapes.
    fn pictures(&self) -> Vec<Vec<String>> {
        let whole = self.shown.split("\x1b[H").skip(1).filter(|picture| picture.contains("\x1b[J"));
        whole.map(|picture| plain(picture).split('\n').map(|line| line.replace('\r', "")).collect()).collect()
    }

    pub async fn type_in(&mut self, text: &str) {
        self.typed.write_all(text.as_bytes()).await.unwrap();
    }

    /// Ends it as a person does, and returns everything that was ever shown.
    async fn ctrl_c(mut self) -> String {
        self.type_in("\x03").await;
        let rest = async { while self.more().await {} };
        timeout(Duration::from_secs(5), rest).await.expect("Ctrl-C ends it");
        let status = timeout(Duration::from_secs(5), self.child.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.shown);
        self.shown
    }
}

/// Without escape sequences.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        plain += part.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &part[end + 1..]);
    }
    plain
}

fn granted(picture: &[String], class: &str) -> Option<i64> {
    let row = picture.iter().find(|line| line.trim_start().starts_with(&format!("{class} ")))?;
    row.split_whitespace().nth(2)?.parse().ok()
}

/// Columns, where nothing is wider than Hangul.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if ('가'..='힣').contains(&c) { 2 } else { 1 }).sum()
}

async fn take(url: &str, count: usize) {
    let mut settings = Settings::default();
    (settings.enabled, settings.database_url) = (true, Some(url.into()));
    let budgets = CallBudget::new(&settings).unwrap();
    for _ in 0..count {
        drop(budgets.acquire("kis-real", "order").await.unwrap());
    }
}

#[tokio::test]
async fn on_a_terminal_it_redraws_counts_what_is_granted_meanwhile_and_gives_the_terminal_back() {
    let database = database_with_budget().await;
    call_budget(&database.url, &["class", "set", "kis-real", &"주문".repeat(15), "--priority", "1"]).await.done();
    let mut terminal = Terminal::run(&database.url, "status --watch --every 100ms");
    terminal.until("nothing granted", |picture| granted(picture, "order") == Some(0)).await;
    take(&database.url, 5).await;
    let picture = terminal.until("five granted", |picture| granted(picture, "order") == Some(5)).await;
    assert!(picture[0].starts_with("kis-real  granting  last slot "), "{picture:#?}");
    let reason = "점심 ".repeat(60);
    call_budget(&database.url, &["budget", "pause", "kis-real", "--reason", &reason]).await.done();
    let picture = terminal.until("paused", |picture| picture[0].starts_with("kis-real  paused")).await;
    assert!(picture[1].contains("점심"), "{picture:#?}");
    let pictures = terminal.pictures();
    let shown = terminal.ctrl_c().await;
    assert!(pictures.len() > 3, "{shown}");
    for line in pictures.iter().flatten() {
        assert!(columns(line) <= 80, "{line:?}");
    }
    assert!(pictures.iter().all(|picture| picture.len() <= 24), "{shown}");
    assert!(shown.contains("\x1b[?25l") && shown.ends_with(SHOWN), "the cursor is back: {shown:?}");
}

#[tokio::test]
async fn what_does_not_fit_on_the_terminal_is_counted_on_its_last_line() {
    let database = database_with_budget().await;
    let many =
        "SELECT call_budget.call_budget_class_set('kis-real', 'class-' || n, 5, 0) FROM generate_series(1, 40) AS n";
    database.client.batch_execute(many).await.unwrap();
    let mut terminal = Terminal::run(&database.url, "status --watch");
    let picture = terminal.until("full", |picture| picture.len() == 24).await;
    assert!(picture[23].starts_with("... ") && picture[23].contains(" more lines"), "{picture:#?}");
    terminal.ctrl_c().await;
}

#[tokio::test]
async fn it_survives_a_restart_of_the_server_and_says_meanwhile_since_when_and_why() {
    let mut server = tokio::task::spawn_blocking(support::server).await.unwrap();
    let url = server.url("postgres");
    drop(support::connect_and_migrate(&url).await);
    call_budget(&url, &words("budget set kis-real --limit 18 --window 1s")).await.done();
    call_budget(&url, &words("class set kis-real order --priority 0")).await.done();
    let mut terminal = Terminal::run(&url, "status --watch --every 100ms");
    let (mut json, mut lines) = piped(&url, "status --watch --every 100ms --json");
    json_line(&mut lines).await;
    terminal.until("a class", |picture| granted(picture, "order") == Some(0)).await;
    let mut server = tokio::task::spawn_blocking(move || {
        server.halt(Halt::Fast).unwrap();
        server
    })
    .await
    .unwrap();
    let picture = terminal.until("trouble", |picture| picture[0].starts_with("no reading since ")).await;
    assert!(picture[0].contains(" UTC ("), "{picture:#?}");
    assert_eq!(granted(&picture, "order"), Some(0), "the last figures stay: {picture:#?}");
    terminal.until("why", |picture| picture[..3].join(" ").contains("127.0.0.1")).await;
    let server = tokio::task::spawn_blocking(move || {
        server.resume().unwrap();
        server
    })
    .await
    .unwrap();
    take(&url, 3).await;
    terminal.until("readings again", |picture| granted(picture, "order") == Some(3)).await;
    // Two readers, and nobody's session is left over from before.
    let client = support::connect(&url).await;
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'call-budget'";
    assert_eq!(client.query_one(sessions, &[]).await.unwrap().get::<_, i64>(0), 2);
    while json_line(&mut lines).await["budgets"][0]["classes"][0]["granted"] != 3 {}
    interrupt(&json).await;
    assert_eq!(json.wait().await.unwrap().code(), Some(0));
    let shown = terminal.ctrl_c().await;
    assert!(shown.ends_with(SHOWN), "{shown:?}");
    tokio::task::spawn_blocking(|| server.stop().unwrap()).await.unwrap();
}

#[tokio::test]
async fn in_a_pipe_it_prints_block_after_block_without_escapes_and_ends_on_a_signal() {
    let database = database_with_budget().await;
    let (mut child, mut lines) = piped(&database.url, "status kis-real --watch --every 100ms");
    let mut seen = Vec::new();
    while seen.iter().filter(|line: &&String| line.starts_with("kis-real  granting")).count() < 3 {
        seen.push(line(&mut lines).await);
    }
    assert!(seen.iter().all(|line| !line.contains('\x1b') && line.chars().count() <= 80), "{seen:#?}");
    assert!(seen[0].ends_with(" UTC"), "{seen:#?}");
    interrupt(&child).await;
    let status = timeout(Duration::from_secs(5), child.wait()).await.expect("a signal ends it").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn as_json_each_line_is_one_dated_document_and_a_reader_that_leaves_ends_it() {
    let database = database_with_budget().await;
    let (mut child, mut lines) = piped(&database.url, "status --watch --every 100ms --json");
    let (first, second) = (json_line(&mut lines).await, json_line(&mut lines).await);
    assert!(second["unix_ms"].as_i64() > first["unix_ms"].as_i64(), "{first} {second}");
    assert_eq!(second["budgets"][0]["classes"][0]["name"], "order");
    assert!(second["server"]["version"].is_string(), "{second}");
    drop(lines);
    let status = timeout(Duration::from_secs(5), child.wait()).await.expect("nobody reads: it ends").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn an_interval_without_sense_and_a_budget_that_is_not_there_end_it_at_once() {
    let database = database_with_budget().await;
    for (command, words_of_it) in [
        ("status --watch --every 1ms", "100ms to 1h"),
        ("status --every 5s", "--watch"),
        ("status kis-rael --watch", "kis-real"),
    ] {
        let refused = call_budget(&database.url, &words(command)).await;
        assert_eq!((refused.exit, refused.stdout.as_str()), (2, ""), "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains(words_of_it), "{command}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn who_waits_at_a_terminal_sees_what_for_and_elsewhere_it_is_quiet() {
    let database = support::database().await;
    let turn = i64::from_be_bytes(*b"callbudg");
    database.client.query_one("SELECT pg_advisory_lock($1)", &[&turn]).await.unwrap();
    let mut terminal = Terminal::run(&database.url, "migrate");
    let quiet = Command::new(env!("CARGO_BIN_EXE_call-budget"))
        .arg("migrate")
        .env("DATABASE_URL", &database.url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let said = async {
        while !terminal.shown.contains("migrating; of several runs one goes at a time (2 s)") && terminal.more().await {
        }
    };
    timeout(Duration::from_secs(30), said).await.expect("it says what it waits for");
    database.client.query_one("SELECT pg_advisory_unlock($1)", &[&turn]).await.unwrap();
    let rest = async { while terminal.more().await {} };
    timeout(Duration::from_secs(30), rest).await.expect("it ends");
    let (_, last) = terminal.shown.rsplit_once("\r\x1b[K").unwrap();
    assert!(last.starts_with("nothing to do: "), "{:?}", terminal.shown);
    let quiet = timeout(Duration::from_secs(30), quiet.wait_with_output()).await.unwrap().unwrap();
    assert_eq!((quiet.status.code(), quiet.stderr.as_slice()), (Some(0), b"".as_slice()));
}

fn piped(url: &str, arguments: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_call-budget"))
        .args(words(arguments))
        .env("DATABASE_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = timeout(Duration::from_secs(30), lines.next_line()).await.expect("a line");
    line.unwrap().expect("it goes on")
}

async fn json_line(lines: &mut Lines<BufReader<ChildStdout>>) -> serde_json::Value {
    serde_json::from_str(&line(lines).await).unwrap()
}

async fn interrupt(child: &Child) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
}
