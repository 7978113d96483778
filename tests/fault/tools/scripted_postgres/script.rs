//! What a scripted server is to do, and where: a `Script` is a list of acts, each at a step of a connection's life.

use std::sync::Arc;
use std::time::Duration;

use super::{Query, Row, wire};

/// A point in the life of a connection. An act happens after what the name says, and before what the server does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The socket is accepted, nothing read.
    Accepted,
    /// The TLS request is read, its one byte not answered.
    TlsRequest,
    /// `S` is sent, the handshake not begun.
    TlsAnswered,
    /// The startup message is read.
    Startup,
    /// The password was asked for, and not read. (Only with [`super::ScriptedPostgres::password`].)
    PasswordAsked,
    /// The password is read, and not judged.
    PasswordRead,
    /// AuthenticationOk is sent; parameters and ReadyForQuery are not.
    Authenticated,
    /// The first ReadyForQuery is sent.
    LoggedIn,
    /// Within the exchange of a query.
    Query(Kind, Point),
}

/// What a query is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By the simple protocol: `SET ...` and the like.
    Simple,
    /// `call_budget_acquire` for nobody's budget, `''`: how a session warms itself and how a round trip is measured.
    Probe,
    /// `call_budget_acquire` for a budget.
    Acquire,
    /// Any other, with parameters.
    Other,
}

/// A point within the exchange of a query. A simple query has neither `Described` nor `Rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The query is read (up to Sync), nothing answered.
    Read,
    /// What the columns are is said, no row.
    Described,
    /// The rows are sent.
    Rows,
    /// CommandComplete is sent. With parameters, the commit comes only now: this is where PostgreSQL reports an error at
    /// Sync, and a cancelled wait for a synchronous standby.
    Completed,
    /// ReadyForQuery is sent.
    Ready,
}

/// What to do at a step.
#[derive(Clone, Debug)]
pub enum Act {
    /// Nothing more, until the client leaves or [`super::ScriptedPostgres::release`].
    Silence,
    /// Nothing for this long, then on.
    Wait(Duration),
    /// These bytes, then on.
    Send(Vec<u8>),
    /// These bytes instead of what the server would have sent next.
    SendInstead(Vec<u8>),
    /// A NoticeResponse, then on.
    Notice(Report),
    /// An ErrorResponse. Within a query and with severity ERROR, ReadyForQuery comes next, as PostgreSQL does; a `Silence`
    /// after this act holds it back. Otherwise the connection is closed.
    Error(Report),
    /// The transaction status that ReadyForQuery carries: `I`, `T` or `E`.
    Status(u8),
    /// From here on every byte goes out alone, this long after the one before.
    Trickle(Duration),
    /// FIN. What the client sent and nobody read is read first: a close on unread bytes would be a reset.
    Close,
    /// RST.
    Reset,
}

/// An error or a notice.
#[derive(Clone, Debug)]
pub struct Report {
    pub severity: &'static str,
    /// The severity in the server's language.
    pub shown_severity: String,
    pub sqlstate: String,
    pub message: String,
    pub detail: Option<String>,
}

impl Report {
    pub fn error(sqlstate: &str) -> Self {
        Self::new("ERROR", sqlstate)
    }

    pub fn fatal(sqlstate: &str) -> Self {
        Self::new("FATAL", sqlstate)
    }

    pub fn warning(sqlstate: &str) -> Self {
        Self::new("WARNING", sqlstate)
    }

    /// What PostgreSQL says when the wait for a synchronous standby was cancelled: the commit stands, on this server alone.
    /// It names no SQLSTATE, so it has that of every plain warning. PostgreSQL 15 says it after CommandComplete where the query
    /// has parameters, and before it where the query is simple.
    pub fn unreplicated() -> Self {
        Self {
            message: "canceling wait for synchronous replication due to user request".into(),
            detail: Some(
                "The transaction has already committed locally, but might not have been replicated to the standby."
                    .into(),
            ),
            ..Self::warning("01000")
        }
    }

    /// The same from a server with `lc_messages = ko_KR`.
    #[must_use]
    pub fn in_korean(mut self) -> Self {
        self.shown_severity = match self.severity {
            "ERROR" => "오류",
            "FATAL" => "치명적오류",
            "PANIC" => "손상",
            _ => "경고",
        }
        .into();
        self.message = "요청을 처리할 수 없습니다".into();
        self.detail = None;
        self
    }

    /// As an ErrorResponse, for [`Act::SendInstead`]: with a `Silence` after it the connection stays open until the client
    /// leaves, whatever the severity.
    pub fn as_sent(&self) -> Vec<u8> {
        wire::report(b'E', self)
    }

    fn new(severity: &'static str, sqlstate: &str) -> Self {
        Self {
            severity,
            shown_severity: severity.into(),
            sqlstate: sqlstate.into(),
            message: format!("scripted {sqlstate}"),
            detail: None,
        }
    }
}

type Rows = Arc<dyn Fn(&Query) -> Vec<Row> + Send + Sync>;

/// A server's behaviour. The default is a store that is well.
#[derive(Clone, Default)]
pub struct Script {
    acts: Vec<(Step, Act)>,
    answers: Vec<(Kind, Rows)>,
}

impl Script {
    pub fn well() -> Self {
        Self::default()
    }

    /// Adds an act. Several at one step happen in order.
    #[must_use]
    pub fn at(mut self, step: Step, act: Act) -> Self {
        self.acts.push((step, act));
        self
    }

    /// Adds an act at a point of every acquire for a budget.
    #[must_use]
    pub fn on_acquire(self, point: Point, act: Act) -> Self {
        self.at(Step::Query(Kind::Acquire, point), act)
    }

    /// The rows that queries of this kind are answered with. Without a row the columns are those of the acquire.
    #[must_use]
    pub fn answer(mut self, kind: Kind, rows: impl Fn(&Query) -> Vec<Row> + Send + Sync + 'static) -> Self {
        self.answers.retain(|(its, _)| *its != kind);
        self.answers.push((kind, Arc::new(rows)));
        self
    }

    pub(super) fn acts(&self, step: Step) -> Vec<Act> {
        self.acts.iter().filter(|(at, _)| *at == step).map(|(_, act)| act.clone()).collect()
    }

    pub(super) fn rows(&self, kind: Kind) -> Option<Rows> {
        self.answers.iter().find(|(its, _)| *its == kind).map(|(_, rows)| rows.clone())
    }
}
