//! `access`: who may do what, with real roles.

use tokio_postgres::Client;

use crate::support::{self, TestDatabase};
use crate::{Outcome, call_budget, database_with_budget, everything, words};

#[tokio::test]
async fn a_client_acquires_and_reads_and_cannot_change_settings() {
    let database = database_with_budget().await;
    let role = Role::create(&database.client, "app \"quoted\" 앱").await;
    give(&database.url, &role, "client").await.done();
    let url = role.url(&database);

    let client = support::connect(&url).await;
    for allowed in [
        "SELECT reason FROM call_budget.call_budget_acquire('kis-real', 'order', 1, '{1}', 1000000, 1)",
        "SELECT call_budget.call_budget_report_pushback('kis-real', 1000, 'said so')",
        "SELECT call_budget.call_budget_request_fence('kis-real')",
        "SELECT call_budget.call_budget_publish_breakers(1, '[{\"breaker\": \"a\", \"state\": \"open\"}]')",
    ] {
        client.query_one(allowed, &[]).await.unwrap();
    }
    assert!(call_budget(&url, &["status"]).await.done().contains("order"));
    call_budget(&url, &words("explain kis-real")).await.done();

    let before = everything(&database.client).await;
    for command in [
        "budget set kis-real --limit 100",
        "budget pause kis-real",
        "budget resume kis-real",
        "budget pushback kis-real --for 1s",
        "budget delete kis-real --yes",
        "class set kis-real order --priority 9",
        "class delete kis-real order",
        "fence kis-real",
    ] {
        call_budget(&url, &words(command)).await.refused(1, &["not allowed", "42501", "--as admin"]);
    }
    assert_eq!(everything(&database.client).await, before);
    assert!(client.execute("UPDATE call_budget.call_budget SET limit_units = 100", &[]).await.is_err());
    drop(client);
    role.drop(&database.client).await;
}

#[tokio::test]
async fn an_admin_changes_settings_and_loses_that_when_it_becomes_a_client() {
    let database = database_with_budget().await;
    let role = Role::create(&database.client, "ops").await;
    let url = role.url(&database);
    let set = words("budget set kis-real --limit 17");

    call_budget(&url, &set).await.refused(1, &["has no rights on the call-budget schema", "--as admin"]);
    give(&database.url, &role, "admin").await.done();
    for command in [
        "budget set kis-real --limit 17",
        "budget drain kis-real",
        "budget resume kis-real",
        "budget pushback kis-real --for 1s",
        "class set kis-real minute --priority 1",
        "class delete kis-real minute",
        "fence kis-real",
    ] {
        call_budget(&url, &words(command)).await.done();
    }
    // No right to give rights: a warning of the server's would not be enough.
    give(&url, &role, "admin").await.refused(1, &["cannot give rights", "connect as"]);

    give(&database.url, &role, "client").await.done();
    call_budget(&url, &set).await.refused(1, &["not allowed"]);
    call_budget(&url, &words("budget show kis-real")).await.done();
    role.drop(&database.client).await;
}

#[tokio::test]
async fn sessions_of_the_role_are_read_committed_and_get_the_timeouts_that_were_asked_for() {
    let database = support::database().await;
    let role = Role::create(&database.client, "timed").await;
    let alter = format!("ALTER ROLE {} SET default_transaction_isolation = 'serializable'", role.quoted());
    database.client.batch_execute(&alter).await.unwrap();
    let settings = async || {
        let client = support::connect(&role.url(&database)).await;
        let mut settings = Vec::new();
        for name in [
            "default_transaction_isolation",
            "statement_timeout",
            "lock_timeout",
            "idle_in_transaction_session_timeout",
            "client_connection_check_interval",
        ] {
            settings.push(client.query_one(&format!("SHOW {name}"), &[]).await.unwrap().get::<_, String>(0));
        }
        settings
    };
    give(&database.url, &role, "client").await.done();
    assert_eq!(settings().await, ["read committed", "0", "0", "0", "0"]);
    call_budget(&database.url, &["access", &role.name, "--as", "client", "--set-timeouts"]).await.done();
    assert_eq!(settings().await, ["read committed", "500ms", "500ms", "5s", "100ms"]);
    role.drop(&database.client).await;
}

#[tokio::test]
async fn a_plain_owner_gives_the_rights_and_says_what_a_superuser_has_to_run() {
    let database = support::empty_database().await;
    let owner = Role::create(&database.client, "owner").await;
    let role = Role::create(&database.client, "app").await;
    let create = format!("GRANT CREATE ON DATABASE {} TO {}", database.name, owner.quoted());
    database.client.batch_execute(&create).await.unwrap();
    let url = owner.url(&database);
    call_budget(&url, &["migrate"]).await.done();

    let statement = format!("ALTER ROLE {} SET default_transaction_isolation = 'read committed'", role.quoted());
    let left = give(&url, &role, "client").await;
    left.refused(1, &["has the rights of a client now", "a superuser has to run", &statement]);
    let acquires =
        "SELECT has_function_privilege($1, p.oid, 'EXECUTE') FROM pg_proc AS p WHERE p.proname = 'call_budget_acquire'";
    assert!(database.client.query_one(acquires, &[&role.name]).await.unwrap().get::<_, bool>(0));

    // Once that was run, the owner has nothing left to ask for.
    database.client.batch_execute(&statement).await.unwrap();
    give(&url, &role, "client").await.done();

    // An owner without its own functions could serve nobody.
    give(&url, &owner, "client").await.refused(2, &["owns the schema and needs all rights"]);
    call_budget(&url, &words("budget set kis-real --limit 18 --window 1s")).await.done();
    role.drop(&database.client).await;
    owner.drop(&database.client).await;
}

#[tokio::test]
async fn a_client_that_is_an_admin_by_membership_is_not_passed_over_in_silence() {
    let database = support::database().await;
    let admin = Role::create(&database.client, "admins").await;
    let role = Role::create(&database.client, "member").await;
    let join = format!("GRANT {} TO {}", admin.quoted(), role.quoted());
    database.client.batch_execute(&join).await.unwrap();
    give(&database.url, &admin, "admin").await.done();
    let said = give(&database.url, &role, "client").await.done();
    assert!(said.contains("may still change settings: as a superuser, or by membership"), "{said}");
    role.drop(&database.client).await;
    admin.drop(&database.client).await;
}

async fn give(url: &str, role: &Role, what: &str) -> Outcome {
    call_budget(url, &["access", &role.name, "--as", what]).await
}

/// A role that may log in, of one test. Roles belong to the whole server: the name is this test's own.
struct Role {
    name: String,
}

impl Role {
    async fn create(client: &Client, name: &str) -> Role {
        let role = Role { name: format!("{name} {:08x}", fastrand::u32(..)) };
        client.batch_execute(&format!("CREATE ROLE {} LOGIN PASSWORD 'open'", role.quoted())).await.unwrap();
        role
    }

    fn quoted(&self) -> String {
        format!("\"{}\"", self.name.replace('"', "\"\""))
    }

    /// The test's database as this role sees it.
    fn url(&self, database: &TestDatabase) -> String {
        let server = database.url.split_once('@').unwrap().1;
        let user: String = self.name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("postgres://{user}:open@{server}")
    }

    async fn drop(self, client: &Client) {
        let role = self.quoted();
        client.batch_execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}")).await.unwrap();
    }
}
