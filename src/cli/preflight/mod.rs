//! What must be known before call_budget_enabled is switched on: measured, and held against a bar, line by line.
//!
//! Two halves. What is measured and how stands in `fresh`, `facts`, `probing`, `watch` and `vendor`; what it means stands in
//! `judge`, which does nothing else. Nothing is written, and no slot is spent.

mod facts;
mod fresh;
mod judge;
mod probing;
mod show;
mod vendor;
mod watch;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use hyper::http::HeaderMap;

use super::command_error::CommandError;
use super::database::Database;
use super::headers::Headers;
use super::progress::during;
use super::{Exit, output};
use crate::Settings;
use crate::clock::SystemClock;
use crate::config::Connection;
use crate::store::PostgresStore;
use crate::store::direct::{Direct, Openings};
use facts::Facts;
use fresh::Fresh;
use judge::way::{Calls, Protection};
use judge::{Line, Times, Verdict, budget, load, overall, role, server, way};
use probing::Probed;
use vendor::Target;
use watch::Watch;

/// How our sessions call themselves: they are left out of what is counted.
const NAME: &str = "call-budget preflight";
/// The pace of requests to a vendor where the budget, which would say it, is not there.
const PACE: Duration = Duration::from_secs(1);

/// Measure what must be known before call_budget_enabled is switched on
///
/// Each line is a figure, held against a bar: pass, warn or fail, with the
/// reason and the way out. Log in as the role that the callers will log in as,
/// from the machine on which they will run. Does not ask for
/// call_budget_enabled. Changes nothing: it asks the store for what is refused,
/// so it spends no slot; each question takes the budget's lock as any call
/// does, for a moment, and no more often than the budget's interval.
///
/// With --url it also sends requests to the vendor, and says before how many.
/// They do not wait for a slot: no two are closer than the budget's interval.
/// It should be a call as the callers make it, which --header helps with.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Example: call-budget preflight kis-real --url https://vendor.example/price \\\n                                            --header-file key.txt\n\n\
                  Exit codes: 0 every line passes or warns, 1 a line fails or was not measured\n\
                  (but arrival_jitter, which without --url only warns), 2 usage or settings,\n\
                  3 the store cannot be reached"
)]
pub struct Preflight {
    /// The budget's name
    budget: String,
    /// How long to measure round trips, locks and clocks, 1 to 600
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How many processes will share the budget, 1 to 10000
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    processes: u64,
    /// A URL of the vendor: how evenly do requests arrive there?
    #[arg(long, value_name = "URL", value_parser = vendor::target)]
    url: Option<Target>,
    /// How many GET requests to send there, 2 to 1000
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(2..=1000))]
    url_calls: u16,
    #[command(flatten)]
    headers: Headers,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: Database,
}

impl Preflight {
    pub async fn run(self) -> Result<Exit, CommandError> {
        let headers = self.headers.read()?;
        let settings = Settings { application_name: NAME.into(), ..self.database.settings()? };
        let connection = Connection::of(&settings)?;
        let store = PostgresStore::new(&settings, SystemClock)?;

        let mut fresh = Fresh::to(&connection);
        let openings = Openings::new(connection.clone());
        let Some(mut standing) = during("opening a connection", fresh.open_first(&openings)).await else {
            let lines = fresh_lines(&fresh, &connection, &settings);
            let why = "the store cannot be reached: see the line that failed";
            let lines = unreached(lines, why);
            self.print(&lines);
            return Ok(Exit::Store);
        };
        during("opening connections", fresh.open_more(&openings, &mut standing)).await;
        let facts = during("asking the server", Facts::read(&mut standing, &self.budget, NAME)).await;
        let (probed, watch, calls) = self.measure(&settings, &store, &headers, &mut standing, facts.interval()).await;
        let mut lines = fresh_lines(&fresh, &connection, &settings);
        lines.extend(server_lines(&facts, &probed, &settings, self.processes));
        lines.extend(budget_lines(&facts, &self.budget, &probed, &settings));
        lines.extend(load_lines(&facts, &probed, &watch, &settings));
        lines.extend(clock_lines(&probed));
        lines.push(jitter_line(&facts, calls.as_ref()));
        self.print(&lines);
        Ok(if overall(&lines) == Verdict::Fail { Exit::Failed } else { Exit::Done })
    }

