use clap::Args;

use super::Target;
use crate::cli::bound;
use crate::cli::command_error::CommandError;
use crate::cli::describe::rate;
use crate::cli::duration::{friendly, parse_us};
use crate::cli::output::short;
use crate::config::nearest::nearest;
use crate::store::admin::{self, Settings};
use crate::store::operation::Operation;
use crate::store::status::{self, Budget};

/// Create a budget or change its settings; the interval is computed
///
/// A new budget needs --limit and --window. Of an existing one, what is not
/// given keeps its present value; an interval that was chosen with --interval
/// is kept for as long as it is safe.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example: call-budget budget set kis-real --limit 18 --window 1s")]
pub struct Set {
    #[command(flatten)]
    target: Target,
    /// Units that the vendor counts in any window
    #[arg(long, value_name = "UNITS", allow_negative_numbers = true)]
    limit: Option<i32>,
    /// The vendor's window
    #[arg(long, value_name = "DURATION", value_parser = parse_us, allow_hyphen_values = true)]
    window: Option<i64>,
    /// How long after its slot a call may leave (a new budget: 50ms)
    #[arg(long, value_name = "DURATION", value_parser = parse_us, allow_hyphen_values = true)]
    send_window: Option<i64>,
    /// Spread of the times from leaving to arriving (a new budget: 50ms)
    #[arg(long, value_name = "DURATION", value_parser = parse_us, allow_hyphen_values = true)]
    arrival_jitter: Option<i64>,
    /// The largest cost of one call (a new budget: 1)
    #[arg(long, value_name = "UNITS", allow_negative_numbers = true)]
    max_cost: Option<i32>,
    /// How far ahead a slot may be promised (a new budget: 60ms)
    #[arg(long, value_name = "DURATION", value_parser = parse_us, allow_hyphen_values = true)]
    lookahead: Option<i64>,
    /// Between two slots: the computed one or slower
    #[arg(long, value_name = "DURATION", value_parser = parse_us, allow_hyphen_values = true)]
    interval: Option<i64>,
}

impl Set {
    pub async fn run(self) -> Result<(), CommandError> {
        let mut connected = self.target.database.connect().await?;
        // What is kept was read before the row's lock was taken: if somebody changed it in between, the version tells.
        for _ in 0..ATTEMPTS {
            let operation = connected.begin().await?;
            let present = status::budgets(&operation, Some(&self.target.name)).await?.pop();
            let seen = present.as_ref().map_or(0, |budget| budget.version);
            let settings = self.settings(&operation, present.as_ref().map(|budget| &budget.settings)).await?;
            if let Some(budget) = &present {
                self.refuse_over_recent_slots(budget, &settings)?;
            }
            let present = present.map(|budget| budget.settings);
            let version = admin::set(&operation, &self.target.name, &settings)
                .await
                .map_err(|error| CommandError::of_setting(&format!("budget {:?}", short(&self.target.name)), error))?;
            if version == seen + 1 {
                let sentence = self.sentence(present.as_ref(), &settings);
                return self.target.done(operation, &sentence).await;
            }
        }
        Err(CommandError::failed(format!("budget {:?} is being changed by somebody else", self.target.name))
            .hint("nothing was changed here, try again"))
    }

    /// The flags over what is there over the defaults.
    async fn settings(&self, operation: &Operation<'_>, present: Option<&Settings>) -> Result<Settings, CommandError> {
        let (Some(limit), Some(window_us)) =
            (self.limit.or(present.map(|p| p.limit)), self.window.or(present.map(|p| p.window_us)))
        else {
            return Err(self.incomplete(operation).await?);
        };
        let mut settings = Settings {
            limit,
            window_us,
            send_window_us: self.send_window.or(present.map(|p| p.send_window_us)).unwrap_or(50_000),
            arrival_jitter_us: self.arrival_jitter.or(present.map(|p| p.arrival_jitter_us)).unwrap_or(50_000),
            max_cost: self.max_cost.or(present.map(|p| p.max_cost)).unwrap_or(1),
            lookahead_us: self.lookahead.or(present.map(|p| p.lookahead_us)).unwrap_or(60_000),
            interval_us: 0,
        };
        if limit > 0 && settings.max_cost > limit {
            let message = format!(
                "a largest cost of {} is over the limit of {limit} of budget {:?}",
                settings.max_cost, self.target.name
            );
            return Err(CommandError::usage(message).hint("lower --max-cost or raise --limit"));
        }
        // No safe interval: one of the settings is out of its range, and the schema says which before it looks at this.
        let safe = bound::safe_interval_us(&settings).unwrap_or(1);
        let chosen = present.filter(|p| bound::safe_interval_us(p) < Some(p.interval_us)).map(|p| p.interval_us);
        settings.interval_us = self.interval.unwrap_or_else(|| chosen.unwrap_or(safe).max(safe));
        if self.interval.is_some() && limit > 0 && settings.max_cost > 0 && !bound::is_safe(&settings) {
            return Err(self.unsafe_interval(&settings, safe));
        }
        Ok(settings)
    }

