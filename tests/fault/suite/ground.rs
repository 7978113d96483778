//! What all cases stand on: a migrated database, a role with a client's rights, and the vendor. Started on first use.
//!
//! The database is one of the suite's own, unless `FAULT_DATABASE_URL` gives one: a superuser's URL with `sslrootcert`, as
//! `scripts/fault-test --compose` does. Then `FAULT_IMAGES` says what that is made of (`database=real toxiproxy=stand-in`),
//! and `FAULT_NAMESERVER` which DNS server knows [`DATABASE_NAME`].

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::sync::Arc;

use call_budget::Settings;
use call_budget::config::Connection;
use call_budget::service::scratch_postgres::ScratchPostgres;
use call_budget::store::access::{self, Access};
use call_budget::store::direct::Direct;
use call_budget::store::operation::Operation;
use tokio::net::lookup_host;
use tokio::sync::OnceCell;
use tokio_postgres::Client;

use super::superuser::Superuser;
use super::vendor::Vendor;
use crate::support;
use crate::tools::certificates::Shown;
use crate::tools::tls_server::{Clients, TlsServer};

/// One for the whole run.
pub struct Ground {
    shared: OnceCell<(Arc<Database>, Option<TlsServer>)>,
    vendor: Vendor,
}

/// A migrated database, whoever keeps its server running.
#[derive(Clone)]
pub struct Database {
    admin: Superuser,
    address: SocketAddr,
    /// What a caller's URL says of TLS.
    protection: String,
    /// The TLS version of a session, where there is one and the server tells.
    pub tls: Option<String>,
    pub server_version: String,
    images: Option<Images>,
}

/// Of a database given from outside: its parts, and what each is made of.
pub type Images = BTreeMap<String, String>;

/// A name that the shared server's certificate holds for, besides localhost and its address.
pub const DATABASE_NAME: &str = "db.test";
/// A database given from outside, and what is to be known of it. No case of its own process has it: that one may be in a
/// network from which it cannot be reached, and shares no role with this one.
pub const GIVEN: [&str; 6] =
    [URL, "FAULT_IMAGES", NAMESERVER, "TOXIPROXY_URL", "TOXIPROXY_LISTEN", "TOXIPROXY_UPSTREAM"];
const URL: &str = "FAULT_DATABASE_URL";
const NAMESERVER: &str = "FAULT_NAMESERVER";
/// Where the toxiproxy of docker-compose.yml passes the database on without being told.
const STANDING_PORT: u16 = 5432;
/// What the callers log in with. Nobody elsewhere can reach the server: it listens on this machine only, and ends with the
/// suite.
pub const ROLE: &str = "fault_client";
pub const PASSWORD: &str = "not-a-real-password";

/// Whether the database that all cases share was given from outside.
pub fn is_given() -> bool {
    env::var_os(URL).is_some()
}

impl Ground {
    pub fn new() -> Self {
        Self { shared: OnceCell::new(), vendor: Vendor::start() }
    }

    pub fn vendor(&self) -> &Vendor {
        &self.vendor
    }

    /// The database that all cases share; its server speaks TLS only, but to a superuser of the suite's own one. A case
    /// that stops its server takes one of its own: `Round::own_server`.
    pub async fn database(&self) -> Arc<Database> {
        let start = || async {
            if let Ok(url) = env::var(URL) {
                return (Arc::new(Database::given(&url).await), None);
            }
            let start = || TlsServer::start(&[DATABASE_NAME], Shown::Good, Clients::ByPassword, &[]);
            let server = tokio::task::spawn_blocking(start).await.expect("a PostgreSQL for the suite");
            (Arc::new(Database::with_tls(&server).await), Some(server))
        };
        Arc::clone(&self.shared.get_or_init(start).await.0)
    }
}

impl Database {
    /// As [`Database::on`], with callers whose sessions are encrypted and check the server's name.
    async fn with_tls(server: &TlsServer) -> Self {
        server.let_in_plainly("postgres");
        let admin = Superuser::of(&server.url("127.0.0.1", "postgres")).expect("the suite's own URL");
        let authority = server.certificates().authority();
        Self::reached_by(admin, Some(&authority.display().to_string())).await
    }

