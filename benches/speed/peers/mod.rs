//! Our acquire beside what others do with a row, in turns on one server: round after round, each case once a round. One caller
//! beside the bare UPDATE is a part of its own, in shorter turns.

mod cases;
mod goals;
mod load;
pub mod one_caller;
mod ours;
mod pool;
mod pyrate;
mod redis;
mod rows;
mod shapes;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;

use crate::Outcome;
use crate::ground::Ground;
use crate::options::Options;
use crate::report::Report;

use cases::{Callers, Case, Commit, Subject};
use load::{Caller, Load, Meter, Sample};
use ours::Ours;
use pool::Pool;
use redis::{Appends, Redis};
use rows::{Row, Runs};
use shapes::{Peer, Shape};

/// Many callers are measured in fewer rounds than one caller: each of them takes longer.
const ROUNDS_OF_MANY: u32 = 3;
/// How many connections a peer's callers may share. It is measured with as many as it was fastest with.
const CONNECTIONS: [usize; 4] = [2, 5, 10, 20];
const TRIAL: Duration = Duration::from_millis(300);

pub async fn run(ground: &Ground, options: &Options, report: &mut Report) -> Outcome<()> {
    refuse_forgetful(ground).await?;
    let mut field = Field::prepare(ground, options).await?;
    let cases = cases::all(options);
    field.try_connections(&cases).await?;
    let mut found: Vec<Runs> = cases.iter().map(|_| Runs::default()).collect();
    for round in 0..options.runs() {
        // Each round begins elsewhere: what comes after what must not decide.
        let begin = cases.len() * usize::try_from(round)? / usize::try_from(options.runs())?;
        for at in (begin..cases.len()).chain(0..begin) {
            let (case, runs) = (&cases[at], &mut found[at]);
            if round < ROUNDS_OF_MANY || case.callers == Callers::One {
                let sample = field.run(case).await.map_err(|error| format!("{}: {error}", case.in_words()))?;
                runs.add(sample);
            }
        }
    }
    let rows: Vec<Row> = cases.iter().zip(found).map(|(case, runs)| runs.row(case, field.connections(case))).collect();
    rows::check(&rows)?;
    rows::show(&rows, options, report)?;
    goals::show(&rows, options, field.interval, report)
}

/// What survives a crash is compared with what does too: not on a server on which nothing does.
async fn refuse_forgetful(ground: &Ground) -> Outcome<()> {
    let durability = ground.durability().await?;
    let off = ["fsync", "synchronous_commit", "full_page_writes"]
        .into_iter()
        .find(|name| durability.get(*name).is_none_or(|setting| setting != "on"));
    match off {
        None => Ok(()),
        Some(name) => Err(format!("no figure here could be called durable: {name} is not on at the server").into()),
    }
}

/// What stands ready for all cases.
struct Field<'a> {
    ground: &'a Ground,
    options: &'a Options,
    forgetful_url: String,
    redis: Vec<(Appends, Redis)>,
    /// The names of the many budgets.
    many_budgets: Vec<String>,
    /// Budgets made for one run each.
    made: u32,
    interval: Duration,
    fastest: Vec<(Case, usize)>,
}

impl<'a> Field<'a> {
    async fn prepare(ground: &'a Ground, options: &'a Options) -> Outcome<Self> {
        let forgetful_url = make_forgetful_role(ground).await?;
        let many_budgets: Vec<String> = (0..options.keys()).map(|key| format!("key-{key}")).collect();
        let interval = ours::make_budgets(ground, &many_budgets).await?;
        for keys in [1, options.keys()] {
            for shape in Shape::ALL {
                shape.create(&ground.aside, keys).await?;
            }
        }
        let mut redis = Vec::new();
        match &options.redis {
            Some(program) => {
                for appends in [Appends::Default, Appends::Always] {
                    redis.push((appends, Redis::start(program, appends).await?));
                }
            }
            None => println!("NOT TRIED: GCRA in Redis: no --redis PROGRAM was named"),
        }
        if options.pyrate.is_none() {
            println!("NOT TRIED: pyrate-limiter: no --pyrate PACKAGES were named");
        }
        let (made, fastest) = (0, Vec::new());
        Ok(Self { ground, options, forgetful_url, redis, many_budgets, made, interval, fastest })
    }

    async fn try_connections(&mut self, cases: &[Case]) -> Outcome<()> {
        for case in cases {
            let crowd = matches!(case.callers, Callers::Lanes { .. }) && case.subject.is_pooled();
            if !crowd || self.fastest.iter().any(|(tried, _)| tried.is_on_the_same(case)) {
                continue;
            }
            let lanes = self.options.compared_lanes();
            let tried = if self.options.smoke { vec![lanes] } else { CONNECTIONS.to_vec() };
            let mut best = (0.0, lanes);
            for connections in tried {
                let sample = self.crowd(case, connections, TRIAL, TRIAL).await?;
                let grants_per_s = sample.grants as f64 / sample.seconds;
                if grants_per_s > best.0 {
                    best = (grants_per_s, connections);
                }
            }
            self.fastest.push((*case, best.1));
        }
        Ok(())
    }

