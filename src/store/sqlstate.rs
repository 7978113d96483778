//! What an SQLSTATE means to this project. Decisions are made on it and on constraint names, never on message text:
//! servers speak Korean too.

use std::fmt;

/// Why the database said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// An argument of one of our functions is out of range: a contract error of the caller.
    BadArgument,
    /// The transaction is not READ COMMITTED, so the answer would be older than the lock.
    WrongIsolation,
    /// There is no such budget or class.
    NoSuchName,
    /// One of our functions refused; its message says why and what to do.
    Refused,
    /// A setting breaks a constraint, whose name is the sentence to read.
    BadSetting,
    /// The role lacks a privilege.
    NotPermitted,
    /// The schema, a table or a function is not there.
    NoSchema,
    /// The server does not let this user in.
    LoginRefused,
    /// There is no such database.
    NoSuchDatabase,
    /// A lock or the statement took longer than its timeout.
    TimedOut,
    /// The server takes no writes: a standby, or read-only.
    ReadOnly,
    /// The server is starting, stopping or recovering, or cut the session.
    GoingDown,
    /// No connection left.
    TooManyConnections,
    /// The connection broke.
    Disconnected,
    /// The server lacks disk, memory or another resource.
    OutOfResources,
    /// Two transactions collided; doing it again can help.
    Collided,
    /// No SQLSTATE came: the answer to a commit was lost.
    Uncertain,
    /// Anything else.
    Other,
}

/// Whole codes first, then classes (two characters): the first that fits is the meaning.
const TABLE: &[(&str, Meaning)] = &[
    ("CB001", Meaning::BadArgument),
    ("CB002", Meaning::WrongIsolation),
    ("CB003", Meaning::NoSuchName),
    ("CB004", Meaning::Refused),
    ("23514", Meaning::BadSetting),         // check_violation, of a table or a domain
    ("42501", Meaning::NotPermitted),       // insufficient_privilege
    ("3F000", Meaning::NoSchema),           // invalid_schema_name
    ("42P01", Meaning::NoSchema),           // undefined_table
    ("42883", Meaning::NoSchema),           // undefined_function
    ("3D000", Meaning::NoSuchDatabase),     // invalid_catalog_name
    ("57014", Meaning::TimedOut),           // query_canceled, by statement_timeout
    ("55P03", Meaning::TimedOut),           // lock_not_available, by lock_timeout
    ("25P03", Meaning::TimedOut),           // idle_in_transaction_session_timeout
    ("25006", Meaning::ReadOnly),           // read_only_sql_transaction
    ("0A000", Meaning::ReadOnly),           // feature_not_supported: during recovery
    ("53300", Meaning::TooManyConnections), // too_many_connections
    ("22", Meaning::BadArgument),           // data_exception, such as a NUL in a name
    ("28", Meaning::LoginRefused),          // invalid_authorization_specification, invalid_password
    ("57P", Meaning::GoingDown),            // admin_shutdown, crash_shutdown, cannot_connect_now
    ("08", Meaning::Disconnected),          // connection_exception
    ("53", Meaning::OutOfResources),        // insufficient_resources
    ("40", Meaning::Collided),              // serialization_failure, deadlock_detected
];

impl Meaning {
    /// The meaning of a five-character SQLSTATE.
    pub fn of(sqlstate: &str) -> Meaning {
        TABLE.iter().find(|(code, _)| sqlstate.starts_with(code)).map_or(Meaning::Other, |(_, meaning)| *meaning)
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Meaning::BadArgument => "an argument is out of range",
            Meaning::WrongIsolation => "the transaction is not read committed",
            Meaning::NoSuchName => "there is no such budget or class",
            Meaning::Refused => "the schema refused it",
            Meaning::BadSetting => "a setting breaks a constraint",
            Meaning::NotPermitted => "this role is not allowed to do that",
            Meaning::NoSchema => "the call-budget schema is not there or not complete",
            Meaning::LoginRefused => "the server refused the login",
            Meaning::NoSuchDatabase => "there is no such database",
            Meaning::TimedOut => "somebody else held the row for too long, or the server is slow",
            Meaning::ReadOnly => "the server takes no writes now (a standby, or read-only)",
            Meaning::GoingDown => "the server is starting, stopping or recovering",
            Meaning::TooManyConnections => "the server has no connection left",
            Meaning::Disconnected => "the connection to the server broke",
            Meaning::OutOfResources => "the server lacks disk, memory or another resource",
            Meaning::Collided => "two transactions collided, try again",
            Meaning::Uncertain => "the database did not say whether the change was made",
            Meaning::Other => "the server failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_code_is_found_before_its_class_and_an_unknown_one_is_other() {
        assert_eq!(Meaning::of("CB004"), Meaning::Refused);
        assert_eq!(Meaning::of("53300"), Meaning::TooManyConnections);
        assert_eq!(Meaning::of("53100"), Meaning::OutOfResources);
        assert_eq!(Meaning::of("28P01"), Meaning::LoginRefused);
        assert_eq!(Meaning::of("57014"), Meaning::TimedOut);
        assert_eq!(Meaning::of("57P01"), Meaning::GoingDown);
        assert_eq!(Meaning::of("XX000"), Meaning::Other);
    }

    #[test]
    fn no_entry_hides_behind_an_earlier_one() {
        for (at, (code, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|(earlier, _)| !code.starts_with(earlier)), "{code} is never reached");
        }
    }
}
