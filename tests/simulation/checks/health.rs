//! The healthy end of a seed: everybody always wants more, and nothing is wrong any longer.

use std::time::Duration;

use super::Name;
use crate::clock::duration;
use crate::plan::{ClassPlan, Scenario};
use crate::time::{MS, SECOND, True, seconds};
use crate::world::State;

/// Of the slots that were offered while somebody waited, at least so many are granted.
const LEAST_USE: f64 = 0.97;
/// What a class may get beside a better one that wants everything: an appointment is an estimate, and a slot that comes free
/// before those who go first are back is somebody else's. In 10 million sends one pair of 1,557 came to 0.22.
const BEHIND: f64 = 0.25;
/// The first grant comes this soon after healing, and a lookahead with its largest cost later: the nap, since a lane may have
/// slept when it began, and one attempt at the store with its pause.
const RECOVERY: True = 5 * SECOND + 1300 * MS;

impl State {
    /// Judges the healthy end.
    pub fn judge_health(&mut self) {
        let span = self.plan.ends - self.plan.measures;
        for number in 0..self.budgets.len() {
            self.judge_recovery(number);
            self.judge_use(number, span);
            self.judge_classes(number);
            self.judge_lanes(number);
        }
        let (calls, granted) = (self.budgets[0].calls_measured as f64, self.granted(0).1 as f64);
        let most = match self.plan.scenario {
            Scenario::Faults | Scenario::SlowStore | Scenario::Queue | Scenario::TopClass => return,
            Scenario::Sixty => 5.0,
            Scenario::TenThousand => 0.05,
        };
        self.tallies.check(Name::StoreCalls, calls <= most * granted, || {
            format!("{calls} store calls for {granted} slots, more than {most} each")
        });
        self.tallies.most(Name::StoreCalls, calls / granted / most);
    }

    /// Units and slots granted since measuring began.
    fn granted(&self, budget: usize) -> (u64, u64) {
        let measured = &self.budgets[budget].measured;
        (measured.iter().map(|(units, _)| units).sum(), measured.iter().map(|(_, slots)| slots).sum())
    }

    fn judge_recovery(&mut self, number: usize) {
        let one = &self.budgets[number];
        // Whoever rested when everything became well wants nothing yet.
        let wanted = one.wanted.unwrap_or(self.plan.heals);
        let latest = wanted + RECOVERY + one.plan.promise();
        let took = one.recovered.map(|at| seconds(at.saturating_sub(wanted)));
        self.tallies.check(Name::Recovery, one.recovered.is_some_and(|at| at <= latest), || {
            format!("the first grant of budget {number} came {took:?} s after everything was well and wanted")
        });
        self.tallies.most(Name::Recovery, took.unwrap_or(f64::MAX));
    }

    fn judge_use(&mut self, number: usize, span: True) {
        let interval = self.budgets[number].plan.spaced_by();
        let (offered, granted) = (span as f64 / interval as f64, self.granted(number).0);
        let sent = self.budgets[number].sent_measured;
        let used = granted.min(sent) as f64;
        // Slots are promised ahead, so that the ends of the span do not match by a lookahead.
        let max_cost = f64::from(self.budgets[number].plan.limit.max_cost);
        let ahead = self.budgets[number].plan.promise() as f64 / interval as f64 + max_cost;
        let share = used / offered;
        self.tallies.check(Name::Use, used + ahead.min(offered / 20.0).max(1.0) >= LEAST_USE * offered, || {
            format!("of {offered:.1} units that budget {number} offered, {granted} were granted and {sent} sent")
        });
        self.tallies.least(Name::Use, share);
    }

    /// A class with a floor gets it, and a class without one gets nothing while a better one wants everything.
    fn judge_classes(&mut self, number: usize) {
        let one = &self.budgets[number];
        let all = self.granted(number).0 as f64;
        let max_cost = f64::from(one.plan.limit.max_cost);
        let classes = one.plan.classes.clone();
        let measured = one.measured.clone();
        let always_waits = |class: &ClassPlan| !class.stays_below;
        for (class, (units, _)) in classes.iter().zip(&measured).filter(|(class, _)| always_waits(class)) {
            let floor = f64::from(class.floor_ppm) / 1e6;
            let least = floor * all * 0.98 - 2.0 * max_cost - 1.0;
            if floor > 0.0 {
                self.tallies.check(Name::Floors, *units as f64 >= least, || {
                    format!("class {} of budget {number} got {units} of {all} units, its floor is {floor}", class.name)
                });
            }
        }
        for better in classes.iter().filter(|class| always_waits(class)) {
            for (worse, (units, _)) in classes.iter().zip(&measured) {
                if better.priority < worse.priority && worse.floor_ppm == 0 {
                    self.tallies.most(Name::Priority, (*units as f64 - 2.0 * max_cost).max(0.0) / all.max(1.0));
                    self.tallies.check(Name::Priority, *units as f64 <= BEHIND * all + 2.0 * max_cost, || {
                        format!(
                            "class {} of budget {number} got {units} of {all} units although {} goes first",
                            worse.name, better.name
                        )
                    });
                }
            }
        }
    }

    /// Lanes of one class get about the same.
    fn judge_lanes(&mut self, number: usize) {
        for class in 0..self.budgets[number].plan.classes.len() {
            let lanes: Vec<u64> = self
                .processes
                .iter()
                .filter(|process| !process.dead)
                .flat_map(|process| &process.measured)
                .filter(|(lane, _)| (lane.budget, lane.class) == (number, class))
                .map(|(_, units)| *units)
                .collect();
            let (all, count) = (lanes.iter().sum::<u64>() as f64, lanes.len() as f64);
            let mean = all / count;
            // Too few to say anything, or a class that gets only what the others happen to leave.
            if count < 3.0 || mean < 15.0 || all < 0.12 * self.granted(number).0 as f64 {
                continue;
            }
            // One lane alone can be unlucky: what it is told when to come back may fall badly each time.
            let passed_over = lanes.iter().filter(|units| (**units as f64) < 0.4 * mean - 3.0).count() as f64;
            self.tallies.check(Name::Fair, passed_over * 3.0 <= count, || {
                format!("{passed_over} of {count} lanes of class {class} of budget {number} got far less than the mean of {mean:.1}")
            });
            self.tallies.most(Name::Fair, passed_over / count);
        }
    }

    /// A class that goes before all others and stays below its floor waits for what was promised ahead, for the slot under
    /// way, and for one slot of each other class whose floor may be due.
    pub fn judge_wait(&mut self, number: usize, took: Duration) {
        let plan = &self.budgets[number].plan;
        let others = plan.classes.iter().filter(|class| class.floor_ppm > 0 && !class.stays_below).count() as u64;
        // And its question's way there and back, twice where it has an appointment, with a timer each.
        let way = 4 * (self.plan.network.most + self.plan.store.transaction) + 3 * MS;
        let most = plan.lookahead + duration((1 + others) * plan.spaced_by() + way);
        self.tallies.check(Name::TopClass, took <= most, || {
            format!("a class of budget {number} that goes first waited {took:?}, more than {most:?}")
        });
        self.tallies.most(Name::TopClass, took.as_secs_f64() / most.as_secs_f64());
    }
}