    /// How many the case's callers share.
    fn connections(&self, case: &Case) -> usize {
        match case.callers {
            Callers::One => 1,
            Callers::Lanes { lanes, .. } if !case.subject.is_pooled() => lanes,
            Callers::Lanes { .. } => {
                let tried = self.fastest.iter().find(|(tried, _)| tried.is_on_the_same(case));
                tried.map_or(1, |(_, connections)| *connections)
            }
        }
    }

    async fn run(&mut self, case: &Case) -> Outcome<Sample> {
        let rounds = if case.callers == Callers::One { self.options.runs() } else { ROUNDS_OF_MANY };
        let least = self.options.time() / rounds.min(self.options.runs());
        self.crowd(case, self.connections(case), least, self.options.time().mul_f64(1.5)).await
    }

    async fn crowd(&mut self, case: &Case, connections: usize, least: Duration, most: Duration) -> Outcome<Sample> {
        let load = Load { tasks: case.callers.tasks(), keys: case.keys, least, most };
        let url = self.url(case.commit);
        let postgres = Meter::Postgres(self.ground);
        match case.subject {
            Subject::Ours => {
                let ours = Ours::start(self.ground, &url, connections, &self.budgets(case.keys).await?).await?;
                measure(ours, postgres, case, load).await
            }
            Subject::Shape(shape) => {
                let mut peers: Vec<Peer> = Vec::new();
                for _ in 0..connections {
                    let client = self.ground.connect_at(&url).await?;
                    expect_commit(&client, case.commit).await?;
                    peers.push(shape.on(client, case.keys).await?);
                }
                measure(Pool::new(peers), postgres, case, load).await
            }
            Subject::Redis(appends) => {
                let redis = self.redis.iter().find(|(kind, _)| *kind == appends).map(|(_, redis)| redis);
                let redis = redis.ok_or("Redis was not started")?;
                let mut askers = Vec::new();
                for _ in 0..connections {
                    askers.push(redis.connect().await?);
                }
                measure(Pool::new(askers), Meter::Redis(redis), case, load).await
            }
            Subject::Pyrate => {
                let packages = self.options.pyrate.as_deref().ok_or("pyrate-limiter was not named")?;
                pyrate::measure(packages, &url, postgres, load.tasks, least).await
            }
        }
    }

    /// Of the role that commits so.
    fn url(&self, commit: Commit) -> String {
        match commit {
            Commit::On => self.ground.url(),
            Commit::Off => self.forgetful_url.clone(),
        }
    }

    /// One of its own, since waiters of an earlier run would be looked after in this one; or the many.
    async fn budgets(&mut self, keys: usize) -> Outcome<Vec<String>> {
        if keys > 1 {
            return Ok(self.many_budgets.clone());
        }
        self.made += 1;
        let budget = vec![format!("one-{}", self.made)];
        ours::make_budgets(self.ground, &budget).await?;
        Ok(budget)
    }
}

async fn measure<C: Caller>(caller: C, meter: Meter<'_>, case: &Case, load: Load) -> Outcome<Sample> {
    match case.callers {
        Callers::One => load::one(&caller, meter, load.keys, load.least).await,
        Callers::Lanes { .. } => load::many(&Arc::new(caller), meter, load).await,
    }
}

/// A role whose commits do not wait for the disk, as a site would set it up. Returns its URL.
async fn make_forgetful_role(ground: &Ground) -> Outcome<String> {
    let url = ground.url();
    let (_, rest) = url.split_once("//postgres:").ok_or("a URL of another form")?;
    let (password, _) = rest.split_once('@').ok_or("a URL without a password")?;
    let sql = format!(
        "DROP ROLE IF EXISTS speed_forgetful;
         CREATE ROLE speed_forgetful SUPERUSER LOGIN PASSWORD '{password}';
         ALTER ROLE speed_forgetful SET synchronous_commit = off"
    );
    ground.aside.batch_execute(&sql).await?;
    Ok(format!("postgres://speed_forgetful:{rest}"))
}

async fn expect_commit(client: &Client, commit: Commit) -> Outcome<()> {
    let found: String = client.query_one("SELECT current_setting('synchronous_commit')", &[]).await?.get(0);
    if found == commit.name() {
        Ok(())
    } else {
        Err(format!("synchronous_commit is {found} where it must not be").into())
    }
}
