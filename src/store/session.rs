//! Stage `startup`: the login, and a session that is ready to acquire: a server that takes writes, the contract checked,
//! every statement planned once.

use std::error::Error;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::{AsyncMessage, Client, Config};

use super::acquire;
use super::connect::Target;
use super::frames::Status;
use super::route::Route;
use super::secret::PasswordSource;
use super::sqlstate::Meaning;
use super::tls::{Encryption, Settled, Wire};
use super::{Failing, Progress, StoreError, connect};
use crate::clock::Clock;
use crate::config;
use crate::policy::stage::Stage;

/// Everything that opening a session takes. One for the process: it keeps what was learnt.
pub(super) struct Opener<C> {
    pub clock: C,
    pub route: Arc<Route>,
    connection: Arc<config::Connection>,
    encryption: Encryption,
    password: PasswordSource,
}

/// An open session. Dropping it closes the connection, whatever it is doing: the server is told by that alone, never by a
/// CancelRequest, which a pooler would hand to a stranger.
pub(super) struct Session {
    pub client: Client,
    pub target: Target,
    /// The same in words.
    pub named: Arc<str>,
    user: Arc<str>,
    /// The statement needs a transaction of its own around it: the role's default isolation is not READ COMMITTED.
    pub needs_isolation: bool,
    standby: bool,
    news: Arc<News>,
    status: Arc<Status>,
    task: JoinHandle<()>,
}

/// What a connection tells besides the answers.
#[derive(Default)]
struct News {
    warnings: AtomicU64,
    ended: OnceLock<tokio_postgres::Error>,
}

impl<C: Clock> Opener<C> {
    pub fn new(connection: config::Connection, clock: C) -> Self {
        let connection = Arc::new(connection);
        Self {
            clock,
            route: Arc::new(Route::new(Arc::clone(&connection))),
            encryption: Encryption::new(connection.tls.clone()),
            password: PasswordSource::new(connection.password.clone()),
            connection,
        }
    }

    /// A session that is ready to acquire.
    pub async fn open(&self, progress: &Progress) -> Result<Session, StoreError> {
        self.get_ready(progress).await.map_err(|error| self.unless_others_are_left(error))
    }

    async fn get_ready(&self, progress: &Progress) -> Result<Session, StoreError> {
        let mut session = self.log_in(progress).await?;
        let trial = Trial::of(&self.route, session.target.clone());
        // It lets everybody in, and would refuse only the first acquire.
        if session.standby {
            let message = format!("{} is a standby: name the primary too, or wait for its promotion", session.target);
            return Err(StoreError::new(Stage::Startup, Failing::Unavailable, message));
        }
        // What it asks for goes through whatever is between here and the server, so that is tried too.
        let probe = acquire::probe(&session, &self.clock, Stage::Startup).await;
        if let Err(error) = probe {
            if error.meaning() != Some(Meaning::WrongIsolation) {
                return Err(error);
            }
            session.needs_isolation = true;
            acquire::probe(&session, &self.clock, Stage::Startup).await?;
        }
        trial.passed();
        Ok(session)
    }

    /// A session for anything: names resolved, connected, encrypted, logged in.
    pub async fn log_in(&self, progress: &Progress) -> Result<Session, StoreError> {
        let session = match self.log_in_once(progress).await {
            // Passwords rotate: before a refusal counts, what is at its source now is tried.
            Err(error) if error.meaning() == Some(Meaning::LoginRefused) && self.password.refused() => {
                self.log_in_once(progress).await
            }
            outcome => outcome,
        };
        session.map_err(|error| self.unless_others_are_left(error))
    }

    /// A fault of one address's own settings is not the end while another may serve.
    fn unless_others_are_left(&self, error: StoreError) -> StoreError {
        match error.kind {
            Failing::Misconfigured if !self.route.has_only_failed() => {
                StoreError { kind: Failing::Unavailable, ..error }
            }
            _ => error,
        }
    }

