//! What can be known of a server before anybody relies on it: how it is set up, what this role may do there, who is in the
//! way. Reads only, and only what every role may read; what a role may not see of others' sessions is seen by their locks.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::access::{ADMIN_FUNCTIONS, CLIENT_FUNCTIONS, VIEWS};
use super::operation::{Operation, OperationError};

/// The session that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The server's process behind it. Through a transaction pooler it can be another one each time.
    pub pid: i32,
    /// Version and cipher of TLS, as the server sees it; none on a plain connection.
    pub tls: Option<(String, String)>,
}

/// The server, and the database with the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub version: String,
    /// Unlogged tables survive a failover there.
    pub aurora: bool,
    /// A standby, or still recovering.
    pub in_recovery: bool,
    /// New transactions of this role are read only.
    pub read_only: bool,
    /// As the names of the WAL files tell it; none while in recovery.
    pub timeline: Option<i64>,
    /// Whether the schema's owner, for whom the fence reads the timeline, may read it; none without the schema.
    pub owner_reads_timeline: Option<bool>,
    pub fsync: String,
    pub full_page_writes: String,
    /// As sessions of this role begin.
    pub synchronous_commit: String,
    /// After how many seconds without a word the server gives a connection up; none on a Unix socket.
    pub silence_s: Option<i64>,
}

/// The role that this session logged in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    pub superuser: bool,
    /// Owns the schema, or is a member of the role that does.
    pub owner: bool,
    /// May change settings.
    pub admin: bool,
    /// Whether the schema is there, and whether this role may use what is in it.
    pub schema: bool,
    pub uses_schema: bool,
    /// Functions and views that a client needs and this role may not use.
    pub missing: Vec<String>,
    /// Rights of anybody but the owner on what is the schema's own, such as `UPDATE on call_budget to app`.
    pub granted: Vec<String>,
    /// What sessions of this role begin with: times in milliseconds, and the isolation level.
    pub settings: BTreeMap<String, String>,
}

/// A table of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    /// Whether the catalog says that a crash empties it.
    pub unlogged: bool,
    /// Whether the server keeps the empty copies of its indexes that it is emptied with.
    pub init_fork: bool,
}

/// Who may connect, and how many do. Sessions that are named as this one do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    pub max: i64,
    /// Kept for superusers and the like.
    pub reserved: i64,
    pub used: i64,
    /// None: no limit of its own.
    pub role_limit: Option<i64>,
    pub role_used: i64,
    pub database_limit: Option<i64>,
    pub database_used: i64,
}

/// One transaction of another session of this database, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub pid: i32,
    /// Another for each transaction of a session.
    pub transaction: String,
    pub application_name: String,
    /// What the session does; none where this role may not see it.
    pub state: Option<String>,
    /// Since its transaction began; none where this role may not see it.
    pub age_us: Option<i64>,
    /// Transactions since its snapshot was taken; none where it holds none.
    pub snapshot: Option<i64>,
    /// It holds a lock on the schema's tables that others may have to wait for.
    pub holds: bool,
    /// How long it has waited for a lock on the schema's tables; none where it does not wait.
    pub waits_us: Option<i64>,
}

/// Snapshots that belong to no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Age of the oldest prepared transaction of this database, in transactions.
    pub prepared: Option<i64>,
    /// Age of what the oldest replication slot keeps, in transactions.
    pub slot: Option<i64>,
    /// Age of what a standby asks to be kept for it (hot_standby_feedback), in transactions.
    pub feedback: Option<i64>,
}

/// Which process of the server answers, and how the way to it is protected.
pub async fn session(operation: &Operation<'_>) -> Result<Session, OperationError> {
    let row = operation
        .row(
            "SELECT pid, CASE WHEN ssl THEN version END AS version, coalesce(cipher, '') AS cipher
               FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
            &[],
        )
        .await?;
    let version: Option<String> = row.get("version");
    Ok(Session { pid: row.get("pid"), tls: version.map(|version| (version, row.get("cipher"))) })
}

