//! The server and the schema: what promises of the design stand on.

use std::time::Duration;

use super::{Line, in_words};
use crate::store::CONTRACT;
use crate::store::inspect::{Connections, Server, Table};

const MARKER: &str = "call_budget_marker";
/// A crash must not forget these, or the limit is forgotten with them.
const LOGGED: [&str; 3] = ["call_budget", "call_budget_class", "call_budget_schedule"];
/// Connections of machines that died are kept for no longer than this, unless there is room for them.
const SILENCE: Duration = Duration::from_secs(600);

/// `schema`: the contract that the schema speaks, or why it does not say.
pub fn schema(contract: Result<i32, String>) -> Line {
    let line = Line::new("schema", format!("contract {CONTRACT}"));
    match contract {
        Ok(CONTRACT) => line.figure("contract", CONTRACT).shown(format!("contract {CONTRACT}")).pass("it is ours"),
        Ok(other) => line.figure("contract", other).shown(format!("contract {other}")).fail(match other < CONTRACT {
            true => "the schema is older than this call-budget: run \"call-budget migrate\"",
            false => "the schema is newer than this call-budget: use a newer one",
        }),
        Err(why) => line.shown("none to be had").fail(why),
    }
}

/// `marker`: that a crash empties the marker's table and keeps the limit's own. The other way round nothing would tell of
/// forgotten commits, or the limit itself would be forgotten.
pub fn marker(tables: &[Table]) -> Line {
    let line = Line::new("marker", "the marker unlogged, the budgets logged");
    let find = |name: &str| tables.iter().find(|table| table.name == name);
    if let Some(missing) = [MARKER].iter().chain(&LOGGED).find(|name| find(name).is_none()) {
        return line
            .shown(format!("no table {missing}"))
            .fail("the schema is not complete: run \"call-budget migrate\"");
    }
    let marker = find(MARKER).is_some_and(|table| table.unlogged);
    let kept_empty = find(MARKER).is_some_and(|table| table.init_fork);
    let unlogged: Vec<&str> =
        LOGGED.into_iter().filter(|name| find(name).is_some_and(|table| table.unlogged)).collect();
    let line = line
        .figure("marker_unlogged", marker)
        .figure("marker_has_empty_copy", kept_empty)
        .figure("unlogged_that_must_not_be", unlogged.clone())
        .shown(if marker { "unlogged" } else { "logged" });
    if let Some(name) = unlogged.first() {
        line.fail(format!("a crash would empty {name}: ALTER TABLE call_budget.{name} SET LOGGED"))
    } else if !marker {
        line.fail(format!(
            "it would outlive a crash that forgets commits, and nothing would be fenced: \
             ALTER TABLE call_budget.{MARKER} SET UNLOGGED"
        ))
    } else if !kept_empty {
        line.fail(
            "the catalog calls it unlogged, but this server keeps no empty copy to go back to: use a PostgreSQL that \
             empties unlogged tables, or run \"call-budget fence BUDGET\" after every crash and failover",
        )
    } else {
        line.pass("what forgets commits empties the marker, and is fenced")
    }
}

/// `primary`: that the server takes writes.
pub fn primary(server: &Server) -> Line {
    let line = Line::new("primary", "takes writes")
        .figure("in_recovery", server.in_recovery)
        .figure("read_only", server.read_only);
    if server.in_recovery {
        line.shown("a standby").fail("it takes no writes: name the primary (host), or wait for its promotion")
    } else if server.read_only {
        line.shown("read only")
            .fail("sessions begin read only: reset default_transaction_read_only for the server, database and role")
    } else {
        line.shown("takes writes").pass("it is no standby")
    }
}

/// `timeline`: that the fence can tell a promotion. `answered` is what a real call told.
pub fn timeline(server: &Server, answered: Option<i64>) -> Line {
    let line = Line::new("timeline", "to be read wherever the fence reads it");
    let told = answered.or(server.timeline);
    if server.owner_reads_timeline == Some(false) {
        return line.shown("not for the schema's owner").fail(
            "every call fails there: GRANT EXECUTE ON FUNCTION pg_current_wal_lsn, pg_walfile_name to the schema's owner",
        );
    }
    match told.filter(|timeline| *timeline > 0) {
        Some(timeline) => {
            line.figure("timeline", timeline).shown(timeline.to_string()).pass("a promotion is told by it")
        }
        None if server.in_recovery => line.shown("none").fail("a standby has none of its own: name the primary (host)"),
        None => line.shown("none").fail("a promotion could not be told: use a PostgreSQL that names its WAL files"),
    }
}