    async fn log_in_once(&self, progress: &Progress) -> Result<Session, StoreError> {
        let targets = self.route.targets(&self.clock, progress).await?;
        progress.enter(Stage::Connect);
        progress.towards(targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        // Until one answers, all of them are on trial.
        let trials: Vec<_> = targets.iter().map(|target| Trial::of(&self.route, target.clone())).collect();
        let (stream, target) = connect::connect(&self.clock, &targets).await?;
        trials.into_iter().for_each(Trial::called_off);
        let trial = Trial::of(&self.route, target);
        progress.towards(trial.target.to_string());
        progress.enter(Stage::Tls);
        let wire = self.encryption.secure(stream, &trial.target).await?;
        progress.enter(Stage::Startup);
        let session = self.start_up(wire, &trial.target, progress).await?;
        trial.passed();
        Ok(session)
    }

    async fn start_up(&self, wire: Wire, target: &Target, progress: &Progress) -> Result<Session, StoreError> {
        let config::Connection { user, dbname, application_name, .. } = &*self.connection;
        let mut config = Config::new();
        config.user(user).dbname(dbname).application_name(application_name);
        // TLS is settled: the driver takes the stream as it is.
        config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        progress.towards_password(self.password.name());
        let password = self.password.password().await?;
        progress.towards(target.to_string());
        if let Some(password) = &password {
            config.password(password);
        }
        let status = wire.status();
        let (client, connection) = config.connect_raw(wire, Settled).await.map_err(|error| {
            let error = self.login_failed(target, error, password.is_some());
            // With TLS 1.3 it is only now that the server looks at it. Certificates are renewed, as passwords are.
            if self.connection.tls.client.is_some() {
                self.encryption.forget();
            }
            error
        })?;
        let standby = connection.parameter("in_hot_standby") == Some("on");
        let news = Arc::new(News::default());
        let task = tokio::spawn(follow(connection, Arc::clone(&news)));
        let user = user.as_str().into();
        Ok(Session {
            client,
            named: target.to_string().into(),
            target: target.clone(),
            user,
            needs_isolation: false,
            standby,
            news,
            status,
            task,
        })
    }

    fn login_failed(&self, target: &Target, error: tokio_postgres::Error, with_password: bool) -> StoreError {
        let config::Connection { user, dbname, .. } = &*self.connection;
        let Some(refusal) = error.as_db_error() else {
            let broken = error.is_closed() || error.source().is_some_and(<dyn Error>::is::<std::io::Error>);
            if !with_password && !broken {
                let way_out = "set password, password_file or password_command";
                let message = format!("{target} wants a password for user {user:?} and none is set: {way_out}");
                return StoreError::new(Stage::Startup, Failing::Misconfigured, message).caused_by(error);
            }
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let way_out = match self.connection.tls.client {
                Some(_) => "see the server's log, and whether it accepts sslcert",
                None => "see the server's log",
            };
            let message = format!("{target} ended the login of user {user:?} ({cause}): {way_out}");
            return StoreError::new(Stage::Startup, Failing::Unavailable, message).caused_by(error);
        };
        let sqlstate = refusal.code().code();
        let (kind, message) = match Meaning::of(sqlstate) {
            // Passwords rotate: a refused one is an outage, and the next attempt reads it anew. (Servers that ask somebody
            // else about it, such as LDAP or PAM, say 28000.)
            Meaning::LoginRefused if sqlstate == "28P01" || self.password.is_read_anew() => (
                Failing::Unavailable,
                format!("{target} refuses the password of user {user:?}: check user and {}", self.password.name()),
            ),
            Meaning::LoginRefused => (
                Failing::Misconfigured,
                format!(
                    "{target} does not let user {user:?} into {dbname:?}: check the user, what pg_hba.conf there says, \
                     and whether it asks for a certificate (sslcert)"
                ),
            ),
            Meaning::NoSuchDatabase => (
                Failing::Misconfigured,
                format!("{target} has no database {dbname:?}: create it, or set another dbname"),
            ),
            Meaning::NotPermitted => (
                Failing::Misconfigured,
                format!(
                    "user {user:?} may not connect to {dbname:?} on {target}: GRANT CONNECT ON DATABASE {dbname:?} TO {user:?}"
                ),
            ),
            meaning => (Failing::Unavailable, format!("{target} refused the login: {meaning}")),
        };
        StoreError::new(Stage::Startup, kind, with_sqlstate(&message, refusal)).caused_by(error)
    }
}

impl Session {
    /// How many warnings the server has sent so far. One that comes with a commit means that the commit is not as durable
    /// as it was to be.
    pub fn warnings(&self) -> u64 {
        self.news.warnings.load(Ordering::Acquire)
    }

