//! The role that callers log in with: what it may do, how its sessions begin, and whose sessions they really are.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Line, in_words};
use crate::config::parse_duration;
use crate::store::access::TIMEOUTS;
use crate::store::inspect::Role;

/// The settings of sessions, as the lines are named, as the server names them, and what happens without them.
pub const SETTINGS: [(&str, &str, &str); 4] = [
    ("statement_timeout", "statement_timeout", "the server goes on working for callers who have given up"),
    ("lock_timeout", "lock_timeout", "the server goes on waiting for the row on behalf of callers who have given up"),
    ("idle_timeout", "idle_in_transaction_session_timeout", "a caller that hangs in a transaction keeps its locks"),
    ("check_interval", "client_connection_check_interval", "calls are granted to callers who have gone meanwhile"),
];

/// `rights`: that the role may do what a client does.
pub fn rights(role: &Role) -> Line {
    let line = Line::new("rights", "every function and view of a client").figure("missing", role.missing.clone());
    match role.missing.first() {
        None => line.shown("all that a client needs").pass("it may acquire and look"),
        Some(first) => line.shown(format!("{} missing", role.missing.len())).fail(format!(
            "role {:?} may not use {first}: its owner can run \"call-budget access {} --as client\"",
            role.name, role.name
        )),
    }
}

/// `role`: that it is no more than a client, whom no mistake lets change the limit.
pub fn role(role: &Role) -> Line {
    let Role { name, superuser, owner, admin, .. } = role;
    let line = Line::new("role", "a client, no more")
        .figure("name", name.as_str())
        .figure("superuser", *superuser)
        .figure("owner", *owner)
        .figure("admin", *admin);
    let more = match (superuser, owner, admin) {
        (true, ..) => "a superuser",
        (_, true, _) => "the schema's owner",
        (_, _, true) => "an admin",
        _ => return line.shown("a client").pass("it can change no setting"),
    };
    line.shown(more).warn(format!(
        "role {name:?} is {more}, so a mistake in a caller can change the limit: let callers log in as a role with \
         \"call-budget access ROLE --as client\""
    ))
}

/// `table_rights`: that nobody but the owner comes past the functions.
pub fn table_rights(role: &Role) -> Line {
    let line = Line::new("table_rights", "none but the owner's").figure("granted", role.granted.clone());
    match role.granted.first() {
        None => line.shown("none granted").pass("the functions are the only way in"),
        Some(first) => line.shown(format!("{} granted", role.granted.len())).fail(format!(
            "{first}: whoever has it can write past the limit; take it back with REVOKE, and give rights with \
             \"call-budget access\""
        )),
    }
}

/// `isolation`: how transactions of this role begin.
pub fn isolation(role: &Role) -> Line {
    let value = role.settings.get("default_transaction_isolation").map_or("", String::as_str);
    let line = Line::new("isolation", "read committed").figure("value", value).shown(value);
    match value {
        "read committed" => line.pass("a call sees what was committed while it waited for the lock"),
        _ => line.fail(format!(
            "a snapshot that is older than the lock is refused (callers in SQL), or costs a transaction of its own: run \
             \"call-budget access {} --as client\"",
            client(role)
        )),
    }
}

/// One of [`SETTINGS`]: what `access --set-timeouts` sets, against what sessions begin with.
pub fn timeout(name: &'static str, setting: &str, without: &str, role: &Role) -> Line {
    let wanted = TIMEOUTS.iter().find(|(known, _)| *known == setting).map_or("0s", |(_, value)| value);
    let wanted = parse_duration(wanted).unwrap_or_default();
    let found = role.settings.get(setting).and_then(|text| text.parse().ok()).map(Duration::from_millis);
    let line = Line::new(name, in_words(wanted)).figure("wanted_ms", millis(wanted));
    let way_out = format!("run \"call-budget access {} --as client --set-timeouts\"", client(role));
    let Some(found) = found else {
        return line.shown("not known there").warn(format!("this server has no {setting}: use PostgreSQL 14 or newer"));
    };
    let line = line.figure("ms", millis(found)).shown(match found.is_zero() {
        true => "none".to_owned(),
        false => in_words(found),
    });
    if found == wanted {
        line.pass("the server gives up when the caller does")
    } else if found.is_zero() {
        line.warn(format!("{without}: {way_out}"))
    } else if found < wanted {
        line.warn(format!("the server ends calls that their callers would still wait for: {way_out}"))
    } else {
        line.warn(format!("the server works longer than any caller waits: {way_out}"))
    }
}

