//! One connection: reads what the client says, does what the script says.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use super::script::{Act, Kind, Point, Report, Step};
use super::stream::Stream;
use super::wire::{self, Reader};
use super::{Ask, Closing, Query, Row, Shared};

/// Lives until the connection ends, and notes how it did.
pub async fn serve(socket: TcpStream, number: usize, shared: Arc<Shared>) {
    // One write, one segment: an answer in slices is in slices on the wire too.
    let _ = socket.set_nodelay(true);
    let mut session = Session {
        stream: Stream::plain(socket),
        inbound: Vec::new(),
        to_idle: shared.to_idle.subscribe(),
        number,
        acquire: None,
        status: IDLE,
        trickle: None,
        shared: shared.clone(),
    };
    let Err(how) = session.live().await;
    drop(session);
    shared.note(number, |connection| connection.closed = Some((Instant::now(), how)));
}

struct Session {
    stream: Stream,
    /// Read and not yet looked at.
    inbound: Vec<u8>,
    to_idle: watch::Receiver<Option<Act>>,
    number: usize,
    /// The number of the acquire that is being answered.
    acquire: Option<usize>,
    /// What the next ReadyForQuery carries.
    status: u8,
    trickle: Option<Duration>,
    shared: Arc<Shared>,
}

/// How it goes on after the acts of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    AsUsual,
    /// Something else was sent instead of what comes next; its first byte.
    Replaced(u8),
    /// The query has failed.
    Failed,
}

impl Session {
    async fn live(&mut self) -> Result<Infallible, Closing> {
        self.at(Step::Accepted).await?;
        let parameters = self.first_packets().await?;
        self.shared.note(self.number, |connection| connection.parameters = parameters);
        self.log_in().await?;
        let (mut sql, mut parameters) = (None, None);
        loop {
            let (tag, body) = self.message(true).await?;
            match tag {
                b'Q' => {
                    let text = Reader(&body).text().ok_or(Closing::Broken)?;
                    self.simple(text).await?;
                }
                b'P' => {
                    let mut reader = Reader(&body);
                    reader.text().ok_or(Closing::Broken)?;
                    sql = Some(reader.text().ok_or(Closing::Broken)?);
                }
                b'B' => parameters = Some(wire::bound(&body).ok_or(Closing::Broken)?),
                b'S' => match (sql.take(), parameters.take()) {
                    (Some(sql), Some(parameters)) => self.with_parameters(sql, &parameters).await?,
                    _ => self.say(&wire::ready(IDLE)).await?,
                },
                b'X' => return Err(Closing::Terminated),
                // Describe, Execute, Close, Flush: answered at Sync.
                _ => {}
            }
        }
    }

    /// Everything before the startup message, and its parameters.
    async fn first_packets(&mut self) -> Result<Vec<(String, String)>, Closing> {
        loop {
            let length = Reader(&self.read_exactly(4).await?).int4().unwrap_or_default();
            let rest = usize::try_from(length).ok().and_then(|length| length.checked_sub(4)).ok_or(Closing::Broken)?;
            let packet = self.read_exactly(rest).await?;
            match Reader(&packet).int4() {
                Some(wire::SSL_REQUEST) => self.tls().await?,
                Some(wire::GSS_REQUEST) => self.say(b"N").await?,
                Some(wire::CANCEL_REQUEST) => {
                    self.shared.state().cancel_requests += 1;
                    return Err(Closing::Here);
                }
                Some(wire::PROTOCOL_3) => return Ok(wire::startup_parameters(&packet[4..])),
                _ => return Err(Closing::Broken),
            }
        }
    }

    async fn tls(&mut self) -> Result<(), Closing> {
        let acceptor = self.shared.tls.clone();
        match self.at(Step::TlsRequest).await? {
            // A client that was told `S` begins its handshake; with any other answer it goes on in plain text or leaves.
            Next::Replaced(b'S') => {}
            Next::Replaced(_) => return Ok(()),
            _ if acceptor.is_none() => return self.say(b"N").await,
            _ => self.say(b"S").await?,
        }
        self.at(Step::TlsAnswered).await?;
        let acceptor = acceptor.ok_or(Closing::Here)?;
        self.stream.secure(&acceptor, std::mem::take(&mut self.inbound)).await.map_err(|_| Closing::Broken)?;
        self.shared.note(self.number, |connection| connection.tls = true);
        Ok(())
    }