    /// Whether the last answer ended with its transaction over.
    pub fn is_idle(&self) -> bool {
        self.status.is_idle()
    }

    /// What the driver's error means. Decided by SQLSTATE and severity, never by message text: servers speak Korean too.
    pub fn failed(&self, stage: Stage, error: tokio_postgres::Error) -> StoreError {
        let target = &self.target;
        // The reason is often the connection's, and the query hears only that it is closed.
        let refusal =
            error.as_db_error().or_else(|| self.news.ended.get().and_then(tokio_postgres::Error::as_db_error));
        let (kind, message) = if let Some(refusal) = refusal {
            let (kind, message) = self.refused(stage, refusal);
            (kind, format!("{target}: {}", with_sqlstate(&message, refusal)))
        } else {
            let ended: &tokio_postgres::Error = self.news.ended.get().unwrap_or(&error);
            let cause = ended.source().map_or_else(|| ended.to_string(), ToString::to_string);
            let kind = if stage == Stage::Query { Failing::Uncertain } else { Failing::Unavailable };
            (kind, format!("the connection to {target} broke ({cause})"))
        };
        StoreError::new(stage, kind, message).caused_by(error)
    }

    fn refused(&self, stage: Stage, refusal: &DbError) -> (Failing, String) {
        let meaning = Meaning::of(refusal.code().code());
        let kind = match meaning {
            // Behind a pooler the role's default may have changed since the login: the next session finds out.
            Meaning::WrongIsolation if stage == Stage::Query && !self.needs_isolation => Failing::Unavailable,
            Meaning::NoSchema | Meaning::NotPermitted | Meaning::BadArgument | Meaning::WrongIsolation => {
                Failing::Misconfigured
            }
            // Said by what is in between, it says nothing of the server's commit.
            Meaning::Disconnected | Meaning::GoingDown if stage == Stage::Query => Failing::Uncertain,
            // A statement that ends with ERROR is rolled back. FATAL and PANIC can hit after its commit.
            _ if stage != Stage::Query || refusal.parsed_severity() == Some(Severity::Error) => Failing::Unavailable,
            _ => Failing::Uncertain,
        };
        let message = match meaning {
            Meaning::NoSchema => format!("{meaning}: run \"call-budget migrate\""),
            Meaning::NotPermitted => {
                let user = &self.user;
                format!(
                    "user {user:?} lacks rights on the schema: run \"call-budget access {user} --as client\" as its owner"
                )
            }
            _ => meaning.to_string(),
        };
        (kind, message)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Drives the connection until it ends.
async fn follow(mut connection: tokio_postgres::Connection<Wire, Wire>, news: Arc<News>) {
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    tracing::info!(
                        sqlstate = notice.code().code(),
                        notice = notice.message(),
                        "call_budget_store_warning"
                    );
                    news.warnings.fetch_add(1, Ordering::Release);
                }
            }
            Some(Ok(_)) => {}
            // Before the connection is dropped: with it end the queries that wait, and they ask why.
            Some(Err(error)) => {
                let _ = news.ended.set(error);
                return;
            }
            None => return,
        }
    }
}

/// A target on trial: unless it passes, it failed, also when the attempt is given up.
struct Trial<'a> {
    route: &'a Route,
    target: Target,
    end: TrialEnd,
}

enum TrialEnd {
    Failed,
    CalledOff,
    Passed,
}

impl<'a> Trial<'a> {
    fn of(route: &'a Route, target: Target) -> Self {
        Self { route, target, end: TrialEnd::Failed }
    }

    fn passed(mut self) {
        self.end = TrialEnd::Passed;
    }

    fn called_off(mut self) {
        self.end = TrialEnd::CalledOff;
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        match self.end {
            TrialEnd::Failed => self.route.failed(&self.target),
            TrialEnd::CalledOff => {}
            TrialEnd::Passed => self.route.served(&self.target),
        }
    }
}

fn with_sqlstate(message: &str, refusal: &DbError) -> String {
    format!("{message} (SQLSTATE {}: {})", refusal.code().code(), refusal.message())
}
