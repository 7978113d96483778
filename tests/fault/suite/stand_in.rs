//! The fault proxy and the DNS server as programs of their own: what `scripts/stand-ins` puts in the place of an image of
//! docker-compose.yml that cannot be fetched.
//!
//! Each is called by the original's name and takes the options that docker-compose.yml gives to the original. Another
//! option is refused: what is not understood must not look obeyed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query};
use hickory_resolver::proto::rr::{Name, RecordType};

use crate::tools::proxy::{FaultProxy, Toxiproxy};
use crate::tools::scripted_dns::{Reply, ScriptedDns};
use crate::tools::signals::told_to_end;

/// Runs the program that `--stand-in NAME OPTIONS` asks for; `None` where nothing does.
pub fn asked() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != "--stand-in" {
        return None;
    }
    let name = words.next().unwrap_or_default();
    let options: Vec<String> = words.collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let ended = match name.as_str() {
        "toxiproxy" => runtime.block_on(toxiproxy(&options)),
        "toxiproxy-cli" => runtime.block_on(toxiproxy_cli(&options)),
        "dnsmasq" => runtime.block_on(dnsmasq(&options)),
        "nslookup" => nslookup(&options),
        _ => Err(format!("there is no stand-in for \"{name}\"")),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("stand-in for {name}: {why}");
            ExitCode::FAILURE
        }
    })
}

/// `-host=ADDRESS -config=FILE`: the API on port 8474, with the proxies of the file.
async fn toxiproxy(options: &[&str]) -> Result<(), String> {
    let (mut host, mut proxies) = ("127.0.0.1", Vec::new());
    for option in options {
        match option.split_once('=') {
            Some(("-host", address)) => host = address,
            Some(("-config", file)) => {
                let text = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
                proxies = serde_json::from_slice::<Vec<Standing>>(&text).map_err(|error| format!("{file}: {error}"))?;
            }
            _ => return Err(format!("unknown option {option}")),
        }
    }
    let host: IpAddr = host.parse().map_err(|_| format!("{host} is no address"))?;
    let proxy = FaultProxy::start_at((host, API_PORT).into()).await;
    for Standing { name, listen, upstream } in proxies {
        Toxiproxy::at(&proxy.url()).create(&name, &listen, &upstream).await.map_err(|error| error.to_string())?;
    }
    told_to_end().await;
    Ok(())
}

/// `list`: whether the API answers.
async fn toxiproxy_cli(options: &[&str]) -> Result<(), String> {
    match options {
        ["list"] => {
            let toxiproxy = Toxiproxy::at(&format!("http://127.0.0.1:{API_PORT}"));
            let proxies = toxiproxy.proxies().await.map_err(|error| error.to_string())?;
            println!("{proxies}");
            Ok(())
        }
        _ => Err(format!("unknown command {options:?}")),
    }
}

/// `--host-record=NAME,ADDRESS,TTL`: that name has that address and no other; no other name exists.
async fn dnsmasq(options: &[&str]) -> Result<(), String> {
    let server = ScriptedDns::start_at((Ipv4Addr::UNSPECIFIED, DNS_PORT).into());
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("--host-record", entry) => {
                let parts: Vec<&str> = entry.split(',').collect();
                let [name, address, ttl_s] = parts[..] else { return Err("--host-record=NAME,ADDRESS,TTL".into()) };
                let address: IpAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
                let ttl_s = ttl_s.parse().map_err(|_| format!("{ttl_s} is no number of seconds"))?;
                server.set_both(name, &Reply::addresses(&[address], ttl_s));
            }
            // What the original needs in order to be as plain as this one.
            ("--keep-in-foreground" | "--user" | "--no-resolv" | "--no-hosts" | "--local" | "--log-facility", _) => {}
            _ => return Err(format!("unknown option {option}")),
        }
    }
    told_to_end().await;
    Ok(())
}

/// `-type=a NAME SERVER`: whether the name has an address.
fn nslookup(options: &[&str]) -> Result<(), String> {
    let ["-type=a", name, server] = options else { return Err(format!("unknown options {options:?}")) };
    let server: IpAddr = server.parse().map_err(|_| format!("{server} is no address"))?;
    let name = Name::from_ascii(format!("{name}.")).map_err(|error| error.to_string())?;
    let mut question = Message::new(1, MessageType::Query, OpCode::Query);
    question.add_query(Query::query(name, RecordType::A));
    let asked = question.to_vec().map_err(|error| error.to_string())?;
    let mut answer = [0; 512];
    let mut exchange = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.connect(SocketAddr::new(server, DNS_PORT))?;
        socket.send(&asked)?;
        socket.recv(&mut answer)
    };
    let length = exchange().map_err(|error: std::io::Error| format!("{server} does not answer: {error}"))?;
    let answer = Message::from_vec(&answer[..length]).map_err(|error| error.to_string())?;
    println!("{:?}", answer.answers);
    if answer.answers.is_empty() { Err("no address".into()) } else { Ok(()) }
}

/// A proxy of toxiproxy's file.
#[derive(serde::Deserialize)]
struct Standing {
    name: String,
    listen: String,
    upstream: String,
}

const API_PORT: u16 = 8474;
const DNS_PORT: u16 = 53;