    /// One that somebody else keeps running.
    async fn given(url: &str) -> Self {
        let admin = Superuser::of(url).unwrap_or_else(|why| panic!("{URL}: {why}"));
        let authority = admin.authority().unwrap_or_else(|| panic!("{URL} is to name an sslrootcert")).to_owned();
        let images = env::var("FAULT_IMAGES").unwrap_or_default();
        let images: Images = images
            .split_whitespace()
            .filter_map(|one| one.split_once('='))
            .map(|(a, b)| (a.into(), b.into()))
            .collect();
        let database = Self { images: Some(images), ..Self::reached_by(admin, Some(&authority)).await };
        if let Ok(nameserver) = env::var(NAMESERVER) {
            let mut settings = Settings::default();
            settings.nameservers = vec![nameserver];
            settings.database_url = Some(database.url_by_name(DATABASE_NAME, STANDING_PORT).into());
            tls_of_a_session(&settings).await;
        }
        database
    }

    /// Migrates the server's first database and makes the client's role, as `call-budget access ROLE --as client
    /// --set-timeouts` does.
    pub async fn on(server: &ScratchPostgres) -> Self {
        Self::reached_by(Superuser::of(&server.url("postgres")).expect("the suite's own URL"), None).await
    }

    async fn reached_by(admin: Superuser, authority: Option<&str>) -> Self {
        let mut client = admin.connect().await.unwrap_or_else(|error| panic!("{error}"));
        support::bring_up_to_date(&mut client).await;
        if client.query_opt("SELECT FROM pg_roles WHERE rolname = $1", &[&ROLE]).await.unwrap().is_none() {
            client.batch_execute(&format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")).await.unwrap();
        }
        let operation = Operation::begin(&mut client).await.unwrap();
        access::give(&operation, ROLE, Access::Client, true).await.unwrap();
        operation.commit().await.unwrap();
        let version = client.query_one("SELECT current_setting('server_version')", &[]).await.unwrap();
        let found = lookup_host((admin.host(), admin.port())).await.expect("a host that was just connected to");
        let protection = match authority {
            Some(authority) => format!("sslmode=verify-full&sslrootcert={authority}"),
            None => "sslmode=disable".into(),
        };
        let address = found.into_iter().next().expect("an address of it");
        let database = Self { admin, address, protection, tls: None, server_version: version.get(0), images: None };
        let tls = match authority {
            Some(_) => tls_of_a_session(&database.of_a_caller()).await,
            None => None,
        };
        Self { tls, ..database }
    }

    fn of_a_caller(&self) -> Settings {
        let mut settings = Settings::default();
        settings.database_url = Some(self.url_by_way_of(self.address).into());
        settings
    }

    /// The same database at its standby: what that has copied, password and all.
    pub fn copied_to(&self, standby: &ScratchPostgres) -> Self {
        Self {
            admin: Superuser::of(&standby.url("postgres")).expect("the suite's own URL"),
            address: (standby.address(), standby.port()).into(),
            protection: self.protection.clone(),
            tls: self.tls.clone(),
            server_version: self.server_version.clone(),
            images: None,
        }
    }

    /// What it is made of, where it was given from outside: then a toxiproxy named by `TOXIPROXY_URL` reaches it, and that
    /// one reaches no other database.
    pub fn images(&self) -> Option<&Images> {
        self.images.as_ref()
    }

    /// A superuser's session, directly to the server and through no fault.
    pub async fn admin(&self) -> Result<Client, String> {
        self.admin.connect().await
    }

    /// The same in another database of that server.
    pub async fn admin_of(&self, name: &str) -> Result<Client, String> {
        self.admin.of_database(name).connect().await
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

/// The TLS version that a caller's session comes to.
async fn tls_of_a_session(settings: &Settings) -> Option<String> {
    let connection = Connection::of(settings).expect("the suite's own URL");
    let mut session =
        Direct::connect(connection).await.unwrap_or_else(|error| panic!("a caller gets no session: {error}"));
    let sql = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    session.client().query_one(sql, &[]).await.expect("everybody may see their own session").get(0)
}