/// How the server is set up.
pub async fn server(operation: &Operation<'_>) -> Result<Server, OperationError> {
    let row = operation
        .row(
            "SELECT current_setting('server_version') AS version,
                    to_regproc('aurora_version') IS NOT NULL OR version() ILIKE '%aurora%' AS aurora,
                    pg_is_in_recovery() AS in_recovery,
                    current_setting('default_transaction_read_only')::boolean AS read_only,
                    CASE WHEN NOT pg_is_in_recovery()
                         THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END AS timeline,
                    (SELECT has_function_privilege(n.nspowner, 'pg_current_wal_lsn()', 'EXECUTE')
                        AND has_function_privilege(n.nspowner, 'pg_walfile_name(pg_lsn)', 'EXECUTE')
                       FROM pg_namespace AS n WHERE n.nspname = 'call_budget') AS owner_reads_timeline,
                    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
                    (SELECT s.reset_val FROM pg_settings AS s WHERE s.name = 'synchronous_commit') AS synchronous_commit,
                    nullif(current_setting('tcp_keepalives_idle')::interval, interval '0') IS NOT NULL AS by_tcp,
                    (extract(epoch FROM current_setting('tcp_keepalives_idle')::interval
                        + current_setting('tcp_keepalives_interval')::interval
                          * current_setting('tcp_keepalives_count')::integer))::bigint AS silence_s",
            &[],
        )
        .await?;
    Ok(Server {
        version: row.get("version"),
        aurora: row.get("aurora"),
        in_recovery: row.get("in_recovery"),
        read_only: row.get("read_only"),
        timeline: row.get("timeline"),
        owner_reads_timeline: row.get("owner_reads_timeline"),
        fsync: row.get("fsync"),
        full_page_writes: row.get("full_page_writes"),
        synchronous_commit: row.get("synchronous_commit"),
        silence_s: row.get::<_, bool>("by_tcp").then(|| row.get("silence_s")),
    })
}

/// What this role may do, and how its sessions begin.
pub async fn role(operation: &Operation<'_>) -> Result<Role, OperationError> {
    let about = operation
        .row(
            "SELECT r.rolname::text AS name, r.rolsuper AS superuser,
                    coalesce((SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace AS n
                               WHERE n.nspname = 'call_budget'), false) AS owner,
                    EXISTS (SELECT FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace('call_budget')
                               AND p.proname = ANY($1::text[]) AND has_function_privilege(p.oid, 'EXECUTE')) AS admin,
                    to_regnamespace('call_budget') IS NOT NULL AS schema,
                    coalesce(has_schema_privilege(to_regnamespace('call_budget')::oid, 'USAGE'), false) AS uses_schema
               FROM pg_roles AS r WHERE r.rolname = current_user",
            &[(&ADMIN_FUNCTIONS, Type::TEXT_ARRAY)],
        )
        .await?;
    let missing = operation
        .rows(
            "SELECT f.name FROM unnest($1::text[]) AS f(name)
              WHERE NOT EXISTS (SELECT FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace('call_budget')
                                   AND p.proname = f.name AND has_schema_privilege(p.pronamespace, 'USAGE')
                                   AND has_function_privilege(p.oid, 'EXECUTE'))
              UNION ALL
             SELECT v.name FROM unnest($2::text[]) AS v(name)
              WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = to_regnamespace('call_budget')
                                   AND c.relname = v.name AND has_schema_privilege(c.relnamespace, 'USAGE')
                                   AND has_table_privilege(c.oid, 'SELECT'))",
            &[(&CLIENT_FUNCTIONS, Type::TEXT_ARRAY), (&VIEWS, Type::TEXT_ARRAY)],
        )
        .await?;
    let granted = operation
        .rows(
            "SELECT DISTINCT a.privilege_type || ' on ' || c.relname || ' to '
                    || CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee)::text END AS right
               FROM pg_class AS c, LATERAL (
                    SELECT x.grantee, x.privilege_type FROM aclexplode(c.relacl) AS x
                     UNION ALL
                    SELECT x.grantee, x.privilege_type FROM pg_attribute AS t, aclexplode(t.attacl) AS x
                     WHERE t.attrelid = c.oid) AS a
              WHERE c.relnamespace = to_regnamespace('call_budget') AND c.relkind IN ('r', 'p', 'v')
                AND a.grantee <> c.relowner AND NOT (c.relname = ANY($1::text[]) AND a.privilege_type = 'SELECT')
              ORDER BY 1",
            &[(&VIEWS, Type::TEXT_ARRAY)],
        )
        .await?;
    // What they were before this transaction set its own.
    let settings = operation
        .rows(
            "SELECT s.name, s.reset_val FROM pg_settings AS s
              WHERE s.name IN ('default_transaction_isolation', 'statement_timeout', 'lock_timeout',
                               'idle_in_transaction_session_timeout', 'client_connection_check_interval')",
            &[],
        )
        .await?;
    let texts = |rows: &[Row]| rows.iter().map(|row| row.get(0)).collect();
    Ok(Role {
        name: about.get("name"),
        superuser: about.get("superuser"),
        owner: about.get("owner"),
        admin: about.get("admin"),
        schema: about.get("schema"),
        uses_schema: about.get("uses_schema"),
        missing: texts(&missing),
        granted: texts(&granted),
        settings: settings.iter().map(|row| (row.get(0), row.get(1))).collect(),
    })
}

