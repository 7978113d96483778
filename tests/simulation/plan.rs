//! What one seed plays: budgets, processes, network, and the faults that meet in it. Drawn from the seed alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use call_budget::test_util::Limit;
use fastrand::Rng;

use crate::faults::Kind;
use crate::time::{MS, SECOND, True, US};

pub struct Plan {
    pub seed: u64,
    pub scenario: Scenario,
    pub budgets: Vec<BudgetPlan>,
    pub parts: Vec<Part>,
    pub network: NetworkPlan,
    pub store: StorePlan,
    /// The longest round trip whose slots are used, as the processes' settings say.
    pub rtt_max: Duration,
    pub faults: Vec<(True, Kind)>,
    pub heals: True,
    pub measures: True,
    pub ends: True,
}

/// What the seed is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Three kinds of faults or more, then a healthy end.
    Faults,
    /// No fault: sixty lanes that always want more, 18 a second.
    Sixty,
    /// The same with one caller in each, who queues behind all others each time anew.
    Queue,
    /// No fault: twelve lanes that want 10,000 a second.
    TenThousand,
    /// No fault: a class that goes before all others and stays below its floor, beside three that always want more.
    TopClass,
    /// No fault, but a store whose transactions take long: twenty-four lanes that want 1,000 a second.
    SlowStore,
}

impl Scenario {
    pub fn of_seed(seed: u64) -> Self {
        match seed % 50 {
            4 => Scenario::TopClass,
            6 => Scenario::SlowStore,
            12 => Scenario::Queue,
            18 => Scenario::TenThousand,
            24 => Scenario::Sixty,
            _ => Scenario::Faults,
        }
    }
}

#[derive(Clone)]
pub struct BudgetPlan {
    pub name: Arc<str>,
    pub limit: Limit,
    pub lookahead: Duration,
    pub classes: Vec<ClassPlan>,
}

#[derive(Clone)]
pub struct ClassPlan {
    pub name: Arc<str>,
    pub priority: i32,
    pub floor_ppm: i32,
    /// Its callers rest between two calls to the end, so that it takes less than its floor.
    pub stays_below: bool,
}

/// What one process of the fleet does, whichever process it is at the time.
#[derive(Clone)]
pub struct Part {
    pub lanes: Vec<LanePlan>,
    /// Of its machine's clock.
    pub ppm: i64,
    pub offset_ns: i128,
}

#[derive(Clone, Copy)]
pub struct LanePlan {
    pub budget: usize,
    pub class: usize,
    pub callers: usize,
    /// How long a caller of it rests between two calls, until all is well if its class does not rest on; 0: it always wants more.
    pub rest: True,
}

pub struct NetworkPlan {
    /// One leg takes at least and at most this.
    pub least: True,
    pub most: True,
    /// The way to the vendor takes at least this, and up to the arrival jitter more.
    pub to_vendor: True,
}

