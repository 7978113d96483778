//! Real databases for tests.
//!
//! The server is `DATABASE_URL` where that is set (a role that may create databases), else a throw-away PostgreSQL, one a
//! test binary, started on first use and stopped when the test process has ended. A test gets a database of its own, a
//! copy of a template that was migrated once. Without a server, tests fail with a sentence that says what to install.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod planted;

use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;
use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;
use call_budget::store::migrate;
use refinery::{Migration, Runner};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};

use self::planted::Planted;

/// A database of one test, and a connection to it.
pub struct TestDatabase {
    pub url: String,
    pub client: Client,
    pub name: String,
    roles: Vec<String>,
}

/// A role made for one test.
pub struct TestRole {
    pub name: String,
    /// The test's database, as this role.
    pub url: String,
}

impl TestDatabase {
    /// A plain role that may log in and nothing else. Its name needs quotes.
    pub async fn role(&mut self) -> TestRole {
        let name = format!("{} role {}", self.name, self.roles.len() + 1);
        let password = "secret";
        self.client.batch_execute(&format!("CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}'")).await.unwrap();
        self.roles.push(name.clone());
        let (_, place) = self.url.rsplit_once('@').expect("DATABASE_URL names a user: postgres://USER@HOST/DATABASE");
        TestRole { url: format!("postgres://{}:{password}@{place}", name.replace(' ', "%20")), name }
    }
}

/// A migrated database.
pub async fn database() -> TestDatabase {
    let template = TEMPLATE.get_or_init(make_template).await;
    create(&format!("TEMPLATE {template}")).await
}

/// A database without the schema.
pub async fn empty_database() -> TestDatabase {
    create("TEMPLATE template0").await
}

/// A server of one test's own, to be restarted, crashed or stopped.
pub fn server() -> ScratchPostgres {
    ScratchPostgres::start(&[]).unwrap_or_else(|error| panic!("{error}"))
}

/// A connection to the database at `url`.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap_or_else(|error| panic!("{error:?}"));
    tokio::spawn(connection);
    client
}

/// A connection to the database at `url`, with the schema brought up to date, planted bug and all.
pub async fn connect_and_migrate(url: &str) -> Client {
    let mut client = connect(url).await;
    bring_up_to_date(&mut client).await;
    client
}

/// Brings the schema up to date, planted bug and all.
pub async fn bring_up_to_date(client: &mut Client) {
    match Planted::asked_for() {
        None => {
            migrate::migrate(client).await.unwrap();
        }
        Some(planted) => migrate_planted(client, planted).await,
    }
}

static SHARED: OnceCell<Option<ScratchPostgres>> = OnceCell::const_new();
static TEMPLATE: OnceCell<String> = OnceCell::const_new();

/// The URL of a database of the shared server; the empty name is the one that a first connection may use.
async fn url(database: &str) -> String {
    let given = || env::var("DATABASE_URL").ok().filter(|given| !given.is_empty());
    let shared = SHARED
        .get_or_init(|| async {
            match given() {
                Some(_) => None,
                None => Some(tokio::task::spawn_blocking(server).await.unwrap()),
            }
        })
        .await;
    match shared {
        Some(server) if database.is_empty() => server.url("postgres"),
        Some(server) => server.url(database),
        None if database.is_empty() => given().unwrap(),
        None => with_database(&given().unwrap(), database),
    }
}

fn with_database(url: &str, database: &str) -> String {
    let (before, parameters) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = before.split_once("://").expect("DATABASE_URL begins with postgres://");
    let server = rest.split_once('/').map_or(rest, |(server, _)| server);
    format!("{scheme}://{server}/{database}?{parameters}")
}

async fn create(how: &str) -> TestDatabase {
    let name = format!("call_budget_test_{}_{:08x}", std::process::id(), fastrand::u32(..));
    let first = connect(&url("").await).await;
    first.batch_execute(&format!("CREATE DATABASE {name} {how}")).await.unwrap();
    let url = url(&name).await;
    TestDatabase { client: connect(&url).await, url, name, roles: Vec::new() }
}

/// Made under another name and then renamed: nobody finds it half made. Its name tells what is in it, so that on a server
/// given from outside the next run finds it again.
async fn make_template() -> String {
    const TURN: i64 = i64::from_be_bytes(*b"template");
    let mut hasher = DefaultHasher::new();
    for migration in migrate::migrations() {
        migration.checksum().hash(&mut hasher);
    }
    Planted::asked_for().map(|planted| planted.name).hash(&mut hasher);
    let name = format!("call_budget_template_{:016x}", hasher.finish());
    let first = connect(&url("").await).await;
    first.query_one("SELECT pg_advisory_lock($1)", &[&TURN]).await.unwrap();
    if first.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name]).await.unwrap().is_none() {
        let half_made = format!("{name}_half_made");
        first.batch_execute(&format!("DROP DATABASE IF EXISTS {half_made}")).await.unwrap();
        first.batch_execute(&format!("CREATE DATABASE {half_made} TEMPLATE template0")).await.unwrap();
        drop(connect_and_migrate(&url(&half_made).await).await);
        // PostgreSQL itself waits a moment for the connection to end.
        first.batch_execute(&format!("ALTER DATABASE {half_made} RENAME TO {name}")).await.unwrap();
    }
    name
}

async fn migrate_planted(client: &mut Client, planted: &Planted) {
    let migrations: Vec<_> = migrate::migrations()
        .iter()
        .map(|migration| {
            let file = format!("V{}__{}", migration.version(), migration.name());
            let text = migration.sql().unwrap().to_owned();
            Migration::unapplied(&file, &planted.plant_in(&file, text)).unwrap()
        })
        .collect();
    client.batch_execute("CREATE SCHEMA IF NOT EXISTS call_budget").await.unwrap();
    let mut runner = Runner::new(&migrations);
    runner.set_migration_table_name(migrate::HISTORY).run_async(client).await.unwrap();
}

impl Drop for TestDatabase {
    /// On a server given from outside nothing is to be left behind. (A throw-away server takes everything along.)
    fn drop(&mut self) {
        if SHARED.get().is_none_or(Option::is_some) {
            return;
        }
        let (name, roles) = (self.name.clone(), std::mem::take(&mut self.roles));
        let dropped = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let first = connect(&url("").await).await;
                first.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await.unwrap();
                for role in roles {
                    first.batch_execute(&format!("DROP ROLE IF EXISTS \"{role}\"")).await.unwrap();
                }
            });
        });
        if dropped.join().is_err() {
            eprintln!("the test database {} is left behind", self.name);
        }
    }
}

/// Waits until `condition` holds, at most 10 s.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition().await {
        assert!(Instant::now() < deadline, "after 10 s still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
