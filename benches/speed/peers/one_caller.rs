//! One caller beside the bare UPDATE, in turns of a few calls, so that a slow moment of the disk or of the machine meets all.
//!
//! In a turn each subject makes its calls, and each turn begins with another one. Some turns are a block, whose figure is the
//! ratio of two medians; a run's figure is the median of its blocks. (Of a disk that is now fast and now slow, the median of
//! a whole run lies now here and now there.) The median of the runs is what counts, with the least and the most of them.

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

/// Calls of one subject in a turn, after one that wakes what slept and is not counted.
const CALLS: usize = 2;
const TURNS_OF_A_BLOCK: usize = 12;

/// How long and how often.
struct Plan {
    run: Duration,
    runs: usize,
    /// Of each subject in each run, to read its CPU: a look costs the server more than a call.
    long: Duration,
}

#[derive(Serialize)]
pub struct Row {
    pub subject: &'static str,
    pub commit: &'static str,
    calls: usize,
    /// The median over the runs of each run's median.
    p50_us: f64,
    /// p50 over that of the bare UPDATE of the same block: the median over the runs, the least, the most.
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

/// What one subject did.
#[derive(Default)]
struct Done {
    calls: usize,
    /// Of each run.
    medians_us: Vec<f64>,
    /// Of each run and each of its blocks.
    blocks_us: Vec<Vec<f64>>,
    long_calls: usize,
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
        true => Plan { run: Duration::from_millis(100), runs: 1, long: Duration::from_millis(20) },
        false => Plan { run: Duration::from_secs(4), runs: 5, long: Duration::from_millis(100) },
    };
    let mut rows = Vec::new();
    for (commit, url) in urls {
        let mut subjects = subjects(ground, &url, commit).await?;
        rows.extend(in_turns(ground, &mut subjects, &plan, commit).await?);
    }
    let title = format!(
        "One caller, one key, in turns of {CALLS} calls each: {} runs of {} s. p50 over that of the bare UPDATE: the median of \
         the runs, the least and the most:",
        plan.runs,
        plan.run.as_secs_f64()
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
        let mut whole = vec![Took::default(); subjects.len()];
        done.iter_mut().for_each(|done| done.blocks_us.push(Vec::new()));
        let begin = Instant::now();
        while begin.elapsed() < plan.run {
            let blocks = block(subjects).await?;
            for ((mut waits, whole), done) in blocks.into_iter().zip(&mut whole).zip(&mut done) {
                done.calls += waits.count();
                done.blocks_us.last_mut().ok_or("no run")?.push(waits.percentile_us(0.5));
                whole.append(waits);
            }
        }
        for ((subject, waits), done) in subjects.iter_mut().zip(&mut whole).zip(&mut done) {
            done.medians_us.push(waits.percentile_us(0.5));
            long_turn(ground, subject, done, plan.long).await?;
        }
    }
    let blocks = |name| {
        let at = subjects.iter().position(|subject| subject.name() == name);
        at.map(|at| done[at].blocks_us.clone())
    };
    let bare = blocks(Shape::Bare.name()).ok_or("no bare UPDATE")?;
    let prepared = blocks(Shape::BarePrepared.name()).ok_or("no prepared UPDATE")?;
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

/// So many turns, and how long each subject's calls took in them.
async fn block(subjects: &mut [Subject]) -> Outcome<Vec<Took>> {
    let mut waits = vec![Took::default(); subjects.len()];
    for turn in 0..TURNS_OF_A_BLOCK {
        for place in 0..subjects.len() {
            // Whose turn comes after whose changes too: after an even one they go backwards.
            let place = if turn % 2 == 0 { place } else { subjects.len() - 1 - place };
            let at = (turn / 2 + place) % subjects.len();
            subjects[at].grant().await?;
            let mut asked = Instant::now();
            for _ in 0..CALLS {
                subjects[at].grant().await?;
                let granted = Instant::now();
                waits[at].add(granted - asked);
                asked = granted;
            }
        }
    }
    Ok(waits)
}

/// Many calls of one subject, for the CPU of each.
async fn long_turn(ground: &Ground, subject: &mut Subject, done: &mut Done, time: Duration) -> Outcome<()> {
    subject.grant().await?;
    let server = ground.spent().await?.cpu;
    let (client, begin) = (own_cpu(), Instant::now());
    while begin.elapsed() < time {
        subject.grant().await?;
        done.long_calls += 1;
    }
    done.client_cpu += own_cpu().saturating_sub(client);
    done.server_cpu += ground.spent().await?.cpu.saturating_sub(server);
    Ok(())
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
    fn row(self, subject: &'static str, commit: Commit, bare: &[Vec<f64>], prepared: &[Vec<f64>]) -> Outcome<Row> {
        let of_run =
            |(own, floor): (&Vec<f64>, &Vec<f64>)| median(own.iter().zip(floor).map(|(own, floor)| own / floor));
        let over = |floor: &[Vec<f64>]| {
            let mut ratios: Vec<f64> = self.blocks_us.iter().zip(floor).map(of_run).collect();
            ratios.sort_by(f64::total_cmp);
            let ends = ratios.first().copied().zip(ratios.last().copied());
            ends.filter(|(least, most)| *least > 0.0 && most.is_finite())
                .map(|(least, most)| (median(ratios), least, most))
        };
        let (bare, prepared) = over(bare).zip(over(prepared)).ok_or_else(|| format!("{subject}: not measured"))?;
        let per_call = |cpu: Duration| cpu.as_secs_f64() * 1e6 / self.long_calls as f64;
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
