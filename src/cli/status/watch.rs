//! Looks again and again, over one session, until somebody says that it is enough.

use std::io::{Write, stdout};
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::past::Past;
use super::picture::{self, Trouble};
use super::screen::Screen;
use super::{Status, read};
use crate::cli::command_error::CommandError;
use crate::cli::database::{Connected, Database};
use crate::cli::output::print_json_line;
use crate::clock::{Clock, SystemClock};
use crate::policy::{Instant, Wall};
use crate::store::report::Report;

/// From a failed attempt to the next: doubling.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// What a page of text has where there is no terminal that says otherwise.
const PLAIN_COLUMNS: usize = 80;

/// Shows the first reading and those that follow, until a signal comes or nobody reads any more.
pub async fn watch(status: Status, connected: Connected, first: Report) -> Result<(), CommandError> {
    let Signals { mut ends, mut pause, mut resized } = Signals::listen().map_err(|error| {
        CommandError::failed(format!("the program cannot listen for signals, which end it: {error}"))
    })?;
    let Status { budget, json, every, database, .. } = status;
    let mut watched = Watched::new(first, every);
    let show = if json { Show::Json } else { Screen::open().map_or(Show::Text, Show::Pictures) };
    let (readings, mut read) = mpsc::channel(1);
    tokio::spawn(look(Source { database, budget, connected: Some(connected) }, every, readings));
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    let mut reads = show.show(&watched, true);
    while reads {
        reads = tokio::select! {
            biased;
            () = any(&mut ends) => false,
            _ = pause.recv() => {
                show.pause();
                show.show(&watched, false)
            }
            _ = resized.recv() => show.show(&watched, false),
            Some(reading) = read.recv() => {
                watched.add(reading);
                tick.reset();
                show.show(&watched, true)
            }
            // Nothing came in time: the age of what is shown grows all the same.
            _ = tick.tick() => show.show(&watched, false),
        };
    }
    Ok(())
}

/// Where readings come from.
struct Source {
    database: Database,
    budget: Option<String>,
    /// None after a failure: the next reading connects anew.
    connected: Option<Connected>,
}

impl Source {
    async fn read(&mut self) -> Result<Report, CommandError> {
        let mut connected = match self.connected.take() {
            Some(connected) => connected,
            None => self.database.connect().await?,
        };
        let report = read(&mut connected, self.budget.as_deref()).await?;
        self.connected = Some(connected);
        Ok(report)
    }
}

type Reading = (Instant, Result<Report, CommandError>);

/// Each stage of a reading has its own deadline, so each ends.
async fn look(mut source: Source, every: Duration, readings: mpsc::Sender<Reading>) {
    let mut pause = FIRST_PAUSE;
    let mut next = SystemClock.now() + every;
    loop {
        SystemClock.sleep_until(next).await;
        let begun = SystemClock.now();
        let reading = source.read().await;
        let now = SystemClock.now();
        next = match reading {
            Ok(_) => {
                pause = FIRST_PAUSE;
                (begun + every).max(now)
            }
            Err(_) => {
                let after = now + pause;
                pause = (pause * 2).min(LAST_PAUSE);
                after
            }
        };
        if readings.send((now, reading)).await.is_err() {
            return;
        }
    }
}

/// What is known: the last reading, those before it, and since when there is none.
struct Watched {
    report: Report,
    read_at: Instant,
    read_at_wall: Wall,
    past: Past,
    failing: Option<String>,
    every: Duration,
}

impl Watched {
    fn new(first: Report, every: Duration) -> Self {
        let mut past = Past::default();
        let (read_at, read_at_wall) = (SystemClock.now(), SystemClock.wall());
        past.add(read_at, &first);
        Self { report: first, read_at, read_at_wall, past, failing: None, every }
    }

    fn add(&mut self, (at, reading): Reading) {
        match reading {
            Ok(report) => {
                self.past.add(at, &report);
                (self.report, self.read_at, self.read_at_wall) = (report, at, SystemClock.wall());
                self.failing = None;
            }
            Err(CommandError { message, hint, .. }) => {
                self.failing = Some(hint.map_or(message.clone(), |hint| format!("{message}: {hint}")));
            }
        }
    }

    fn trouble(&self) -> Option<Trouble> {
        // A reading may take this long without anything being wrong.
        const SLOW: Duration = Duration::from_secs(2);
        let lasted = SystemClock.now().saturating_since(self.read_at);
        let why = match &self.failing {
            Some(why) => why.clone(),
            None if lasted > self.every + SLOW => "the database has not answered yet".to_owned(),
            None => return None,
        };
        Some(Trouble { since: self.read_at_wall, lasted, why })
    }
}

/// How it is shown.
enum Show {
    Pictures(Screen),
    Text,
    Json,
}

/// A reading as JSON, with the time at which it was there.
#[derive(Serialize)]
struct Dated<'a> {
    unix_ms: i64,
    #[serde(flatten)]
    report: &'a Report,
}

impl Show {
    /// Shows what is known; false where nobody reads any more. `news`: a reading or a failure has just come.
    fn show(&self, watched: &Watched, news: bool) -> bool {
        let trouble = watched.trouble();
        match self {
            Show::Pictures(screen) => {
                let (columns, rows) = screen.size();
                let lines = picture::lines(&watched.report, &watched.past, trouble.as_ref(), columns);
                screen.draw(&picture::fitting(lines, rows, columns), columns);
                true
            }
            Show::Text if news => {
                let lines = picture::lines(&watched.report, &watched.past, trouble.as_ref(), PLAIN_COLUMNS);
                let mut text = picture::clock(SystemClock.wall()) + "\n";
                for line in lines {
                    text += line.text.trim_end();
                    text.push('\n');
                }
                let mut stdout = stdout().lock();
                writeln!(stdout, "{text}").and_then(|()| stdout.flush()).is_ok()
            }
            Show::Json if news => match &watched.failing {
                None => {
                    let unix_ms = watched.read_at_wall.unix_us() / 1000;
                    print_json_line(&Dated { unix_ms, report: &watched.report })
                }
                Some(why) => {
                    eprintln!("call-budget: no reading since {}: {why}", picture::clock(watched.read_at_wall));
                    true
                }
            },
            Show::Text | Show::Json => true,
        }
    }

    /// The terminal belongs to the shell until this process goes on.
    fn pause(&self) {
        let Show::Pictures(screen) = self else { return };
        screen.give_back();
        // It returns when somebody lets this process go on.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        screen.take();
    }
}

/// What the terminal and the system have to say.
struct Signals {
    ends: [Signal; 4],
    pause: Signal,
    resized: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        // What Ctrl-Z sends.
        let pause = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
        Ok(Self {
            ends: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::quit())?,
            ],
            pause: signal(pause)?,
            resized: signal(SignalKind::window_change())?,
        })
    }
}

/// Completes when one of them has come.
async fn any(signals: &mut [Signal]) {
    std::future::poll_fn(|context| match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
