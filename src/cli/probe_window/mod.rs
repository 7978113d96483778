//! `call-budget probe-window`: finds out how a vendor's window runs, by calling it outside of the budget.

mod caller;

use std::io::{IsTerminal, Write, stderr, stdin};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;

use self::caller::{Caller, Place, Said};
use super::Exit;
use super::command_error::CommandError;
use super::duration::{friendly, parse_us, rough};
use super::headers::Headers;
use super::output::{print, print_json};
use super::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::policy::spacing::Limit;
use crate::policy::window_probe::{Belief, Counts, IN_FLIGHT, Kind, REFUSALS, Reason, Step, Verdict, WindowProbe};
use crate::vendor::Vendor;

/// Find out how a vendor's window runs: fixed, first-call or sliding
///
/// It calls the vendor outside of the budget, whatever call_budget_enabled
/// says, and up to the limit: everybody else who shares the key must be quiet
/// meanwhile. Run it at night, or pause the budget first (budget drain). It
/// says how many calls it sends at most and asks before the first. The call
/// must be one that succeeds and changes nothing, such as a price.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Example: call-budget probe-window https://api.example.com/v1/price \\
           --limit 18 --window 1s --header-file key.txt

Exit codes: 0 told, 1 the vendor cannot be called, 2 usage, 4 undecided"
)]
pub struct ProbeWindow {
    /// What to call, http or https
    url: String,
    /// Calls in a window, as far as is known: 2 to 1000
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(2..=1000))]
    limit: u32,
    /// How long the window is, as far as is known: 100ms to 1h
    #[arg(long, value_name = "DURATION", value_parser = window)]
    window: Duration,
    #[command(flatten)]
    headers: Headers,
    /// The method; calls have no body
    #[arg(long, default_value = "GET")]
    method: String,
    /// The vendor table that knows "too many", such as kis; else status 429
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came out, under the names of `--json`.
#[derive(Serialize)]
struct Outcome {
    /// fixed, first-call or sliding; none where it is undecided.
    kind: Option<&'static str>,
    undecided: Option<String>,
    limit: u32,
    window_us: u64,
    trials: u32,
    calls: u32,
    refused: u32,
    most_calls: u32,
    most_refused: u32,
    slowest_answer_us: u64,
    /// Of each kind: the refusals that it leaves unexplained; none where it would not have let through what was.
    unexplained: Vec<Unexplained>,
    safe_interval_us: Option<u64>,
}

#[derive(Serialize)]
struct Unexplained {
    kind: &'static str,
    refusals: Option<u32>,
}

impl ProbeWindow {
    pub async fn run(self) -> Result<Exit, CommandError> {
        let place = Place::parse(&self.url)?;
        let headers = self.headers.read()?;
        let vendor = self.vendor.as_deref().map(table).transpose()?;
        let caller = Caller::new(place, &self.method, headers, vendor)?;
        let belief = Belief { limit: self.limit, window: self.window };
        self.ask(&caller, belief).await?;
        tokio::select! {
            outcome = self.probe(caller, belief) => outcome,
            signal = super::interrupted() => Err(CommandError::failed(format!("stopped by {signal}, nothing is told"))),
        }
    }

    /// Says what is going to happen, and lets a person say no.
    async fn ask(&self, caller: &Caller, belief: Belief) -> Result<(), CommandError> {
        let plan = format!(
            "sends at most {} calls to {} within about {}, most probes half of that, of which at most {REFUSALS} are \
             refused and mostly 3 to 8;\nit does not obey the budget: whoever shares the key must be quiet meanwhile",
            belief.most_calls(),
            caller.place(),
            rough(micros(belief.longest())),
        );
        if self.yes {
            eprintln!("{plan}");
            return Ok(());
        }
        if !stdin().is_terminal() {
            return Err(CommandError::usage(format!(
                "a probe sends up to {} calls to the vendor and there is no terminal to ask at",
                belief.most_calls()
            ))
            .hint("add --yes where everybody else who shares the key is quiet"));
        }
        eprint!("{plan}\ngo on? [y/N] ");
        let _ = stderr().flush();
        let answer = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            stdin().read_line(&mut line).map(|_| line)
        });
        match answer.await {
            Ok(Ok(line)) if ["y", "yes"].contains(&line.trim().to_lowercase().as_str()) => Ok(()),
            _ => Err(CommandError::failed("nothing was sent")),
        }
    }

    async fn probe(&self, caller: Caller, belief: Belief) -> Result<Exit, CommandError> {
        caller.warm_up(IN_FLIGHT).await.map_err(|why| unreachable(&caller, &why))?;
        // A window in which nobody has called.
        SystemClock.sleep_until(SystemClock.now() + belief.window).await;
        let mut probe = WindowProbe::new(belief, SystemClock.now());
        let progress = Progress::new();
        let mut calls = JoinSet::new();
        let verdict = loop {
            let Counts { trials, calls: sent, refused, .. } = probe.counts();
            progress.say(&format!("trial {}, {sent} calls, {refused} refused", trials + 1));
            let send_at = match probe.next(SystemClock.now()) {
                Step::Done(verdict) => break verdict,
                Step::Await => None,
                Step::Send(at) => Some(at),
            };
            let due = async {
                match send_at {
                    Some(at) => SystemClock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(answer) = calls.join_next() => {
                    let (id, at, said) = answer.map_err(|error| CommandError::failed(format!("a call ended: {error}")))?;
                    match said {
                        Said::Admitted => probe.answered(id, at, false),
                        Said::TooMany => probe.answered(id, at, true),
                        Said::Else(why) => return Err(unreachable(&caller, &why)),
                    }
                }
                () = due => {
                    let connection = caller.connection().await.map_err(|why| unreachable(&caller, &why))?;
                    let id = probe.sent(SystemClock.now());
                    let caller = caller.clone();
                    calls.spawn(async move {
                        let said = caller.call(connection).await;
                        (id, SystemClock.now(), said)
                    });
                }
            }
        };
        progress.clear();
        let outcome = Outcome::of(belief, &probe, verdict);
        match self.json {
            true => print_json(&outcome),
            false => print(&outcome.in_words()),
        }
        Ok(if outcome.kind.is_some() { Exit::Done } else { Exit::Inconclusive })
    }
}