/// The schema's tables.
pub async fn tables(operation: &Operation<'_>) -> Result<Vec<Table>, OperationError> {
    let rows = operation
        .rows(
            "SELECT c.relname::text AS name, c.relpersistence = 'u' AS unlogged,
                    EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid
                               AND pg_relation_size(i.indexrelid, 'init') > 0) AS init_fork
               FROM pg_class AS c WHERE c.relnamespace = to_regnamespace('call_budget') AND c.relkind = 'r' ORDER BY 1",
            &[],
        )
        .await?;
    let table = |row: &Row| Table { name: row.get(0), unlogged: row.get(1), init_fork: row.get(2) };
    Ok(rows.iter().map(table).collect())
}

/// How many connections there are, and how many are used by others than sessions of this `application_name`.
pub async fn connections(operation: &Operation<'_>, application_name: &str) -> Result<Connections, OperationError> {
    let row = operation
        .row(
            "SELECT current_setting('max_connections')::bigint AS max,
                    current_setting('superuser_reserved_connections')::bigint
                    + coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::bigint AS reserved,
                    u.all AS used, nullif(r.rolconnlimit, -1)::bigint AS role_limit, u.of_role AS role_used,
                    nullif(d.datconnlimit, -1)::bigint AS database_limit, u.of_database AS database_used
               FROM pg_roles AS r, pg_database AS d, LATERAL (
                    SELECT count(*) AS all, count(*) FILTER (WHERE a.usesysid = r.oid) AS of_role,
                           count(*) FILTER (WHERE a.datid = d.oid) AS of_database
                      FROM pg_stat_activity AS a
                     WHERE a.usesysid IS NOT NULL AND coalesce(a.backend_type, 'client backend') = 'client backend'
                       AND a.application_name IS DISTINCT FROM $1) AS u
              WHERE r.rolname = current_user AND d.datname = current_database()",
            &[(&application_name, Type::TEXT)],
        )
        .await?;
    Ok(Connections {
        max: row.get("max"),
        reserved: row.get("reserved"),
        used: row.get("used"),
        role_limit: row.get("role_limit"),
        role_used: row.get("role_used"),
        database_limit: row.get("database_limit"),
        database_used: row.get("database_used"),
    })
}

/// The transactions that others than sessions of this `application_name` have open in this database. Vacuum is left out:
/// it is in nobody's way for long, and its snapshot keeps nothing.
pub async fn running(operation: &Operation<'_>, application_name: &str) -> Result<Vec<Running>, OperationError> {
    // waitstart is not there in older servers: read by its name, it is NULL.
    let rows = operation
        .rows(
            "SELECT a.pid, l.virtualtransaction AS transaction, coalesce(a.application_name, '') AS application_name,
                    a.state, (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint AS age_us,
                    age(a.backend_xmin)::bigint AS snapshot,
                    bool_or(o.oid IS NOT NULL AND l.granted AND l.mode <> 'AccessShareLock') AS holds,
                    CASE WHEN bool_or(o.oid IS NOT NULL) AND bool_or(NOT l.granted)
                         THEN coalesce(max((extract(epoch FROM clock_timestamp()
                                                - (to_jsonb(l) ->> 'waitstart')::timestamptz) * 1000000)::bigint), 0)
                    END AS waits_us
               FROM pg_locks AS l
               JOIN pg_stat_activity AS a ON a.pid = l.pid AND a.datname = current_database()
               LEFT JOIN pg_class AS o ON l.relation = o.oid AND o.relnamespace = to_regnamespace('call_budget')
              WHERE a.pid <> pg_backend_pid() AND a.application_name IS DISTINCT FROM $1
                AND coalesce(a.backend_type, 'client backend') <> 'autovacuum worker'
              GROUP BY a.pid, l.virtualtransaction, a.application_name, a.state, a.xact_start, a.backend_xmin",
            &[(&application_name, Type::TEXT)],
        )
        .await?;
    let running = |row: &Row| Running {
        pid: row.get("pid"),
        transaction: row.get("transaction"),
        application_name: row.get("application_name"),
        state: row.get("state"),
        age_us: row.get("age_us"),
        snapshot: row.get("snapshot"),
        holds: row.get("holds"),
        waits_us: row.get("waits_us"),
    };
    Ok(rows.iter().map(running).collect())
}

/// Snapshots that outlive every session.
pub async fn kept(operation: &Operation<'_>) -> Result<Kept, OperationError> {
    let row = operation
        .row(
            "SELECT (SELECT max(age(p.transaction)) FROM pg_prepared_xacts AS p
                      WHERE p.database = current_database())::bigint AS prepared,
                    (SELECT max(age(s.xmin)) FROM pg_replication_slots AS s)::bigint AS slot,
                    (SELECT max(age(a.backend_xmin)) FROM pg_stat_activity AS a WHERE a.datname IS NULL)::bigint AS feedback",
            &[],
        )
        .await?;
    Ok(Kept { prepared: row.get("prepared"), slot: row.get("slot"), feedback: row.get("feedback") })
}