/// `server`: that unlogged tables are what they are in PostgreSQL.
pub fn server(server: &Server) -> Line {
    let line = Line::new("server", "a PostgreSQL whose failover empties unlogged tables")
        .figure("version", server.version.as_str())
        .figure("aurora", server.aurora);
    if server.aurora {
        line.shown(format!("Aurora, {}", server.version)).warn(
            "unlogged tables outlive a failover there, so the marker proves nothing: run \"call-budget fence BUDGET\" \
             after each failover and restore",
        )
    } else {
        line.shown(format!("PostgreSQL {}", server.version)).pass("unlogged tables are emptied by a failover")
    }
}

/// `fsync`, `full_page_writes`, `synchronous_commit`: what a crash forgets.
pub fn durability(server: &Server) -> [Line; 3] {
    let line = |name, value: &str| Line::new(name, "on").figure("value", value).shown(value);
    let fsync = line("fsync", &server.fsync);
    let pages = line("full_page_writes", &server.full_page_writes);
    let commit = line("synchronous_commit", &server.synchronous_commit);
    [
        match server.fsync.as_str() {
            "on" => fsync.pass("what is committed is on the disk"),
            _ => fsync.fail("a power cut can damage the whole database, the limit too: set fsync = on"),
        },
        match server.full_page_writes.as_str() {
            "on" => pages.pass("pages are whole after a crash"),
            _ => pages.warn("a power cut can leave half-written pages: set full_page_writes = on, unless the disk promises whole ones"),
        },
        match server.synchronous_commit.as_str() {
            "off" => commit.warn(
                "a crash forgets the last commits; that is fenced, and costs a quiet moment, but nothing else may rely \
                 on it: set it on unless calls are too slow",
            ),
            _ => commit.pass("what is acknowledged is not forgotten by a crash"),
        },
    ]
}

/// `connections`, `role_connections`, `database_connections`: used and left, against what the fleet needs. Twice as many
/// are needed for a moment when each process is replaced by a new one.
pub fn connections(connections: &Connections, need: u64) -> [Line; 3] {
    let Connections { max, reserved, used, role_limit, role_used, database_limit, database_used } = *connections;
    [
        room("connections", Some(max - reserved), used, need, "raise max_connections, or lower pool_size")
            .figure("max", max)
            .figure("reserved", reserved),
        room(
            "role_connections",
            role_limit,
            role_used,
            need,
            "raise its CONNECTION LIMIT (ALTER ROLE), or lower pool_size",
        ),
        room(
            "database_connections",
            database_limit,
            database_used,
            need,
            "raise its CONNECTION LIMIT (ALTER DATABASE), or lower pool_size",
        ),
    ]
}

fn room(name: &'static str, limit: Option<i64>, used: i64, need: u64, way_out: &str) -> Line {
    let line = Line::new(name, format!("{need} left, twice that while processes are replaced"))
        .figure("used", used)
        .figure("need", need);
    let Some(limit) = limit else {
        return line.shown(format!("{used} used, no limit")).pass("there is no limit of its own");
    };
    let left = limit.saturating_sub(used).max(0).unsigned_abs();
    let line = line.figure("left", left).shown(format!("{used} used, {left} left, {need} needed"));
    if left < need {
        line.fail(format!("not every process gets its connections: {way_out}"))
    } else if left < need.saturating_mul(2) {
        line.warn(format!("while processes are replaced, old and new ones do not fit together: {way_out}"))
    } else {
        line.pass("there is room for the fleet, also while it is replaced")
    }
}