/// `pooler`: whether sessions have a server process each. `sessions` are the processes that each session met.
pub fn pooler(sessions: &[BTreeSet<i32>]) -> Line {
    let met: usize = sessions.iter().map(BTreeSet::len).sum();
    let all: BTreeSet<i32> = sessions.iter().flatten().copied().collect();
    let pooled = is_pooled(sessions);
    let line = Line::new("pooler", "a server process for each session")
        .figure("sessions", sessions.len())
        .figure("processes", all.len())
        .figure("pooled", pooled)
        .shown(format!("{} sessions met {} server processes", sessions.len(), all.len()));
    if sessions.len() < 2 && met < 2 {
        return Line::not_measured(
            "pooler",
            "fewer than two sessions could be opened: see the lines about connections",
        );
    }
    if pooled {
        line.warn(
            "a transaction pooler is in between: acquire works through it, but figures about connections and TLS are \
             those of its far side, and \"call-budget migrate\" has to go past it",
        )
    } else {
        line.pass("no transaction pooler is in between")
    }
}

/// Who is to be made a client: not the owner, who cannot be.
fn client(role: &Role) -> &str {
    if role.superuser || role.owner { "ROLE" } else { &role.name }
}

/// One session met two processes, or two sessions the same.
pub fn is_pooled(sessions: &[BTreeSet<i32>]) -> bool {
    let all: BTreeSet<i32> = sessions.iter().flatten().copied().collect();
    sessions.iter().any(|met| met.len() > 1) || all.len() < sessions.len()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, NotMeasured, Pass, Warn};
    use super::super::tests::says;
    use super::*;

    fn good() -> Role {
        let settings = [
            ("default_transaction_isolation", "read committed"),
            ("statement_timeout", "500"),
            ("lock_timeout", "500"),
            ("idle_in_transaction_session_timeout", "5000"),
            ("client_connection_check_interval", "100"),
        ];
        Role {
            name: "app".into(),
            superuser: false,
            owner: false,
            admin: false,
            schema: true,
            uses_schema: true,
            missing: Vec::new(),
            granted: Vec::new(),
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }

    #[test]
    fn a_role_without_a_clients_rights_is_told_which_one_it_lacks() {
        says(&rights(&good()), Pass, "may acquire");
        let without = Role { missing: vec!["call_budget_acquire".into()], ..good() };
        says(&rights(&without), Fail, "may not use call_budget_acquire: its owner can run");
    }

    #[test]
    fn a_role_that_is_more_than_a_client_is_told_what_it_is() {
        says(&role(&good()), Pass, "no setting");
        says(&role(&Role { superuser: true, owner: true, admin: true, ..good() }), Warn, "is a superuser");
        says(&role(&Role { owner: true, admin: true, ..good() }), Warn, "is the schema's owner");
        says(&role(&Role { admin: true, ..good() }), Warn, "is an admin");
    }

    #[test]
    fn a_right_past_the_functions_is_told() {
        says(&table_rights(&good()), Pass, "only way in");
        let granted = Role { granted: vec!["UPDATE on call_budget to app".into()], ..good() };
        says(&table_rights(&granted), Fail, "UPDATE on call_budget to app: whoever has it");
    }

    #[test]
    fn another_isolation_level_is_told() {
        says(&isolation(&good()), Pass, "committed");
        let mut other = good();
        other.settings.insert("default_transaction_isolation".into(), "serializable".into());
        says(&isolation(&other), Fail, "older than the lock");
    }

    #[test]
    fn each_timeout_is_held_against_what_access_sets() {
        for (name, setting, without) in SETTINGS {
            assert!(TIMEOUTS.iter().any(|(known, _)| *known == setting), "{setting} is set by nobody");
            says(&timeout(name, setting, without, &good()), Pass, "gives up");
            for (value, words) in [("0", without), ("1", "would still wait"), ("600000", "works longer")] {
                let mut other = good();
                other.settings.insert(setting.into(), value.into());
                says(&timeout(name, setting, without, &other), Warn, words);
            }
            let mut older = good();
            older.settings.remove(setting);
            says(&timeout(name, setting, without, &older), Warn, "PostgreSQL 14");
        }
    }

    #[test]
    fn sessions_that_share_a_process_or_change_it_are_pooled() {
        let of = |sessions: &[&[i32]]| {
            pooler(&sessions.iter().map(|met| met.iter().copied().collect()).collect::<Vec<BTreeSet<i32>>>())
        };
        says(&of(&[&[1], &[2], &[3]]), Pass, "no transaction pooler");
        says(&of(&[&[1], &[1], &[3]]), Warn, "transaction pooler");
        says(&of(&[&[1, 2], &[3]]), Warn, "transaction pooler");
        says(&of(&[&[1]]), NotMeasured, "fewer than two");
    }
}
