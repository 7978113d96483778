//! A task that gets its slots from the library itself.

use std::time::Duration;

use call_budget::{CallBudget, Options, Settings};

use super::Asked;

pub struct Caller {
    budgets: CallBudget,
    budget: String,
    class: String,
    options: Options,
}

/// Of the settings that the environment names.
pub fn budgets() -> CallBudget {
    let settings = Settings::load().expect("the settings of the run");
    CallBudget::new(&settings).expect("settings that the library takes")
}

impl Caller {
    pub fn new(budgets: CallBudget, budget: &str, class: &str, max_wait_us: u64) -> Self {
        let options = Options { max_wait: Some(Duration::from_micros(max_wait_us)), ..Options::default() };
        Self { budgets, budget: budget.to_owned(), class: class.to_owned(), options }
    }

    pub async fn ask(&mut self) -> Asked {
        match self.budgets.acquire_with(&self.budget, &self.class, self.options).await {
            Ok(permit) => {
                let closes_at = permit.closes_at().expect("the switch is on");
                // Whether it is in time is judged by the moment at which the caller has it.
                drop(permit.start());
                Asked::Leave { until_us: us(closes_at.since_boot()) }
            }
            Err(error) => {
                Asked::Refused { code: error.code().as_str().to_owned(), retry_after_us: error.retry_after().map(us) }
            }
        }
    }
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