/// `keepalives`: how long the connections of a machine that died are kept. This side notices a dead server within 2 s,
/// whatever the server is set to.
pub fn keepalives(server: &Server, connections: &Connections, need: u64) -> Line {
    let line = Line::new("keepalives", format!("{}, or room for a dead machine's connections", in_words(SILENCE)));
    let Some(silence_s) = server.silence_s else {
        return line.shown("none needed").pass("a Unix socket ends with its process");
    };
    let silence = Duration::from_secs(silence_s.max(0).unsigned_abs());
    let left = (connections.max - connections.reserved - connections.used).max(0).unsigned_abs();
    let line =
        line.figure("silence_s", silence_s).shown(format!("a dead machine is noticed after {}", in_words(silence)));
    if silence > SILENCE && left < need.saturating_mul(2) {
        line.warn(
            "connections of a machine that died are kept so long that a new one may find no room: set \
             tcp_keepalives_idle = 60, tcp_keepalives_interval = 10 and tcp_keepalives_count = 6 on the server",
        )
    } else {
        line.pass("connections of a machine that died stand in nobody's way")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, Pass, Warn};
    use super::super::tests::says;
    use super::*;

    fn good() -> Server {
        Server {
            version: "15.1".into(),
            aurora: false,
            in_recovery: false,
            read_only: false,
            timeline: Some(1),
            owner_reads_timeline: Some(true),
            fsync: "on".into(),
            full_page_writes: "on".into(),
            synchronous_commit: "on".into(),
            silence_s: Some(7_875),
        }
    }

    fn all_tables() -> Vec<Table> {
        let table = |name: &str, unlogged| Table { name: name.into(), unlogged, init_fork: unlogged };
        LOGGED.into_iter().map(|name| table(name, false)).chain([table(MARKER, true)]).collect()
    }

    #[test]
    fn a_schema_of_another_contract_or_none_is_told_with_the_way_out() {
        says(&schema(Ok(CONTRACT)), Pass, "ours");
        says(&schema(Ok(CONTRACT - 1)), Fail, "call-budget migrate");
        says(&schema(Ok(CONTRACT + 1)), Fail, "newer");
        says(&schema(Err("no schema".into())), Fail, "no schema");
    }

    #[test]
    fn the_marker_must_be_forgotten_by_a_crash_and_the_limit_must_not() {
        says(&marker(&all_tables()), Pass, "fenced");
        says(&marker(&[]), Fail, "not complete");
        for (name, words) in [(MARKER, "SET UNLOGGED"), (LOGGED[0], "SET LOGGED"), (LOGGED[1], "SET LOGGED")] {
            let mut tables = all_tables();
            let table = tables.iter_mut().find(|table| table.name == name).unwrap();
            table.unlogged = !table.unlogged;
            says(&marker(&tables), Fail, words);
        }
        let mut tables = all_tables();
        tables[LOGGED.len()].init_fork = false;
        says(&marker(&tables), Fail, "no empty copy");
    }

    #[test]
    fn a_server_that_takes_no_writes_is_told() {
        says(&primary(&good()), Pass, "no standby");
        says(&primary(&Server { in_recovery: true, ..good() }), Fail, "name the primary");
        says(&primary(&Server { read_only: true, ..good() }), Fail, "default_transaction_read_only");
    }

    #[test]
    fn a_promotion_must_be_told_by_the_timeline() {
        says(&timeline(&good(), Some(2)), Pass, "promotion");
        says(&timeline(&Server { owner_reads_timeline: Some(false), ..good() }, Some(2)), Fail, "GRANT EXECUTE");
        says(&timeline(&Server { timeline: None, ..good() }, None), Fail, "could not be told");
        says(&timeline(&Server { timeline: None, in_recovery: true, ..good() }, None), Fail, "name the primary");
    }

    #[test]
    fn aurora_is_told_that_its_marker_proves_nothing() {
        says(&server(&good()), Pass, "emptied");
        says(&server(&Server { aurora: true, ..good() }), Warn, "proves nothing");
    }

    #[test]
    fn what_makes_commits_cheap_is_told_with_what_it_costs() {
        let [fsync, pages, commit] = durability(&good());
        for line in [fsync, pages, commit] {
            says(&line, Pass, "");
        }
        let off = || "off".to_owned();
        let bad = Server { fsync: off(), full_page_writes: off(), synchronous_commit: off(), ..good() };
        let [fsync, pages, commit] = durability(&bad);
        says(&fsync, Fail, "fsync = on");
        says(&pages, Warn, "half-written");
        says(&commit, Warn, "costs a quiet moment");
    }

    #[test]
    fn too_few_connections_are_told_of_server_role_and_database() {
        let room = Connections {
            max: 100,
            reserved: 3,
            used: 10,
            role_limit: None,
            role_used: 1,
            database_limit: Some(50),
            database_used: 5,
        };
        connections(&room, 8).iter().for_each(|line| says(line, Pass, ""));
        let [server, role, database] =
            connections(&Connections { max: 20, role_limit: Some(1), database_limit: Some(17), ..room }, 8);
        says(&server, Fail, "max_connections");
        says(&role, Fail, "ALTER ROLE");
        says(&database, Warn, "while processes are replaced");
        says(&keepalives(&good(), &room, 8), Pass, "nobody's way");
        says(&keepalives(&good(), &Connections { max: 20, ..room }, 8), Warn, "tcp_keepalives_idle = 60");
        says(&keepalives(&Server { silence_s: Some(120), ..good() }, &Connections { max: 20, ..room }, 8), Pass, "");
        says(&keepalives(&Server { silence_s: None, ..good() }, &room, 8), Pass, "Unix socket");
    }
}