impl Outcome {
    fn of(belief: Belief, probe: &WindowProbe, verdict: Verdict) -> Self {
        let Counts { trials, calls, refused, slowest } = probe.counts();
        let (kind, undecided) = match verdict {
            Verdict::Decided(kind) => (Some(kind.as_str()), None),
            Verdict::Undecided(reason) => (None, Some(sentence(reason, belief))),
        };
        let limit = Limit {
            units: belief.limit,
            window: belief.window,
            send_window: Duration::from_millis(50),
            arrival_jitter: Duration::from_millis(50),
            max_cost: 1,
        };
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let unexplained = Kind::ALL.map(|kind| Unexplained { kind: kind.as_str(), refusals: probe.unexplained(kind) });
        Self {
            kind,
            undecided,
            limit: belief.limit,
            window_us: us(belief.window),
            trials,
            calls,
            refused,
            most_calls: belief.most_calls(),
            most_refused: REFUSALS,
            slowest_answer_us: us(slowest),
            unexplained: unexplained.into(),
            safe_interval_us: limit.interval().ok().map(us),
        }
    }

    fn in_words(&self) -> String {
        let mut lines = vec![match (self.kind, &self.undecided) {
            (Some(kind), _) => format!("the window is {kind}"),
            (None, why) => format!("undecided: {}", why.as_deref().unwrap_or_default()),
        }];
        lines.push(format!(
            "{} trials, {} calls, {} refused, the slowest answer after {}",
            self.trials,
            self.calls,
            self.refused,
            rough(i64::try_from(self.slowest_answer_us).unwrap_or(i64::MAX))
        ));
        lines.extend(self.unexplained.iter().map(|of| match of.refusals {
            None => format!("  {:<10}  would have refused what was let through", of.kind),
            Some(0) => format!("  {:<10}  explains every answer", of.kind),
            Some(count) => format!("  {:<10}  leaves {count} refusals unexplained", of.kind),
        }));
        let window = friendly(i64::try_from(self.window_us).unwrap_or(i64::MAX));
        if let Some(interval) = self.safe_interval_us.filter(|_| self.kind.is_some()) {
            lines.push(format!(
                "safe: call-budget budget set NAME --limit {} --window \"{window}\"\nwhich is one slot every {}: that keeps \
                 every window within the limit, of whatever kind",
                self.limit,
                friendly(i64::try_from(interval).unwrap_or(i64::MAX))
            ));
        }
        lines.join("\n")
    }
}

fn sentence(reason: Reason, belief: Belief) -> String {
    let limit = belief.limit;
    match reason {
        Reason::RefusedAfterQuiet => {
            "a call was refused although nothing had been sent for a window: somebody else calls with this key, or the \
             vendor punishes those whom it has refused"
                .to_owned()
        }
        Reason::OtherLimit { at_least, at_most: None } => {
            format!("the limit is higher than {limit}, {at_least} at least: try again with another --limit")
        }
        Reason::OtherLimit { at_least, at_most: Some(most) } if at_least == most => {
            format!("the answers fit a limit of {most}, not {limit}: try again with --limit {most}")
        }
        Reason::OtherLimit { at_least, at_most: Some(most) } => {
            format!("the answers fit a limit of {at_least} to {most}, not {limit}: try again with another --limit")
        }
        Reason::Contradiction => {
            "no kind of window explains the answers: somebody else calls with this key, the vendor refuses at random, or it \
             counts in another way"
                .to_owned()
        }
        Reason::TooLittle { slowest } => format!(
            "nothing contradicts, but it is not enough: the slowest answer took {} of a window of {}; try again from nearer \
             the vendor, or when it is quicker",
            rough(micros(slowest)),
            friendly(micros(belief.window))
        ),
    }
}

fn table(name: &str) -> Result<Vendor, CommandError> {
    let known = || Vendor::names().collect::<Vec<_>>().join(", ");
    Vendor::named(name).ok_or_else(|| {
        CommandError::usage(format!("there is no vendor table {name:?}")).hint(format!("one of {}", known()))
    })
}

fn unreachable(caller: &Caller, why: &str) -> CommandError {
    CommandError::failed(format!("{} cannot be probed: {why}", caller.place()))
}

fn window(text: &str) -> Result<Duration, String> {
    let us = parse_us(text)?;
    if !(100_000..=3_600_000_000).contains(&us) {
        return Err("write a duration from 100ms to 1h".to_owned());
    }
    Ok(Duration::from_micros(us.unsigned_abs()))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
