//! Many seeds, several at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::checks::{Name, Tallies};
use crate::faults::Kind;
use crate::options::Options;
use crate::plan::Scenario;
use crate::seed::{Played, play};

/// Each so manieth seed is played twice, and of two fleets without faults one.
const TWICE: u64 = 20;
const FLEETS_TWICE: u64 = 100;

/// What all seeds came to.
pub struct Run {
    pub from: u64,
    pub seeds: u64,
    pub sends: u64,
    pub events: u64,
    /// Faults that happened, by kind, of so many that were planned.
    pub happened: BTreeMap<Kind, u64>,
    pub planned: usize,
    pub tallies: Tallies,
    /// Seeds in which a check failed.
    pub failing: Vec<u64>,
    pub took: Duration,
    /// It ended before its time, since a check had failed.
    pub cut_short: bool,
}

pub fn run(options: &Options) -> Run {
    let began = Instant::now();
    let (next, sent, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (results, played) = mpsc::channel();
    let mut run = Run {
        from: options.from,
        seeds: 0,
        sends: 0,
        events: 0,
        happened: BTreeMap::new(),
        planned: 0,
        tallies: Tallies::default(),
        failing: Vec::new(),
        took: Duration::ZERO,
        cut_short: false,
    };
    thread::scope(|scope| {
        for _ in 0..options.threads {
            let (next, sent, stop, results) = (&next, &sent, &stop, results.clone());
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let late = options.seconds.is_some_and(|most| began.elapsed().as_secs() >= most)
                        && number >= options.fewest;
                    let enough = options.sends.is_some_and(|most| sent.load(Ordering::Relaxed) >= most);
                    if number >= options.seeds || late || enough || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let one = play_checked(options.from + number, options);
                    sent.fetch_add(one.sends, Ordering::Relaxed);
                    if options.stops_at(&one.tallies) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if results.send(one).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let mut told = Instant::now();
        for one in played {
            run.add(&one, began.elapsed());
            if let Some((name, why)) = one.tallies.first_failure() {
                eprintln!("seed {}: {name} failed: {why}", one.seed);
            }
            if told.elapsed() >= Duration::from_secs(10) {
                told = Instant::now();
                eprintln!("{} seeds, {} sends, {} failing", run.seeds, run.sends, run.failing.len());
            }
        }
    });
    run.cut_short = stop.into_inner();
    run.took = began.elapsed();
    run.failing.sort_unstable();
    run
}

fn play_checked(seed: u64, options: &Options) -> Played {
    let mut one = play(seed, options.trace);
    let fleet = Scenario::of_seed(seed) != Scenario::Faults && seed % FLEETS_TWICE < FLEETS_TWICE / 2;
    if seed % TWICE == 1 || fleet || options.one.is_some() {
        let again = play(seed, false);
        one.tallies.check(Name::SameSeed, again.hash == one.hash, || {
            format!("two runs differ, after {} and {} events", one.events, again.events)
        });
    }
    one
}

impl Run {
    /// The kinds of faults that never happened.
    pub fn missing(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| !self.happened.contains_key(kind)).collect()
    }

    fn add(&mut self, one: &Played, after: Duration) {
        self.seeds += 1;
        self.sends += one.sends;
        self.events += one.events;
        self.planned += one.planned;
        for (kind, times) in &one.happened {
            *self.happened.entry(*kind).or_default() += times;
        }
        self.tallies.add(one.seed, &one.tallies, after);
        if one.tallies.any_failed() {
            self.failing.push(one.seed);
        }
    }
}
