//! What a person sees: a table that is redrawn while the fleet runs, and the verdict.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::figures::{ClassFigures, Figures, Verdict};
use super::plan::PRICE;
use super::stage::Url;
use crate::cli::output;

/// Between two tables where they cannot be redrawn.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// The live table, on stderr: stdout is for the result.
pub struct View {
    seconds: u64,
    shown: bool,
    terminal: bool,
    lines: usize,
    last_plain: Duration,
}

impl View {
    pub fn new(seconds: u64, shown: bool) -> Self {
        Self { seconds, shown, terminal: std::io::stderr().is_terminal(), lines: 0, last_plain: Duration::ZERO }
    }

    pub fn show(&mut self, figures: &Figures, elapsed: Duration) {
        if !self.shown {
            return;
        }
        if !self.terminal {
            if elapsed < self.last_plain + PLAIN_EVERY {
                return;
            }
            self.last_plain = elapsed;
        }
        let head = format!(
            "{:>3} of {} s   {:>4} calls   {:.2}/s   worst window {} of {}",
            elapsed.as_secs(),
            self.seconds,
            figures.sends,
            figures.sends_per_s,
            figures.worst_window,
            figures.limit
        );
        let text = format!("{head}\n{}\n", classes(figures));
        let mut stderr = std::io::stderr().lock();
        if self.terminal && self.lines > 0 {
            // Up to the first line of the last table, and clear from there.
            let _ = write!(stderr, "\x1b[{}A\x1b[J", self.lines);
        }
        let _ = write!(stderr, "{text}");
        self.lines = text.lines().count();
    }

    /// The last table is wiped: the summary says it again.
    pub fn end(&mut self) {
        if self.shown && self.terminal && self.lines > 0 {
            let _ = write!(std::io::stderr(), "\x1b[{}A\x1b[J", self.lines);
        }
    }
}

/// Where to look from another terminal, as lines to type there.
pub fn places(database: Option<Url<'_>>, vendor: &str) -> String {
    let mut lines = vec![
        format!("the vendor's own count is at http://{vendor}/mock/report; in another terminal:"),
        format!("  export VENDOR_URL='http://{vendor}{PRICE}'"),
    ];
    match database {
        None => return lines.join("\n"),
        // It may hold a password.
        Some(Url::Given) => lines.push("  (DATABASE_URL is yours)".to_owned()),
        Some(Url::ThrowAway(url)) => lines.push(format!("  export DATABASE_URL='{url}'")),
    }
    // As it was called, which need not be on the path.
    let program = std::env::args().next().unwrap_or_else(|| "call-budget".to_owned());
    lines.push("  export CALL_BUDGET_ENABLED=true".to_owned());
    lines.extend(["status --watch", "serve"].map(|command| format!("  {program} {command}")));
    lines.join("\n")
}

fn classes(figures: &Figures) -> String {
    let head = ["class", "priority", "demand/s", "calls", "calls/s", "share", "floor", "wait p50", "wait p99"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let ms = |wait: Option<f64>| wait.map_or("-".into(), |wait| format!("{wait:.0} ms"));
    for class in &figures.classes {
        let ClassFigures { name, priority, floor, demand, share, sends, wait_p50_ms, wait_p99_ms } = class;
        rows.push(vec![
            (*name).to_owned(),
            priority.to_string(),
            demand.map_or("endless".into(), |demand| format!("{demand}")),
            sends.to_string(),
            format!("{:.2}", *sends as f64 / figures.seconds.max(1.0)),
            format!("{:.1} %", share * 100.0),
            format!("{:.0} %", floor * 100.0),
            ms(*wait_p50_ms),
            ms(*wait_p99_ms),
        ]);
    }
    output::table(&rows)
}

/// The result in words.
pub fn summary(figures: &Figures, without: bool) -> String {
    let Figures { limit, window_ms, interval_us, processes, sends, sends_per_s, worst_window, .. } = figures;
    let mut lines = vec![
        if without {
            format!(
                "{processes} processes, each at its own interval, together exactly {limit} calls per {window_ms} ms"
            )
        } else {
            format!("{processes} processes, one key, {limit} calls per {window_ms} ms: one slot every {interval_us} us")
        },
        String::new(),
        classes(figures),
        String::new(),
        format!("{sends} calls in {:.1} s ({sends_per_s:.2}/s) from {} processes", figures.seconds, figures.pids.len()),
        format!(
            "worst window {worst_window} of {limit}, {} windows over the limit, {} calls late, {} refused by the vendor",
            figures.over_limit_windows, figures.late, figures.refused_by_vendor
        ),
    ];
    if !without {
        lines.push(format!(
            "{:.1} % of the offered slots used, {:.2} store calls per call",
            figures.used * 100.0,
            figures.store_calls_per_send
        ));
        let settings = figures.settings.iter().map(|(name, value)| format!("{name} {value}"));
        lines.push(format!("PostgreSQL: {}", settings.collect::<Vec<_>>().join(", ")));
    }
    if !figures.refusals.is_empty() {
        let refusals = figures.refusals.iter().map(|(code, count)| format!("{count} x {code}"));
        lines.push(format!("not sent: {}", refusals.collect::<Vec<_>>().join(", ")));
    }
    lines.push(String::new());
    let because = figures.because.join("; ");
    lines.push(match figures.verdict {
        Verdict::Pass => "verdict: pass".into(),
        Verdict::Fail => format!("verdict: fail: {because}"),
        Verdict::Inconclusive => format!(
            "verdict: inconclusive: {because}, but the machine stood still for {:.0} ms",
            figures.worst_stall_ms
        ),
    });
    lines.join("\n")
}
