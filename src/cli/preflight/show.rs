//! The lines as a person and as a program reads them.

use serde::Serialize;

use super::judge::{Line, Verdict, overall};
use crate::cli::output::width;

/// Every line there is, in the order of the table.
pub const NAMES: [&str; 40] = [
    "dns",
    "connect",
    "tls",
    "login",
    "fresh_connection",
    "pooler",
    "schema",
    "rights",
    "role",
    "table_rights",
    "marker",
    "primary",
    "timeline",
    "server",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "isolation",
    "statement_timeout",
    "lock_timeout",
    "idle_timeout",
    "check_interval",
    "keepalives",
    "connections",
    "role_connections",
    "database_connections",
    "budget",
    "interval",
    "classes",
    "budget_state",
    "send_window",
    "lookahead",
    "round_trip",
    "lock_waits",
    "lock_holders",
    "oldest_snapshot",
    "idle_in_transaction",
    "clock_offset",
    "clock_steps",
    "arrival_jitter",
];

const COLUMNS: usize = 80;

#[derive(Serialize)]
pub struct Document<'a> {
    verdict: Verdict,
    lines: &'a [Line],
}

/// For programs.
pub fn document(lines: &[Line]) -> Document<'_> {
    Document { verdict: overall(lines), lines }
}

/// For people: one line each, and below those that do not pass what they mean.
pub fn text(lines: &[Line], coloured: bool) -> String {
    let widest = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let paint = |verdict: Verdict, text: &str| match coloured {
        true => format!("\x1b[{}m{text}\x1b[0m", colour(verdict)),
        false => text.to_owned(),
    };
    let mut shown: Vec<String> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let word = in_words(line.verdict);
        let gap = " ".repeat("not measured".len() - word.len());
        let verdict = format!("{}{gap}", paint(line.verdict, word));
        let before = widest + "  not measured  ".len();
        let mut pieces = wrapped(&line.shown, COLUMNS - before).into_iter();
        let first = pieces.next().unwrap_or_default();
        shown.push(format!("{:widest$}  {verdict}  {first}", line.name).trim_end().to_owned());
        shown.extend(pieces.map(|piece| format!("{}{piece}", " ".repeat(before))));
        // What goes for several lines in a row is said once.
        let said_next = lines.get(index + 1).is_some_and(|next| next.reason == line.reason);
        if line.verdict != Verdict::Pass && !said_next {
            shown.extend(wrapped(&line.reason, COLUMNS - 4).into_iter().map(|piece| format!("    {piece}")));
        }
    }
    let counts = [Verdict::Pass, Verdict::Warn, Verdict::Fail, Verdict::NotMeasured].map(|verdict| {
        let count = lines.iter().filter(|line| line.verdict == verdict).count();
        (count, in_words(verdict))
    });
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    let verdict = overall(lines);
    let names = match decisive(lines).join(", ") {
        names if names.is_empty() => names,
        names => format!(": {names}"),
    };
    let last = wrapped(&format!("verdict: {}{names} ({counts})", in_words(verdict)), COLUMNS - 4).join("\n    ");
    let last = last.replacen(in_words(verdict), &paint(verdict, in_words(verdict)), 1);
    format!("{}\n\n{last}", shown.join("\n"))
}

/// The lines that brought the verdict. What was not measured comes of a line that failed, where one did.
fn decisive(lines: &[Line]) -> Vec<&'static str> {
    let names = |test: &dyn Fn(&Line) -> bool| -> Vec<&'static str> {
        lines.iter().filter(|line| test(line)).map(|line| line.name).collect()
    };
    let failed = names(&|line| line.verdict == Verdict::Fail);
    match overall(lines) {
        Verdict::Pass => Vec::new(),
        _ if !failed.is_empty() => failed,
        verdict => names(&|line| line.counts_as() == verdict),
    }
}

fn in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
        Verdict::NotMeasured => "not measured",
    }
}

fn colour(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass => 32,
        Verdict::Warn => 33,
        Verdict::Fail | Verdict::NotMeasured => 31,
    }
}

/// The text in pieces of so many columns, broken between words; a longer word stands alone.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match pieces.last_mut() {
            Some(piece) if width(piece) + 1 + width(word) <= columns => {
                piece.push(' ');
                piece.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pass_says_why_below_within_80_columns() {
        let reason =
            "somebody has kept a lock on the schema's tables for 9 s or longer, and no call is granted meanwhile";
        let lines = [
            Line::new("lock_holders", "none").shown("1 in 9 looks").fail(reason),
            Line::new("round_trip", "p99")
                .shown("p50 11.1 ms, p99 12.2 ms, p99.9 13.3 ms; 100.0 % over the bar")
                .pass("in time"),
            Line::new("role", "a client").shown("a client").pass("it can change no setting"),
        ];
        let plain = text(&lines, false);
        let expected = "lock_holders  fail          1 in 9 looks\n    somebody has kept";
        assert!(plain.starts_with(expected), "{plain}");
        assert!(
            plain.contains("role          pass          a client\n\nverdict: fail: lock_holders (2 pass, 1 fail)"),
            "{plain}"
        );
        assert!(plain.lines().all(|line| width(line) <= COLUMNS), "{plain}");
        assert!(!plain.contains('\x1b') && text(&lines, true).contains("\x1b[31mfail\x1b[0m"));
    }

    #[test]
    fn the_last_line_names_what_brought_the_verdict() {
        let of = |lines: &[Line]| text(lines, false).lines().last().unwrap().to_owned();
        let line = |name: &'static str| Line::new(name, "a bar");
        assert_eq!(of(&[line("role").pass("fine")]), "verdict: pass (1 pass)");
        let warned =
            [line("tls").warn("plain"), line("role").pass("fine"), Line::not_asked_for("arrival_jitter", "--url")];
        assert_eq!(of(&warned), "verdict: warn: tls, arrival_jitter (1 pass, 1 warn, 1 not measured)");
        let unmeasured = [line("tls").warn("plain"), Line::not_measured("dns", "why")];
        assert_eq!(of(&unmeasured), "verdict: fail: dns (1 warn, 1 not measured)");
        let failed = [line("connect").fail("refused"), Line::not_measured("dns", "why"), line("login").fail("late")];
        assert_eq!(of(&failed), "verdict: fail: connect, login (2 fail, 1 not measured)");
    }

    #[test]
    fn every_line_has_one_name() {
        let names: std::collections::BTreeSet<_> = NAMES.into_iter().collect();
        assert_eq!(names.len(), NAMES.len());
    }
}