pub struct StorePlan {
    /// One transaction, from the lock to its end.
    pub transaction: True,
    /// Commits are acknowledged before they are on the disk.
    pub asynchronous: bool,
    pub ppm: i64,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ns(duration: Duration) -> True {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

impl BudgetPlan {
    pub fn spaced_by(&self) -> True {
        ns(self.limit.interval().expect("a plan's limit can be made safe"))
    }

    pub fn window(&self) -> True {
        ns(self.limit.window)
    }

    /// The longest that something promised now can still matter: the lookahead, the largest cost, and the way to the vendor.
    pub fn promise(&self) -> True {
        ns(self.lookahead) + u64::from(self.limit.max_cost) * self.spaced_by()
    }
}

impl Plan {
    pub fn of_seed(seed: u64) -> Self {
        match Scenario::of_seed(seed) {
            Scenario::Faults => Self::with_faults(seed),
            scenario => Self::without_faults(seed, scenario),
        }
    }

    fn with_faults(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let count = if rng.u32(0..5) == 0 { 2 } else { 1 };
        let budgets: Vec<BudgetPlan> = (0..count).map(|number| budget(rng, number)).collect();
        let interval = budgets.iter().map(BudgetPlan::spaced_by).min().unwrap_or(SECOND);
        let slowest = budgets.iter().map(BudgetPlan::spaced_by).max().unwrap_or(SECOND);
        let lookahead = budgets.iter().map(|budget| ns(budget.lookahead)).min().unwrap_or(60 * MS);
        let send_window = budgets.iter().map(|budget| ns(budget.limit.send_window)).min().unwrap_or(50 * MS);
        let widest = budgets.iter().map(|budget| budget.window() + budget.promise()).max().unwrap_or(SECOND);
        // In health a round trip is short beside what it must fit into.
        let longest = (lookahead / 16).min(send_window / 8).min(4 * MS);
        let most = rng.u64(longest / 8..=longest);
        let network = NetworkPlan { least: most / 4, most, to_vendor: rng.u64(0..20 * MS) };
        let store = StorePlan {
            transaction: rng.u64(30 * US..=(interval / 8).clamp(31 * US, 300 * US)),
            asynchronous: rng.u32(0..4) > 0,
            ppm: rng.i64(-450..=450),
        };
        let processes = if rng.u32(0..4) == 0 { rng.usize(8..=24) } else { rng.usize(1..=8) };
        let parts = parts(rng, &budgets, processes);
        let rtt_max = if ns(budgets[0].limit.send_window) > SECOND { ms(1900) } else { ms(25) };

        let chaos = (2500 * interval).clamp(25 * SECOND, 150 * SECOND).max(2 * widest);
        let mut kinds = BTreeSet::new();
        let wanted = rng.usize(3..=6);
        while kinds.len() < wanted {
            // More of those that make the store forget: the fence is the last thing between them and the vendor.
            let forgets = rng.u32(0..6) == 0;
            kinds.insert(if forgets { pick(rng, &[Kind::Crash, Kind::Promotion]) } else { pick(rng, &Kind::ALL) });
        }
        // Only here does an answer fit that comes after its call's end.
        if rtt_max > ms(1000) && rng.bool() {
            kinds.insert(Kind::StalledOnAnswer);
        }
        let mut faults = Vec::new();
        for kind in kinds {
            for _ in 0..rng.usize(1..=kind.most()) {
                faults.push((rng.u64(2 * SECOND..chaos), kind));
            }
        }
        faults.sort_by_key(|(at, kind)| (*at, *kind));
        let mut heals = chaos;
        // An hour in which nobody calls: whatever comes after it comes an hour later.
        if let Some(place) = faults.iter().position(|(_, kind)| *kind == Kind::IdleHour) {
            faults[place + 1..].iter_mut().for_each(|(at, _)| *at += crate::faults::IDLE);
            heals += crate::faults::IDLE;
        }
        // The nap, then twenty slots at the least.
        let measures = heals + 8 * SECOND + 2 * slowest;
        let ends = measures + (500 * interval).clamp(10 * SECOND, 60 * SECOND).max(40 * slowest);
        Self {
            seed,
            scenario: Scenario::Faults,
            budgets,
            parts,
            network,
            store,
            rtt_max,
            faults,
            heals,
            measures,
            ends,
        }
    }

    fn without_faults(seed: u64, scenario: Scenario) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (units, processes, callers, transaction, lasts) = match scenario {
            Scenario::SlowStore => (1100, 24, 20, 3 * MS, 8),
            Scenario::TenThousand => (11_200, 12, 200, 100 * US, 3),
            Scenario::Queue => (18, 60, 1, 100 * US, 90),
            Scenario::TopClass => (18, 10, 3, 100 * US, 60),
            _ => (18, 60, 3, 100 * US, 60),
        };
        let limit = Limit { units, window: ms(1000), send_window: ms(50), arrival_jitter: ms(50), max_cost: 1 };
        let class = |name: &str, priority, floor_ppm| ClassPlan {
            name: name.into(),
            priority,
            floor_ppm,
            stays_below: scenario == Scenario::TopClass && priority == 0,
        };
        let classes = match scenario {
            // The last two get what they are due and no more, and so claim it all the time.
            Scenario::TopClass => {
                vec![class("c0", 0, 200_000), class("c1", 1, 0), class("c2", 2, 500_000), class("c3", 2, 200_000)]
            }
            _ => vec![class("c0", 0, 0)],
        };
        let budget = BudgetPlan { name: "b0".into(), limit, lookahead: ms(60), classes };
        let part = |number: usize, rng: &mut Rng| {
            // Each process has one lane; the first alone has one of the class that goes first.
            let class = if scenario == Scenario::TopClass { number.min(1 + number % 3) } else { 0 };
            let ClassPlan { stays_below, floor_ppm, .. } = budget.classes[class];
            let lane = if stays_below {
                let rest = budget.spaced_by() * 1_000_000 / u64::from(floor_ppm.unsigned_abs());
                LanePlan { budget: 0, class, callers: 1, rest }
            } else {
                LanePlan { budget: 0, class, callers, rest: 0 }
            };
            Part { lanes: vec![lane], ppm: rng.i64(-400..=400), offset_ns: offset(rng) }
        };
        let parts = (0..processes).map(|number| part(number, &mut rng)).collect();
        Self {
            seed,
            scenario,
            budgets: vec![budget],
            parts,
            network: NetworkPlan { least: 100 * US, most: 500 * US, to_vendor: MS },
            store: StorePlan { transaction, asynchronous: true, ppm: rng.i64(-450..=450) },
            rtt_max: ms(25),
            faults: Vec::new(),
            heals: SECOND,
            measures: 2 * SECOND,
            ends: (2 + lasts) * SECOND,
        }
    }
}

fn offset(rng: &mut Rng) -> i128 {
    // Since its boot: up to a year.
    i128::from(rng.u64(100 * SECOND..365 * 86_400 * SECOND))
}

fn budget(rng: &mut Rng, number: usize) -> BudgetPlan {
    let (units, window, most_lookahead) = match rng.u32(0..22) {
        0..4 => (1, 1000, 60),
        4..6 => (3, 1000, 200),
        6..12 => (18, 1000, 200),
        12..14 => (20, 2000, 1000),
        14..17 => (100, 1000, 200),
        17..20 => (30, 10_000, 1000),
        20 => (500, 1000, 100),
        _ => (4, 250, 60),
    };
    let send_window = ms(pick(rng, &[20, 50, 50, 100, 200]));
    // One that a call of more than a second fits into.
    let send_window = if window >= 10_000 { ms(2000) } else { send_window };
    let limit = Limit {
        units,
        window: ms(window),
        send_window,
        arrival_jitter: ms(pick(rng, &[0, 5, 50, 50])),
        max_cost: pick(rng, &[1, 1, 1, 2, 3, 5]).min(units),
    };
    let lookahead = ms(pick(rng, &[20, 60, 60, 200, 1000]).min(most_lookahead));
    let classes = rng.usize(1..=4);
    let mut floors_left = 1_000_000;
    let classes = (0..classes)
        .map(|class| {
            let floor_ppm = pick(rng, &[0, 0, 50_000, 100_000, 200_000, 300_000]).min(floors_left);
            floors_left -= floor_ppm;
            let name = format!("c{class}").into();
            ClassPlan { name, priority: rng.i32(0..=2), floor_ppm, stays_below: false }
        })
        .collect();
    BudgetPlan { name: format!("b{number}").into(), limit, lookahead, classes }
}

fn parts(rng: &mut Rng, budgets: &[BudgetPlan], processes: usize) -> Vec<Part> {
    let every = rng.bool();
    let mut lanes: Vec<Vec<(usize, usize)>> = vec![Vec::new(); processes];
    for (budget, plan) in budgets.iter().enumerate() {
        for class in 0..plan.classes.len() {
            // Each class lives somewhere; in half of the seeds everywhere.
            let home = rng.usize(0..processes);
            for (process, lanes) in lanes.iter_mut().enumerate() {
                if every || process == home || rng.u32(0..3) == 0 {
                    lanes.push((budget, class));
                }
            }
        }
    }
    let in_all = |key: (usize, usize)| lanes.iter().flatten().filter(|other| **other == key).count() as u64;
    lanes
        .iter()
        .map(|own| {
            let lanes = own
                .iter()
                .map(|key| {
                    let plan = &budgets[key.0];
                    // As many as have a slot, or are on the way to one, at any time; and some more who wait.
                    let busy = (ns(plan.lookahead) + 60 * MS) / plan.spaced_by() / in_all(*key);
                    let callers = 2 + 2 * usize::try_from(busy).unwrap_or(0) + rng.usize(0..3);
                    let rest = if rng.u32(0..3) == 0 { plan.spaced_by() * rng.u64(2..20) } else { 0 };
                    LanePlan { budget: key.0, class: key.1, callers, rest }
                })
                .collect();
            Part { lanes, ppm: rng.i64(-400..=400), offset_ns: offset(rng) }
        })
        .collect()
}