    async fn log_in(&mut self) -> Result<(), Closing> {
        let mut next = self.at(Step::Startup).await?;
        let password = self.shared.state().password.clone();
        if let Some(password) = password {
            self.say_unless(next, &wire::password_request()).await?;
            self.at(Step::PasswordAsked).await?;
            let (_, body) = self.message(false).await?;
            next = self.at(Step::PasswordRead).await?;
            if Reader(&body).text() != Some(password) {
                return self.fail(&Report::fatal("28P01")).await;
            }
        }
        self.say_unless(next, &wire::authentication_ok()).await?;
        let next = self.at(Step::Authenticated).await?;
        self.to_idle.mark_unchanged();
        self.say_unless(next, &[wire::greeting(self.number), wire::ready(IDLE)].concat()).await?;
        self.at(Step::LoggedIn).await?;
        Ok(())
    }

    async fn simple(&mut self, sql: String) -> Result<(), Closing> {
        let statements = sql.split(';').map(str::trim).filter(|statement| !statement.is_empty());
        let tags: Vec<u8> = statements
            .filter_map(|statement| statement.split_whitespace().next())
            .flat_map(|word| wire::complete(&word.to_uppercase()))
            .collect();
        self.shared.asked(self.number, Kind::Simple, sql, None);
        self.exchange(Kind::Simple, vec![(Point::Read, tags), (Point::Completed, Vec::new())]).await
    }

    async fn with_parameters(&mut self, sql: String, parameters: &[Option<Vec<u8>>]) -> Result<(), Closing> {
        let ask = if sql.contains("call_budget_acquire(") { wire::ask(parameters) } else { None };
        let in_one_piece = sql.contains("record_send(");
        let kind = match &ask {
            None => Kind::Other,
            Some(Ask { budget, .. }) if budget.is_empty() => Kind::Probe,
            Some(_) => Kind::Acquire,
        };
        let (query, acquire) = self.shared.asked(self.number, kind, sql, ask);
        self.acquire = acquire;
        let Some(rows) = self.rows(&query) else {
            let report =
                Report { message: "the scripted server has no answer to this".into(), ..Report::error("0A000") };
            self.say(&[wire::report(b'E', &report), wire::ready(IDLE)].concat()).await?;
            return Ok(());
        };
        let rows: Vec<Row> = if in_one_piece { rows.iter().map(Row::in_one_piece).collect() } else { rows };
        let no_row = Row::grant(&query, Duration::ZERO);
        let described = wire::described(rows.first().unwrap_or(&no_row).columns());
        let parts = vec![
            (Point::Read, described),
            (Point::Described, rows.iter().flat_map(wire::data).collect()),
            (Point::Rows, wire::complete(&format!("SELECT {}", rows.len()))),
            (Point::Completed, Vec::new()),
        ];
        self.exchange(kind, parts).await?;
        self.acquire = None;
        Ok(())
    }

    /// What the query is answered with, decided when it arrives, as a database does.
    fn rows(&self, query: &Query) -> Option<Vec<Row>> {
        if let Some(rows) = self.shared.script(self.number, self.acquire).rows(query.kind) {
            return Some(rows(query));
        }
        let wait = self.shared.state().wait;
        match query.kind {
            Kind::Acquire => Some(vec![Row::grant(query, wait)]),
            Kind::Probe => Some(vec![Row::unknown_budget(query)]),
            Kind::Simple | Kind::Other => None,
        }
    }

    /// Says each part after the acts of its point. The last is ReadyForQuery. What no act parts leaves in one write.
    async fn exchange(&mut self, kind: Kind, parts: Vec<(Point, Vec<u8>)>) -> Result<(), Closing> {
        self.status = IDLE;
        let mut failed = false;
        let mut unsaid = Vec::new();
        for (point, bytes) in parts {
            let step = Step::Query(kind, point);
            let next = if failed || !self.acts_at(step) {
                Next::AsUsual
            } else {
                self.say(&std::mem::take(&mut unsaid)).await?;
                self.at(step).await?
            };
            failed |= next == Next::Failed;
            let bytes = if point == Point::Completed { wire::ready(self.status) } else { bytes };
            if next == Next::AsUsual && !failed || failed && point == Point::Completed {
                unsaid.extend(bytes);
            }
        }
        // From ReadyForQuery on it is idle; what was said to idle sessions before was not meant for it.
        self.to_idle.mark_unchanged();
        self.say(&unsaid).await?;
        self.at(Step::Query(kind, Point::Ready)).await?;
        Ok(())
    }

    fn acts_at(&self, step: Step) -> bool {
        !self.shared.script(self.number, self.acquire).acts(step).is_empty()
    }

    /// Does what the script says for this step.
    async fn at(&mut self, step: Step) -> Result<Next, Closing> {
        let mut next = Next::AsUsual;
        for act in self.shared.script(self.number, self.acquire).acts(step) {
            let within_a_query = matches!(step, Step::Query(..));
            match self.perform(act, within_a_query).await? {
                Next::AsUsual => {}
                other => next = other,
            }
        }
        Ok(next)
    }

