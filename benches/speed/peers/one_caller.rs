//! One caller beside the bare UPDATE, in turns so short that a slow moment of the disk or of the machine meets all of them.
//!
//! In a run each subject has many slices, and each turn begins with another one. A run's figure is the ratio of two medians
//! of that run; the median of the runs is what counts, with the least and the most of them.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::cases::{self, Commit};
use super::load::Caller;
use super::ours::{self, Ours};
use super::pool::Connection;
use super::shapes::{Peer, Shape};
use super::{expect_commit, goals, make_forgetful_role, refuse_forgetful};
use crate::Outcome;
use crate::ground::{CLASS, Ground};
use crate::measure::{Took, median, own_cpu};
use crate::options::Options;
use crate::report::Report;

/// The table's name in the figures.
const TABLE: &str = "peers_one_caller_in_turns";
/// The same statement as the library's own: what is above it is the library, what is below is the server.
const STATEMENT: &str = "SELECT pg_catalog.record_send(call_budget.call_budget_acquire($1, $2, $3, $4, $5, $6))";
const PATIENCE_US: i64 = 10_000_000;

/// How long, how often, how many times.
struct Plan {
    slice: Duration,
    turns: usize,
    runs: usize,
}

#[derive(Serialize)]
pub struct Row {
    pub subject: &'static str,
    pub commit: &'static str,
    calls: usize,
    /// The median over the runs of each run's median.
    p50_us: f64,
    /// p50 over that of the bare UPDATE of the same run: the median over the runs, the least, the most.
    pub over_sent_as_ours: f64,
    pub over_sent_as_ours_min: f64,
    pub over_sent_as_ours_max: f64,
    pub over_prepared: f64,
    pub over_prepared_min: f64,
    pub over_prepared_max: f64,
    /// Of all the server's processes, and of this one, per call.
    server_cpu_us: f64,
    client_cpu_us: f64,
    #[serde(rename = "p50_us_of_runs")]
    medians_us: Vec<f64>,
}

/// Who takes turns.
enum Subject {
    Ours(Ours),
    Peer(&'static str, Peer),
    Alone(Alone),
}

/// The statement of an acquire and nothing around it.
struct Alone {
    client: Client,
    budget: String,
    lane: i64,
}

/// What one subject did in all its slices.
#[derive(Default)]
struct Done {
    calls: usize,
    medians_us: Vec<f64>,
    server_cpu: Duration,
    client_cpu: Duration,
}

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    refuse_forgetful(ground).await?;
    for shape in [Shape::Bare, Shape::BarePrepared] {
        shape.create(&ground.aside, 1).await?;
    }
    let urls = [(Commit::On, ground.url()), (Commit::Off, make_forgetful_role(ground).await?)];
    let plan = match options.smoke {
        true => Plan { slice: Duration::from_millis(5), turns: 4, runs: 1 },
        false => Plan { slice: Duration::from_millis(20), turns: 40, runs: 5 },
    };
    let mut rows = Vec::new();
    for (commit, url) in urls {
        let mut subjects = subjects(ground, &url, commit).await?;
        rows.extend(in_turns(ground, &mut subjects, &plan, commit).await?);
    }
    let title = format!(
        "One caller, one key, in turns: {} runs of {} turns, {} ms for each; p50 over that of the bare UPDATE of the same \
         run, the median of the runs, the least and the most:",
        plan.runs,
        plan.turns,
        plan.slice.as_millis()
    );
    let columns = [
        "subject",
        "commit",
        "p50_us",
        "over_sent_as_ours",
        "over_sent_as_ours_min",
        "over_sent_as_ours_max",
        "over_prepared",
        "over_prepared_min",
        "over_prepared_max",
        "server_cpu_us",
        "client_cpu_us",
    ];
    report.table(TABLE, &title, &columns, &rows)?;
    goals::show_one_caller(&rows, report)
}

async fn in_turns(ground: &Ground, subjects: &mut [Subject], plan: &Plan, commit: Commit) -> Outcome<Vec<Row>> {
    let mut done: Vec<Done> = subjects.iter().map(|_| Done::default()).collect();
    for _ in 0..plan.runs {
        let mut waits = vec![Took::default(); subjects.len()];
        for turn in 0..plan.turns {
            for place in 0..subjects.len() {
                // Whose turn comes after whose changes too: after an even one they go backwards.
                let place = if turn % 2 == 0 { place } else { subjects.len() - 1 - place };
                let at = (turn / 2 + place) % subjects.len();
                let took = slice(ground, &mut subjects[at], &mut done[at], plan.slice).await?;
                waits[at].append(took);
            }
        }
        for (waits, done) in waits.iter_mut().zip(&mut done) {
            done.calls += waits.count();
            done.medians_us.push(waits.percentile_us(0.5));
        }
    }
    let medians =
        |name| subjects.iter().position(|subject| subject.name() == name).map(|at| done[at].medians_us.clone());
    let bare = medians(Shape::Bare.name()).ok_or("no bare UPDATE")?;
    let prepared = medians(Shape::BarePrepared.name()).ok_or("no prepared UPDATE")?;
    let rows = subjects.iter().zip(done).map(|(subject, done)| done.row(subject.name(), commit, &bare, &prepared));
    rows.collect()
}

