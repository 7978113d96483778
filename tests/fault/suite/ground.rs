//! What all cases stand on: a migrated database, a role with a client's rights, and the vendor. Started on first use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use call_budget::Settings;
use call_budget::config::Connection;
use call_budget::service::scratch_postgres::ScratchPostgres;
use call_budget::store::access::{self, Access};
use call_budget::store::direct::Direct;
use call_budget::store::operation::Operation;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use super::vendor::Vendor;
use crate::support;
use crate::tools::certificates::Shown;
use crate::tools::tls_server::{Clients, TlsServer};

/// One for the whole run.
pub struct Ground {
    shared: OnceCell<(Arc<Database>, TlsServer)>,
    vendor: Vendor,
}

/// A migrated database, whoever keeps its server running.
#[derive(Clone)]
pub struct Database {
    admin_url: String,
    address: SocketAddr,
    /// What a caller's URL says of TLS.
    protection: String,
    /// The TLS version of a session, where there is one and the server tells.
    pub tls: Option<String>,
    pub server_version: String,
}

/// A name that the shared server's certificate holds for, besides localhost and 127.0.0.1.
pub const DATABASE_NAME: &str = "db.test";
/// What the callers log in with. Nobody else can reach the server: loopback, and ended with the suite.
pub const ROLE: &str = "fault_client";
pub const PASSWORD: &str = "not-a-real-password";
const PATIENCE: Duration = Duration::from_secs(10);

impl Ground {
    pub fn new() -> Self {
        Self { shared: OnceCell::new(), vendor: Vendor::start() }
    }

    pub fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// The database that all cases share; its server speaks TLS only, but to a superuser. A case that stops its server takes one of its own: `Round::own_server`.
    pub async fn database(&self) -> Arc<Database> {
        let start = || async {
            let start = || TlsServer::start(&[DATABASE_NAME], Shown::Good, Clients::ByPassword, &[]);
            let server = tokio::task::spawn_blocking(start).await.expect("a PostgreSQL for the suite");
            (Arc::new(Database::with_tls(&server).await), server)
        };
        Arc::clone(&self.shared.get_or_init(start).await.0)
    }
}

impl Database {
    /// As [`Database::on`], with callers whose sessions are encrypted and check the server's name.
    async fn with_tls(server: &TlsServer) -> Self {
        server.let_in_plainly("postgres");
        let authority = server.certificates().authority();
        let database = Self {
            protection: format!("sslmode=verify-full&sslrootcert={}", authority.display()),
            ..Self::at(server.url("127.0.0.1", "postgres"), ([127, 0, 0, 1], server.port()).into()).await
        };
        let tls = database.tls_of_a_caller().await;
        Self { tls, ..database }
    }

    /// The TLS version that a caller's session comes to.
    async fn tls_of_a_caller(&self) -> Option<String> {
        let mut settings = Settings::default();
        settings.database_url = Some(self.url_by_way_of(self.address()).into());
        let connection = Connection::of(&settings).expect("the suite's own URL");
        let mut session = Direct::connect(connection).await.expect("the suite's own server");
        let sql = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        session.client().query_one(sql, &[]).await.expect("everybody may see their own session").get(0)
    }

    /// Migrates the server's first database and makes the client's role, as `call-budget access ROLE --as client
    /// --set-timeouts` does.
    pub async fn on(server: &ScratchPostgres) -> Self {
        Self::at(server.url("postgres"), (server.address(), server.port()).into()).await
    }

    async fn at(admin_url: String, address: SocketAddr) -> Self {
        let mut client = support::connect_and_migrate(&admin_url).await;
        client.batch_execute(&format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")).await.unwrap();
        let operation = Operation::begin(&mut client).await.unwrap();
        access::give(&operation, ROLE, Access::Client, true).await.unwrap();
        operation.commit().await.unwrap();
        let version = client.query_one("SELECT current_setting('server_version')", &[]).await.unwrap();
        Self { admin_url, address, protection: "sslmode=disable".into(), tls: None, server_version: version.get(0) }
    }

    /// The same database at its standby: what that has copied, password and all.
    pub fn copied_to(&self, standby: &ScratchPostgres) -> Self {
        let (protection, tls, server_version) =
            (self.protection.clone(), self.tls.clone(), self.server_version.clone());
        let address = (standby.address(), standby.port()).into();
        Self { admin_url: standby.url("postgres"), address, protection, tls, server_version }
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
        self.address
    }

    /// The callers' URL, by way of `address`.
    pub fn url_by_way_of(&self, address: SocketAddr) -> String {
        self.url_by_name(&address.ip().to_string(), address.port())
    }

    /// The callers' URL, by way of a host name: `localhost`, `db.test`, or another if the case wants another TLS.
    pub fn url_by_name(&self, host: &str, port: u16) -> String {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("postgresql://{ROLE}:{PASSWORD}@{host}:{port}/postgres?{}", self.protection)
    }
}