    async fn perform(&mut self, act: Act, within_a_query: bool) -> Result<Next, Closing> {
        match act {
            Act::Silence => {
                let mut released = self.shared.released.subscribe();
                self.meanwhile(async move {
                    if released.changed().await.is_err() {
                        pending::<()>().await;
                    }
                })
                .await?;
            }
            Act::Wait(time) => self.meanwhile(sleep(time)).await?,
            Act::Send(bytes) => self.say(&bytes).await?,
            Act::SendInstead(bytes) => {
                self.say(&bytes).await?;
                return Ok(Next::Replaced(bytes.first().copied().unwrap_or_default()));
            }
            Act::Notice(report) => self.say(&wire::report(b'N', &report)).await?,
            Act::Error(report) if within_a_query && report.severity == "ERROR" => {
                self.say(&wire::report(b'E', &report)).await?;
                return Ok(Next::Failed);
            }
            Act::Error(report) => self.fail(&report).await?,
            Act::Status(status) => self.status = status,
            Act::Trickle(pause) => self.trickle = Some(pause),
            Act::Close => return Err(self.close().await),
            Act::Reset => {
                self.stream.reset_on_close();
                return Err(Closing::Here);
            }
        }
        Ok(Next::AsUsual)
    }

    async fn fail(&mut self, report: &Report) -> Result<(), Closing> {
        self.say(&wire::report(b'E', report)).await?;
        Err(self.close().await)
    }

    async fn close(&mut self) -> Closing {
        self.stream.discard_unread();
        let _ = self.stream.shutdown().await;
        Closing::Here
    }

    async fn say_unless(&mut self, next: Next, bytes: &[u8]) -> Result<(), Closing> {
        if matches!(next, Next::Replaced(_)) { Ok(()) } else { self.say(bytes).await }
    }

    async fn say(&mut self, bytes: &[u8]) -> Result<(), Closing> {
        let Some(pause) = self.trickle else {
            self.stream.write_all(bytes).await.map_err(|_| Closing::Broken)?;
            return self.stream.flush().await.map_err(|_| Closing::Broken);
        };
        for byte in bytes {
            self.stream.write_all(&[*byte]).await.map_err(|_| Closing::Broken)?;
            self.stream.flush().await.map_err(|_| Closing::Broken)?;
            self.meanwhile(sleep(pause)).await?;
        }
        Ok(())
    }

    /// The next message, once it is complete. An `idle` session hears what is said to all idle ones.
    async fn message(&mut self, idle: bool) -> Result<(u8, Vec<u8>), Closing> {
        loop {
            let mut reader = Reader(&self.inbound);
            if let (Some(tag), Some(length)) = (reader.take(1), reader.int4()) {
                let rest = usize::try_from(length).ok().and_then(|length| length.checked_sub(4));
                if let Some(body) = reader.take(rest.ok_or(Closing::Broken)?) {
                    let message = (tag[0], body.to_vec());
                    self.inbound.drain(..5 + message.1.len());
                    return Ok(message);
                }
            }
            let told = {
                let Self { stream, inbound, to_idle, .. } = self;
                tokio::select! {
                    read = stream.read_more(inbound) => Err(read),
                    Ok(()) = to_idle.changed(), if idle => Ok(to_idle.borrow_and_update().clone()),
                }
            };
            match told {
                Err(read) => self.noted(read)?,
                Ok(act) => {
                    if let Some(act) = act {
                        self.perform(act, false).await?;
                    }
                }
            }
        }
    }

    async fn read_exactly(&mut self, length: usize) -> Result<Vec<u8>, Closing> {
        while self.inbound.len() < length {
            let read = self.stream.read_more(&mut self.inbound).await;
            self.noted(read)?;
        }
        Ok(self.inbound.drain(..length).collect())
    }

    /// Waits for `until`, and ends where the client does.
    async fn meanwhile(&mut self, until: impl Future<Output = ()>) -> Result<(), Closing> {
        let mut until = pin!(until);
        loop {
            let read = tokio::select! {
                () = &mut until => return Ok(()),
                read = self.stream.read_more(&mut self.inbound) => read,
            };
            self.noted(read)?;
        }
    }

    fn noted(&self, read: std::io::Result<usize>) -> Result<(), Closing> {
        match read {
            Ok(0) if self.inbound.ends_with(TERMINATE) => Err(Closing::Terminated),
            Ok(0) => Err(Closing::Left),
            Ok(bytes) => {
                self.shared.note(self.number, |connection| connection.bytes += bytes);
                Ok(())
            }
            Err(_) => Err(Closing::Broken),
        }
    }
}

const IDLE: u8 = b'I';
const TERMINATE: &[u8] = b"X\0\0\0\x04";