    async fn measure(
        &self,
        settings: &Settings,
        store: &PostgresStore,
        headers: &HeaderMap,
        standing: &mut Direct,
        interval: Option<Duration>,
    ) -> (Probed, Result<load::Watched, String>, Option<Calls>) {
        let time = Duration::from_secs(self.seconds);
        let (probed, watch) =
            during(&format!("measuring round trips, locks and clocks for {} s", self.seconds), async {
                tokio::join!(
                    Probed::probe(store, &self.budget, interval, settings.store_call(), time),
                    Watch::look(standing, NAME, time),
                )
            })
            .await;
        let calls = match &self.url {
            Some(target) => {
                let pace = interval.unwrap_or(PACE);
                // Always said: somebody else counts them.
                eprintln!(
                    "call-budget: sending {} GET requests to {target}, one every {}",
                    self.url_calls,
                    judge::in_words(pace)
                );
                Some(during("sending", vendor::call(target, headers, self.url_calls.into(), pace)).await)
            }
            None => None,
        };
        (probed, watch, calls)
    }

    fn print(&self, lines: &[Line]) {
        match self.json {
            true => output::print_json(&show::document(lines)),
            false => output::print(&show::text(lines, std::io::stdout().is_terminal())),
        }
    }
}

/// The lines about fresh connections, as far as they came.
fn fresh_lines(fresh: &Fresh, connection: &Connection, settings: &Settings) -> Vec<Line> {
    let call = settings.store_call();
    let way = fresh.way.unwrap_or_else(|| fresh::intended(connection));
    let protection = Protection {
        way,
        tls: fresh.tls.as_ref().map(|(version, cipher)| (version.as_str(), cipher.as_str())),
        wanted: fresh::wanted(connection, way),
        // Where nobody has logged in, nobody has said what the server sees.
        pooled: fresh.met.is_empty() || role::is_pooled(&fresh.met),
    };
    let mut lines: Vec<Line> = way::STAGES
        .into_iter()
        .map(|(name, stage)| fresh.line(name, stage, |times| way::stage(name, times, call)))
        .collect();
    let tls = fresh.line("tls", fresh::TLS, |times| way::tls(times, protection, call));
    lines.insert(2, tls);
    lines.push(match fresh.totals.is_empty() {
        true => Line::not_measured("fresh_connection", "no connection could be opened: see the stage that failed"),
        false => way::fresh_connection(&Times::of(fresh.totals.clone()), fresh.first, call),
    });
    lines.push(match fresh.met.is_empty() {
        true => Line::not_measured("pooler", "no session could be opened"),
        false => role::pooler(&fresh.met),
    });
    lines
}

fn server_lines(facts: &Facts, probed: &Probed, settings: &Settings, processes: u64) -> Vec<Line> {
    let need = processes.saturating_mul(u64::try_from(settings.pool_size).unwrap_or(u64::MAX));
    let mut lines = vec![server::schema(facts.contract.clone())];
    lines.push(of(&facts.role, "rights", role::rights));
    lines.push(of(&facts.role, "role", role::role));
    lines.push(of(&facts.role, "table_rights", role::table_rights));
    lines.push(of(&facts.tables, "marker", |tables| server::marker(tables)));
    lines.push(of(&facts.server, "primary", server::primary));
    lines.push(of(&facts.server, "timeline", |server| server::timeline(server, probed.timeline)));
    lines.push(of(&facts.server, "server", server::server));
    match &facts.server {
        Ok(server) => lines.extend(server::durability(server)),
        Err(why) => {
            lines.extend(["fsync", "full_page_writes", "synchronous_commit"].map(|name| Line::not_measured(name, why)));
        }
    }
    lines.push(of(&facts.role, "isolation", role::isolation));
    for (name, setting, without) in role::SETTINGS {
        lines.push(of(&facts.role, name, |role| role::timeout(name, setting, without, role)));
    }
    match &facts.connections {
        Ok(connections) => {
            lines.push(of(&facts.server, "keepalives", |server| server::keepalives(server, connections, need)));
            lines.extend(server::connections(connections, need));
        }
        Err(why) => {
            let names = ["keepalives", "connections", "role_connections", "database_connections"];
            lines.extend(names.map(|name| Line::not_measured(name, why)));
        }
    }
    lines
}