    async fn incomplete(&self, operation: &Operation<'_>) -> Result<CommandError, CommandError> {
        let name = &self.target.name;
        let error =
            CommandError::usage(format!("there is no budget {name:?} yet, and a new one needs --limit and --window"));
        let known = status::budgets(operation, None).await?;
        Ok(match nearest(name, known.iter().map(|budget| budget.name.as_str())) {
            Some(meant) => error.hint(format!("give both, or did you mean {meant:?}?")),
            None => error.hint("give both, for example --limit 18 --window 1s"),
        })
    }

    /// Slots that were taken under the old settings share windows with those to come. Where a larger cost may follow them, or
    /// they may still leave after the new send window, the new bound says nothing of both together.
    fn refuse_over_recent_slots(&self, budget: &Budget, settings: &Settings) -> Result<(), CommandError> {
        let Budget { name, settings: present, paused, last_slot_age_us, .. } = budget;
        let narrows = settings.max_cost > present.max_cost || settings.send_window_us < present.send_window_us;
        let passed = settings.window_us.max(present.window_us) + present.send_window_us + present.arrival_jitter_us;
        if !narrows || last_slot_age_us.is_none_or(|age_us| *paused && age_us > passed) {
            return Ok(());
        }
        Err(CommandError::failed(format!(
            "a larger --max-cost or a shorter --send-window would meet calls of budget {name:?} granted under the old one"
        ))
        .hint(format!("pause it, wait {} after its last call, set it, and resume it", friendly(passed))))
    }

    fn unsafe_interval(&self, settings: &Settings, safe: i64) -> CommandError {
        let Settings { limit, max_cost, interval_us, .. } = *settings;
        let room = i64::from(limit - max_cost + 1).saturating_mul(interval_us);
        let spread = settings.window_us + settings.send_window_us + settings.arrival_jitter_us;
        CommandError::usage(format!(
            "an interval of {} is unsafe for budget {:?}, since (limit {limit} - largest cost {max_cost} + 1) * interval = {} \
             must be more than window + send window + arrival jitter = {} and 0.1 % for clocks",
            friendly(interval_us),
            self.target.name,
            friendly(room),
            friendly(spread),
        ))
        .hint(format!("{} or longer is safe", friendly(safe)))
    }

    fn sentence(&self, present: Option<&Settings>, settings: &Settings) -> String {
        let name = &self.target.name;
        let what = format!(
            "{} per {}, a slot every {} ({})",
            settings.limit,
            friendly(settings.window_us),
            friendly(settings.interval_us),
            rate(settings.interval_us)
        );
        let chosen = match bound::safe_interval_us(settings) {
            Some(safe) if safe < settings.interval_us => format!("\n{} would be safe", friendly(safe)),
            _ => String::new(),
        };
        match present {
            None => format!(
                "budget {name:?} created: {what}{chosen}\nnext: \"call-budget class set {name} CLASS --priority 0 --floor 0.1\""
            ),
            Some(present) => {
                let longest = |of: fn(&Settings) -> i64| of(present).max(of(settings));
                let in_force = longest(|s| s.window_us) + longest(|s| s.lookahead_us) + longest(|s| s.send_window_us);
                format!("budget {name:?} set: {what}{chosen}\nfully in force after {}", friendly(in_force))
            }
        }
    }
}

/// Each attempt lost means that somebody else's change went through.
const ATTEMPTS: u32 = 5;
