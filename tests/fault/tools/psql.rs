//! One statement at a time through the server's own `psql`: for looking on and for orders, apart from the driver that is
//! under test.

use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;

use super::kept::told;

/// The answer of the database `postgres` as bare text; an error tells what psql said. Bounded by 30 s.
pub fn try_ask(server: &ScratchPostgres, sql: &str) -> Result<String, String> {
    try_ask_at(server, server.port(), "postgres", sql)
}

/// As [`try_ask`], for a statement that must work.
pub fn ask(server: &ScratchPostgres, sql: &str) -> String {
    try_ask(server, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// As [`try_ask`], through another port (such as a pooler's) and in another database.
pub fn try_ask_at(server: &ScratchPostgres, port: u16, database: &str, sql: &str) -> Result<String, String> {
    let mut command = server.program("psql");
    command.env("PGPORT", port.to_string()).env("PGCONNECT_TIMEOUT", "10").args(["-XAtq", "-c", sql, database]);
    told(&mut command, Duration::from_secs(30))
}

/// How many sessions of clients a server has in that database, the asking one not counted.
pub fn sessions(server: &ScratchPostgres, database: &str) -> usize {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND datname = '{database}' AND pid <> pg_backend_pid()"
    );
    ask(server, &sql).parse().expect("a count")
}
