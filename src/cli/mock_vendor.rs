//! `call-budget mock-vendor`: the KIS-like server, until it is told to stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::Exit;
use crate::config::parse_duration;
use crate::service::mock_vendor::{Kind, MockVendor, Settings};

/// Runs a KIS-like vendor over real HTTP/1.1 that counts arrivals and finds the worst window.
///
/// The first line on stdout is the address. Calls need no key and no token unless --check-tokens is given. Callers may
/// add x-call-budget-nonce, -class, -pid, -cost and -closes-us, which the arrival log and the report then hold.
///
/// Under /mock/ are GET report, GET arrivals (JSON lines), POST settings (JSON: what the flags set and more, such as
/// hang, reset, late_answer, refuse_below_limit, ledger_cap and pages), POST expire-tokens, and POST reset, which forgets
/// the log; until then every arrival stays in memory.
///
/// Two settings replay what went wrong. script is a list of what becomes of the next requests: each entry has a code, or
/// a status with headers and body (and cut_after, the bytes after which the connection ends), or a fault (hang, reset),
/// and may have times, tr_id and path. black_hole is silent, reset, refused or null; black_hole_spans holds some to come,
/// in microseconds since the start.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  call-budget mock-vendor --listen 127.0.0.1:9443 --limit 18 --window 1s --kind sliding
  curl http://127.0.0.1:9443/mock/report
  curl http://127.0.0.1:9443/mock/settings -d '{\"limit\": 3, \"refuse_below_limit\": 0.01}'
  curl http://127.0.0.1:9443/mock/settings -d '{\"script\": [{\"code\": \"EGW00215\", \"times\": 3}]}'
  curl http://127.0.0.1:9443/mock/settings \\
    -d '{\"black_hole_spans\": [{\"from_us\": 5000000, \"to_us\": 20000000, \"how\": \"silent\"}]}'

Exit codes: 0 stopped by SIGTERM, SIGINT or the end of stdin, 1 the address cannot be used, 2 usage or settings")]
pub struct Args {
    /// Address to listen on; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Units per window, 1 or more
    #[arg(long, value_name = "UNITS", default_value_t = 18)]
    limit: u32,
    /// Length of the window
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    window: Duration,
    /// How the window runs
    #[arg(long, default_value = "sliding")]
    kind: Kind,
    /// Count each app key by itself, not all as one account
    #[arg(long)]
    per_key: bool,
    /// How far past its send window a call may arrive without being late
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = parse_duration)]
    arrival_jitter: Duration,
    /// Play the paper-trading server: VTTC... TR ids
    #[arg(long)]
    paper: bool,
    /// Require the token of POST /oauth2/tokenP on the other calls
    #[arg(long)]
    check_tokens: bool,
    /// A key that may have a token, instead of mock-app-key=mock-app-secret; may be repeated
    #[arg(long = "key", value_name = "APPKEY=APPSECRET", value_parser = key)]
    keys: Vec<(String, String)>,
    /// Print the address as a JSON line
    #[arg(long)]
    json: bool,
    /// Stop when stdin ends, so that a parent that dies takes the server along
    #[arg(long)]
    until_stdin_closes: bool,
}

pub fn run(args: Args) -> Exit {
    // One thread for the heartbeat and every socket: then nothing can be read late without the heart beating late.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(Exit::Failed, &format!("cannot start: {error}")),
    };
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> Exit {
    let (json, until_stdin_closes) = (args.json, args.until_stdin_closes);
    let listen = args.listen;
    // Before the address is told: whoever reads it may stop the server at once.
    let (terminate, interrupt) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (Err(error), _) | (_, Err(error)) => return fail(Exit::Failed, &format!("cannot listen for signals: {error}")),
    };
    let vendor = match MockVendor::start(settings(args)).await {
        Ok(vendor) => vendor,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return fail(Exit::Usage, &error.to_string()),
        Err(error) => {
            let sentence = format!("cannot listen on {listen}: {error}; choose another address with --listen");
            return fail(Exit::Failed, &sentence);
        }
    };
    let exit = match tell_address(vendor.addr(), json) {
        Ok(()) => {
            until_told(terminate, interrupt, until_stdin_closes).await;
            Exit::Done
        }
        Err(error) => fail(Exit::Failed, &format!("cannot write the address to stdout: {error}")),
    };
    vendor.stop().await;
    exit
}

fn settings(args: Args) -> Settings {
    let defaults = Settings::default();
    Settings {
        listen: args.listen,
        limit: args.limit,
        window: args.window,
        kind: args.kind,
        per_key: args.per_key,
        arrival_jitter: args.arrival_jitter,
        paper: args.paper,
        check_tokens: args.check_tokens,
        keys: if args.keys.is_empty() { defaults.keys } else { args.keys.into_iter().collect() },
        ..defaults
    }
}

fn tell_address(addr: SocketAddr, json: bool) -> io::Result<()> {
    let url = format!("http://{addr}");
    let mut stdout = io::stdout().lock();
    if json {
        writeln!(stdout, "{}", serde_json::json!({"listening": url}))?;
    } else {
        writeln!(stdout, "listening on {url}")?;
    }
    stdout.flush()
}

async fn until_told(mut terminate: Signal, mut interrupt: Signal, until_stdin_closes: bool) {
    let (closed_sender, closed) = oneshot::channel::<()>();
    if until_stdin_closes {
        // A thread of its own: a read of stdin cannot be cancelled, and the runtime would wait for it at the end.
        thread::spawn(move || {
            // An unreadable stdin has ended too.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            drop(closed_sender);
        });
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = closed, if until_stdin_closes => {}
    }
}

fn fail(exit: Exit, sentence: &str) -> Exit {
    eprintln!("call-budget mock-vendor: {sentence}");
    exit
}

fn key(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, secret)) if !key.is_empty() && !secret.is_empty() => Ok((key.to_owned(), secret.to_owned())),
        _ => Err("a key is written APPKEY=APPSECRET".to_owned()),
    }
}
