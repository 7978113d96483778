use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::command_error::CommandError;
use super::database::Database;
use super::output::print;
use crate::service::http::{Service, Settings, StartError, names};

/// Serve callers that are not Rust over HTTP, and a page to look at
///
/// POST /v1/acquire answers when a slot is there; POST /v1/calls puts the
/// breaker in front; / is the page; /v1/openapi.json tells all of it. These two
/// obey the switch call_budget_enabled; looking and orders ask the store while
/// it is off, too. Two side by side serve the same budgets. SIGTERM ends it
/// within 5 s: callers that wait are refused.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Example: call-budget serve --admin-token-file token\n\nSettings: flags, over CALL_BUDGET_SERVE_* variables, over [serve] in the file"
)]
pub struct Serve {
    /// Address to listen on; port 0 takes any free port [default: 127.0.0.1:8181]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// A file whose first line is the token of admin calls
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// A file whose first line is the token that callers need
    #[arg(long, value_name = "FILE")]
    caller_token_file: Option<PathBuf>,
    /// Names by which it is called, beside localhost; commas between, or repeated
    #[arg(long = "allow-host", value_name = "NAME")]
    allow_hosts: Vec<String>,
    /// Connections at once, 1 to 100000 [default: 2000]
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Ask the service that listens there whether it lives, and end: 0 or 1
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    database: Database,
}

impl Serve {
    pub async fn run(self) -> Result<(), CommandError> {
        let shared = self.database.settings()?;
        let mut settings = Settings::of(&shared).map_err(|error| CommandError::usage(error.to_string()))?;
        settings.listen = self.listen.unwrap_or(settings.listen);
        settings.admin_token_file = self.admin_token_file.or(settings.admin_token_file);
        settings.caller_token_file = self.caller_token_file.or(settings.caller_token_file);
        settings.allowed_hosts.extend(self.allow_hosts.iter().flat_map(|text| names(text)));
        settings.max_connections = self.max_connections.unwrap_or(settings.max_connections);
        if self.check {
            return check(settings.listen).await;
        }
        // Before the address is told: whoever reads it may stop the service at once.
        let interrupted = super::interrupted();
        let service = Service::start(&shared, settings).await.map_err(|error| match error {
            StartError::Settings(error) => error.into(),
            StartError::Address(address, error) => CommandError::failed(format!("cannot listen on {address}: {error}"))
                .hint("choose another with --listen"),
        })?;
        print(&format!("listening on http://{}", service.address()));
        if !shared.enabled {
            let way_out =
                "each class keeps this process's own pace; CALL_BUDGET_ENABLED=true and a new start share the limit";
            tracing::warn!(way_out, "call_budget_switch_off");
        }
        let signal = interrupted.await;
        tracing::info!(signal, "call_budget_service_stopping");
        service.stop().await;
        Ok(())
    }
}

/// For a container's health check: there is no other program in the image that could ask.
async fn check(mut address: SocketAddr) -> Result<(), CommandError> {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /livez HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let said = match tokio::time::timeout(CHECK_WITHIN, ask).await {
        Ok(Ok(answer)) if answer.starts_with(b"HTTP/1.1 200 ") => return Ok(()),
        Ok(Ok(_)) => "what listens there does not say that it lives".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", CHECK_WITHIN.as_secs()),
    };
    Err(CommandError::failed(format!("no service lives at {address}: {said}")))
}

const CHECK_WITHIN: Duration = Duration::from_secs(4);
const LONGEST_ANSWER: u64 = 64 * 1024;