async fn subjects(ground: &Ground, url: &str, commit: Commit) -> Outcome<Vec<Subject>> {
    let [its_own, alone] = ["library", "alone"].map(|whose| format!("one-caller-{whose}-{}", commit.name()));
    ours::make_budgets(ground, &[its_own.clone(), alone.clone()]).await?;
    let mut subjects = vec![Subject::Ours(Ours::start(ground, url, 1, &[its_own]).await?)];
    for shape in [Shape::Bare, Shape::BarePrepared] {
        let client = ground.connect_at(url).await?;
        expect_commit(&client, commit).await?;
        subjects.push(Subject::Peer(shape.name(), shape.on(client, 1).await?));
    }
    let client = ground.connect_at(url).await?;
    expect_commit(&client, commit).await?;
    subjects.push(Subject::Alone(Alone { client, budget: alone, lane: fastrand::i64(1..) }));
    Ok(subjects)
}

/// One call after the other. The first of a slice wakes what slept, and is not counted.
async fn slice(ground: &Ground, subject: &mut Subject, done: &mut Done, time: Duration) -> Outcome<Took> {
    subject.grant().await?;
    let server = ground.spent().await?.cpu;
    let client = own_cpu();
    let mut took = Took::default();
    let begin = Instant::now();
    let mut asked = begin;
    while asked - begin < time {
        subject.grant().await?;
        let granted = Instant::now();
        took.add(granted - asked);
        asked = granted;
    }
    done.client_cpu += own_cpu().saturating_sub(client);
    done.server_cpu += ground.spent().await?.cpu.saturating_sub(server);
    Ok(took)
}

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => cases::Subject::Ours.name(),
            Self::Peer(name, _) => name,
            Self::Alone(_) => "acquire, statement alone",
        }
    }

    async fn grant(&mut self) -> Outcome<()> {
        match self {
            Self::Ours(ours) => ours.grant(0, 0).await,
            Self::Peer(_, peer) => peer.grant(0).await,
            Self::Alone(alone) => alone.grant().await,
        }
    }
}

impl Alone {
    async fn grant(&self) -> Outcome<()> {
        let (costs, nonce) = (vec![1_i32], fastrand::i64(0..));
        let arguments: [(&(dyn ToSql + Sync), Type); 6] = [
            (&self.budget, Type::TEXT),
            (&CLASS, Type::TEXT),
            (&self.lane, Type::INT8),
            (&costs, Type::INT4_ARRAY),
            (&PATIENCE_US, Type::INT8),
            (&nonce, Type::INT8),
        ];
        let rows = self.client.query_typed(STATEMENT, &arguments).await?;
        let answer: &[u8] = rows.first().ok_or("no answer")?.get(0);
        if slots(answer) == Some(1) { Ok(()) } else { Err("acquire, statement alone: no slot was granted".into()) }
    }
}

/// How many elements the third column of the record has, the list of the slots. Each column comes after its type and length.
fn slots(record: &[u8]) -> Option<i32> {
    let word = |at: usize| record.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes);
    let mut at = 4;
    for _ in 0..2 {
        at += 8 + usize::try_from(word(at + 4)?).ok()?;
    }
    // Dimensions, nulls, the elements' type, and then the length of the first dimension, where there is one.
    let list = at + 8;
    if word(list)? == 0 { Some(0) } else { word(list + 12) }
}

impl Done {
    fn row(self, subject: &'static str, commit: Commit, bare: &[f64], prepared: &[f64]) -> Outcome<Row> {
        let over = |floor: &[f64]| {
            let mut ratios: Vec<f64> = self.medians_us.iter().zip(floor).map(|(own, floor)| own / floor).collect();
            ratios.sort_by(f64::total_cmp);
            let ends = ratios.first().copied().zip(ratios.last().copied());
            ends.filter(|(least, most)| *least > 0.0 && most.is_finite())
                .map(|(least, most)| (median(ratios), least, most))
        };
        let (bare, prepared) = over(bare).zip(over(prepared)).ok_or_else(|| format!("{subject}: not measured"))?;
        let per_call = |cpu: Duration| cpu.as_secs_f64() * 1e6 / self.calls as f64;
        Ok(Row {
            subject,
            commit: commit.name(),
            calls: self.calls,
            p50_us: median(self.medians_us.iter().copied()),
            over_sent_as_ours: bare.0,
            over_sent_as_ours_min: bare.1,
            over_sent_as_ours_max: bare.2,
            over_prepared: prepared.0,
            over_prepared_min: prepared.1,
            over_prepared_max: prepared.2,
            server_cpu_us: per_call(self.server_cpu),
            client_cpu_us: per_call(self.client_cpu),
            medians_us: self.medians_us,
        })
    }
}