fn budget_lines(facts: &Facts, name: &str, probed: &Probed, settings: &Settings) -> Vec<Line> {
    let view = &facts.view;
    let round_trip = probed.probes.within(0.99);
    vec![
        budget::budget(name, view.as_ref().map_err(Clone::clone)),
        of_budget(view, "interval", budget::interval),
        of_budget(view, "classes", budget::classes),
        of_budget(view, "budget_state", budget::state),
        of_budget(view, "send_window", |view| budget::send_window(view, settings.rtt_max)),
        match probed.probes.count() {
            0 => Line::not_measured("lookahead", "no round trip was measured"),
            _ => of_budget(view, "lookahead", |view| budget::lookahead(view, round_trip)),
        },
    ]
}

fn load_lines(facts: &Facts, probed: &Probed, watch: &Result<load::Watched, String>, settings: &Settings) -> Vec<Line> {
    let bar = facts.view.as_ref().map_or(settings.rtt_max, |view| {
        let window = Duration::from_micros(u64::try_from(view.budget.settings.send_window_us).unwrap_or_default());
        settings.rtt_max.min(window)
    });
    let round_trip = match (&probed.failure, probed.probes.count()) {
        (Some(why), _) => Line::new("round_trip", "every probe answered").fail(why.as_str()),
        (None, 0) => Line::not_measured("round_trip", "no probe was sent"),
        (None, _) => way::round_trip(&probed.probes, bar),
    };
    let asked = probed.asks.times.count() + probed.asks.failures > 0;
    let lock_waits = match (watch, &facts.view) {
        (_, Err(_)) => Line::not_measured("lock_waits", "there is no budget whose lock could be taken"),
        (Err(why), _) => Line::not_measured("lock_waits", why),
        (Ok(_), Ok(_)) if !asked => Line::not_measured("lock_waits", "the store answered no probe: see round_trip"),
        (Ok(watched), Ok(_)) => load::lock_waits(&probed.asks, watched, bar),
    };
    vec![
        round_trip,
        lock_waits,
        of(watch, "lock_holders", load::lock_holders),
        match (watch, &facts.kept) {
            (Ok(watched), Ok(kept)) => load::oldest_snapshot(watched, *kept, bar),
            (Err(why), _) | (_, Err(why)) => Line::not_measured("oldest_snapshot", why),
        },
        of(watch, "idle_in_transaction", load::idle_in_transaction),
    ]
}

fn clock_lines(probed: &Probed) -> [Line; 2] {
    match probed.offset {
        Some((offset_us, uncertain)) => {
            let (store, here) = probed.steps();
            [way::clock_offset(offset_us, uncertain), way::clock_steps(store, here, probed.looked)]
        }
        None => ["clock_offset", "clock_steps"]
            .map(|name| Line::not_measured(name, "the store answered no probe: see round_trip")),
    }
}

fn jitter_line(facts: &Facts, calls: Option<&Calls>) -> Line {
    match (calls, &facts.view) {
        (None, _) => Line::not_asked_for(
            "arrival_jitter",
            "give --url with a URL of the vendor: whether calls arrive as evenly as the limit needs is not known yet",
        ),
        (_, Err(_)) => {
            Line::not_measured("arrival_jitter", "there is no budget whose arrival jitter it could be held against")
        }
        (Some(calls), Ok(view)) => {
            let bar = Duration::from_micros(u64::try_from(view.budget.settings.arrival_jitter_us).unwrap_or_default());
            way::arrival_jitter(calls, bar)
        }
    }
}

fn of<T>(fact: &Result<T, String>, name: &'static str, judge: impl FnOnce(&T) -> Line) -> Line {
    match fact {
        Ok(fact) => judge(fact),
        Err(why) => Line::not_measured(name, why),
    }
}

fn of_budget<T>(fact: &Result<T, String>, name: &'static str, judge: impl FnOnce(&T) -> Line) -> Line {
    match fact {
        Ok(fact) => judge(fact),
        Err(_) => Line::not_measured(name, "there is no budget to look at: see budget"),
    }
}

/// The lines that were measured, and all others.
fn unreached(lines: Vec<Line>, why: &str) -> Vec<Line> {
    let known: BTreeSet<&str> = lines.iter().map(|line| line.name).collect();
    let rest: Vec<Line> =
        show::NAMES.iter().filter(|name| !known.contains(**name)).map(|name| Line::not_measured(name, why)).collect();
    lines.into_iter().chain(rest).collect()
}
