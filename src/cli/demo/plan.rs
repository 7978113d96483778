//! Who calls how much: the four classes that share one key, and how they are spread over the processes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::spacing::Limit;

pub const BUDGET: &str = "kis-real";

/// What the vendor counts. The figures are KIS's; everything else in the demo is reckoned from them.
pub const LIMIT: Limit = Limit {
    units: 18,
    window: Duration::from_secs(1),
    send_window: Duration::from_millis(50),
    arrival_jitter: Duration::from_millis(50),
    max_cost: 1,
};
pub const LOOKAHEAD: Duration = Duration::from_millis(60);

/// A call that changes nothing at the vendor.
pub const PRICE: &str = "/uapi/domestic-stock/v1/quotations/inquire-price";

/// One class of the fleet.
pub struct Class {
    pub name: &'static str,
    pub priority: i32,
    pub floor: f64,
    pub demand: Demand,
    pub request: Request,
}

/// How a class's calls come up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Demand {
    /// At random, so many a second on average.
    Poisson(f64),
    /// Evenly, so many a second.
    Even(f64),
    /// Without end: so many callers, each with its next call as soon as the last is answered.
    Endless(usize),
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub tr_id: String,
}

/// What one process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub class: String,
    pub demand: Demand,
    pub request: Request,
}

pub fn classes() -> [Class; 4] {
    let request = |method: &str, call: &str, tr_id: &str| Request {
        method: method.into(),
        path: call.into(),
        tr_id: tr_id.into(),
    };
    let price = || request("GET", PRICE, "FHKST01010100");
    [
        Class {
            name: "order",
            priority: 0,
            floor: 0.10,
            demand: Demand::Poisson(2.0),
            request: request("POST", "/uapi/domestic-stock/v1/trading/order-cash", "TTTC0012U"),
        },
        Class {
            name: "minute",
            priority: 1,
            floor: 0.40,
            demand: Demand::Even(12.0),
            request: request("GET", "/uapi/domestic-stock/v1/quotations/inquire-time-itemchartprice", "FHKST03010200"),
        },
        Class { name: "index", priority: 2, floor: 0.20, demand: Demand::Even(6.0), request: price() },
        Class { name: "eod", priority: 3, floor: 0.10, demand: Demand::Endless(4), request: price() },
    ]
}

/// The tasks of each process: with fewer processes than classes, some do several; with more, a class's demand is shared.
pub fn spread(processes: usize) -> Vec<Vec<Task>> {
    let classes = classes();
    let mut fleet = vec![Vec::new(); processes];
    for (index, class) in classes.iter().enumerate() {
        let members: Vec<usize> = if processes <= classes.len() {
            vec![index % processes]
        } else {
            (index..processes).step_by(classes.len()).collect()
        };
        let share = members.len() as f64;
        let demand = match class.demand {
            Demand::Poisson(per_s) => Demand::Poisson(per_s / share),
            Demand::Even(per_s) => Demand::Even(per_s / share),
            endless @ Demand::Endless(_) => endless,
        };
        for member in members {
            fleet[member].push(Task { class: class.name.into(), demand, request: class.request.clone() });
        }
    }
    fleet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_whole_demand_however_many_processes_there_are() {
        for processes in [1, 2, 3, 4, 5, 8, 11] {
            let fleet = spread(processes);
            assert_eq!(fleet.len(), processes);
            assert!(fleet.iter().all(|tasks| !tasks.is_empty()), "{processes}");
            for class in classes() {
                let demands: Vec<Demand> =
                    fleet.iter().flatten().filter(|task| task.class == class.name).map(|task| task.demand).collect();
                let per_s: f64 = demands
                    .iter()
                    .map(|demand| match demand {
                        Demand::Poisson(per_s) | Demand::Even(per_s) => *per_s,
                        Demand::Endless(_) => 0.0,
                    })
                    .sum();
                let whole = match class.demand {
                    Demand::Poisson(per_s) | Demand::Even(per_s) => per_s,
                    Demand::Endless(_) => 0.0,
                };
                assert!((per_s - whole).abs() < 1e-9 && !demands.is_empty(), "{processes} {}", class.name);
            }
        }
    }
}
