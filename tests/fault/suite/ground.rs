//! What all cases stand on: a migrated database, a role with a client's rights, and the vendor. Started on first use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;
use call_budget::store::access::{self, Access};
use call_budget::store::operation::Operation;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use super::vendor::Vendor;
use crate::support;

/// One for the whole run.
pub struct Ground {
    shared: OnceCell<(Arc<Database>, ScratchPostgres)>,
    vendor: Vendor,
}

/// A migrated database, whoever keeps its server running.
pub struct Database {
    admin_url: String,
    port: u16,
    /// The TLS version of a session, where there is one and the server tells.
    pub tls: Option<String>,
    pub server_version: String,
}

/// What the callers log in with. Nobody else can reach the server: loopback, and ended with the suite.
const ROLE: &str = "fault_client";
const PASSWORD: &str = "not-a-real-password";
const PATIENCE: Duration = Duration::from_secs(10);

impl Ground {
    pub fn new() -> Self {
        Self { shared: OnceCell::new(), vendor: Vendor::start() }
    }

    pub fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// The database that all cases share. A case that stops its server takes one of its own: `Round::own_server`.
    pub async fn database(&self) -> Arc<Database> {
        let start = || async {
            let server = tokio::task::spawn_blocking(support::server).await.expect("a PostgreSQL for the suite");
            (Arc::new(Database::on(&server).await), server)
        };
        Arc::clone(&self.shared.get_or_init(start).await.0)
    }
}

impl Database {
    /// Migrates the server's first database and makes the client's role, as `call-budget access ROLE --as client
    /// --set-timeouts` does.
    pub async fn on(server: &ScratchPostgres) -> Self {
        let admin_url = server.url("postgres");
        let mut client = support::connect_and_migrate(&admin_url).await;
        client.batch_execute(&format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")).await.unwrap();
        let operation = Operation::begin(&mut client).await.unwrap();
        access::give(&operation, ROLE, Access::Client, true).await.unwrap();
        operation.commit().await.unwrap();
        let about =
            "SELECT current_setting('server_version'), (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid())";
        let about = client.query_one(about, &[]).await.unwrap();
        Self { admin_url, port: server.port(), tls: about.get(1), server_version: about.get(0) }
    }

    /// The same database at another server of this machine: what a standby has copied, password and all.
    pub fn copied_to(&self, port: u16) -> Self {
        let admin_url = self.admin_url.replace(&format!(":{}/", self.port), &format!(":{port}/"));
        Self { admin_url, port, tls: self.tls.clone(), server_version: self.server_version.clone() }
    }

    /// A superuser's session, directly to the server and through no fault.
    pub async fn admin(&self) -> Result<Client, String> {
        let connect = tokio_postgres::connect(&self.admin_url, NoTls);
        let (client, connection) = timeout(PATIENCE, connect)
            .await
            .map_err(|_| format!("the server gave no session within {PATIENCE:?}"))?
            .map_err(|error| format!("the server gives no session: {error:?}"))?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Where the server listens, for whoever puts a fault in front of it.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The callers' URL, by way of `address`.
    pub fn url_by_way_of(&self, address: SocketAddr) -> String {
        self.url_by_name(&address.ip().to_string(), address.port())
    }

    /// The callers' URL, by way of a host name. Everything that a session needs stands here alone: TLS too, once the server
    /// speaks nothing else.
    pub fn url_by_name(&self, host: &str, port: u16) -> String {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("postgresql://{ROLE}:{PASSWORD}@{host}:{port}/postgres")
    }
}
