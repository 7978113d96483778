//! The way to the store and the way to the vendor: times, encryption, clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Line, Times, in_ms, in_words, percent};
use crate::policy::stage::Stage;
use crate::store::direct::Way;

/// One fresh connection, stage by stage.
pub const STAGES: [(&str, Stage); 3] = [("dns", Stage::Dns), ("connect", Stage::Connect), ("login", Stage::Startup)];

/// The part of one store call's time that a single stage of it may take.
const PART: u32 = 4;
/// Of the slots that are granted: lost without notice, and lost as if the limit were lower.
const FEW_DROPPED: f64 = 0.01;
const MANY_DROPPED: f64 = 0.05;
/// Nothing reckons with it, but people compare logs, and calendars go by this machine's clock.
const OFFSET: Duration = Duration::from_secs(1);

/// How the sessions are protected.
#[derive(Clone, Copy, Debug)]
pub struct Protection<'a> {
    pub way: Way,
    /// Version and cipher, as the server sees them.
    pub tls: Option<(&'a str, &'a str)>,
    /// The settings ask for TLS on this way, and whether they have the server's certificate checked.
    pub wanted: Option<bool>,
    /// The server that is seen may be on the far side of something in between.
    pub pooled: bool,
}

/// `dns`, `connect`, `login`: the time of one stage of fresh connections, where they have it. `call` is the time of one
/// store call.
pub fn stage(name: &'static str, times: &Times, call: Duration) -> Line {
    let bar = call / PART;
    let line = Line::new(name, format!("at most {} of the {} that a call has", in_words(bar), in_words(call)));
    if times.count() == 0 {
        return line.shown("none needed").pass("no name is to be looked up: the settings name an address or a socket");
    }
    let (middle, longest) = (times.within(0.5), times.longest());
    let line = line
        .figure("connections", times.count())
        .figure("p50_ms", in_ms(middle))
        .figure("max_ms", in_ms(longest))
        .shown(format!("{}, at most {}", in_words(middle), in_words(longest)));
    let way_out = match name {
        "dns" => "look at the name servers (nameservers), or name an address",
        "connect" => "look at the network in between, and at the server's backlog",
        _ => "look at the server's load, and at what it asks about passwords (LDAP, PAM)",
    };
    if longest >= call {
        line.fail(format!("a call that needs a new connection cannot end in time: {way_out}"))
    } else if longest > bar {
        line.warn(format!("it leaves little time for the rest of a call that needs a new connection: {way_out}"))
    } else {
        line.pass("a call that needs a new connection has time for it")
    }
}

/// `fresh_connection`: all stages together against the time of one store call, in which it reconnects after an outage.
/// `first` was another: a process reads the certificates to trust only once.
pub fn fresh_connection(times: &Times, first: Option<Duration>, call: Duration) -> Line {
    let line = Line::new("fresh_connection", format!("within the {} of one store call", in_words(call)));
    let (middle, longest) = (times.within(0.5), times.longest());
    let line = line
        .figure("connections", times.count())
        .figure("p50_ms", in_ms(middle))
        .figure("max_ms", in_ms(longest))
        .figure("first_ms", first.map(in_ms))
        .shown(format!("{}, at most {}", in_words(middle), in_words(longest)));
    if longest >= call {
        line.fail("after an outage no call could reconnect: see the slowest stage, or raise statement_timeout")
    } else if longest > call / 2 {
        line.warn("after an outage reconnecting takes most of a call: see the slowest stage")
    } else {
        line.pass("after an outage the next call reconnects and goes on")
    }
}

/// `tls`: how the bytes are protected, and how long agreeing on it takes.
pub fn tls(times: &Times, protection: Protection<'_>, call: Duration) -> Line {
    let line = Line::new("tls", "TLS 1.2 or newer over a network, the server's certificate checked");
    let Protection { way, tls, wanted, pooled } = protection;
    let Some(checked) = wanted else {
        return match way {
            Way::Socket => line.shown("plain, a Unix socket").pass("a Unix socket does not leave this machine"),
            Way::Loopback => line.shown("plain, on loopback").pass("loopback does not leave this machine"),
            Way::Network => line
                .shown("plain, over a network")
                .fail("whoever listens reads every query, and whoever answers is believed: write sslmode=verify-full"),
        };
    };
    let longest = times.longest();
    let line = line.figure("p50_ms", in_ms(times.within(0.5))).figure("max_ms", in_ms(longest));
    let (version, cipher) = tls.unwrap_or(("unknown", ""));
    let line = line
        .figure("version", version)
        .figure("cipher", cipher)
        .figure("certificate_checked", checked)
        .shown(format!("{version}, {}, at most {}", in_words(times.within(0.5)), in_words(longest)));
    if ["SSLv3", "TLSv1", "TLSv1.1"].contains(&version) {
        line.fail(format!("{version} is broken: set ssl_min_protocol_version = 'TLSv1.2' on the server"))
    } else if longest >= call {
        line.fail("a call that needs a new connection cannot end in time: look at the network and the server's load")
    } else if !checked {
        line.warn("nobody checks whose certificate it is: write sslmode=verify-full, and sslrootcert if need be")
    } else if tls.is_none() && !pooled {
        line.warn("the server sees a plain connection, so something in between ends TLS: see what it does behind that")
    } else if longest > call / PART {
        line.warn("agreeing on TLS takes much of a call that needs a new connection: look at the network in between")
    } else {
        line.pass("encrypted, and the server has shown who it is")
    }
}

/// `round_trip`: what asking costs. `bar` is the longest round trip whose slots are used.
pub fn round_trip(times: &Times, bar: Duration) -> Line {
    let line = Line::new("round_trip", format!("p99 within rtt_max, {}", in_words(bar)));
    let [middle, most, rare] = [0.5, 0.99, 0.999].map(|part| times.within(part));
    let dropped = times.share_over(bar);
    let line = line
        .figure("probes", times.count())
        .figure("p50_ms", in_ms(middle))
        .figure("p99_ms", in_ms(most))
        .figure("p99_9_ms", in_ms(rare))
        .figure("dropped_share", dropped)
        .shown(format!(
            "{} probes: p50 {:.1}, p99 {:.1}, p99.9 {:.1} ms; {} over",
            times.count(),
            in_ms(middle),
            in_ms(most),
            in_ms(rare),
            percent(dropped)
        ));
    let drops = format!("{} of the grants would be dropped as too late", percent(dropped));
    let way_out = "bring callers and store together, or raise rtt_max and the send window (which lowers the rate)";
    if dropped > MANY_DROPPED {
        line.fail(format!("{drops}: {way_out}"))
    } else if dropped > FEW_DROPPED {
        line.warn(format!("{drops}: {way_out}"))
    } else {
        line.pass("what is granted arrives in time to be used")
    }
}

/// `clock_offset`: this machine's wall clock against the store's, known to within `uncertain`.
pub fn clock_offset(offset_us: i64, uncertain: Duration) -> Line {
    let offset = Duration::from_micros(offset_us.unsigned_abs());
    let direction = if offset_us < 0 { "behind" } else { "ahead" };
    let line = Line::new("clock_offset", "1 s; no slot depends on it")
        .figure("store_ahead_ms", in_ms(offset) * if offset_us < 0 { -1.0 } else { 1.0 })
        .figure("uncertain_ms", in_ms(uncertain))
        .shown(format!("store {} {direction}, give or take {}", in_words(offset), in_words(uncertain)));
    if offset > OFFSET + uncertain {
        line.warn("no slot depends on it, but logs cannot be compared and calendars go by this machine's clock: synchronize both by NTP")
    } else {
        line.pass("the two clocks agree as far as people need it")
    }
}

/// `clock_steps`: how often the store's clock and this machine's were set while it was looked at.
pub fn clock_steps(store: u64, here: u64, looked: Duration) -> Line {
    let line = Line::new("clock_steps", "none while measuring")
        .figure("store_steps", store)
        .figure("local_steps", here)
        .figure("measured_s", looked.as_secs_f64().round())
        .shown(format!("{} in {}", store + here, in_words(looked)));
    if store > 0 {
        line.fail(
            "the store's clock was set, which can hide a burst and costs a quiet moment each time: let NTP slew it there",
        )
    } else if here > 0 {
        line.warn("this machine's wall clock was set, which moves calendars: let NTP slew it")
    } else {
        line.pass("neither clock was set")
    }
}

/// What the calls to the given URL brought.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// From sending to the first byte of the answer.
    pub times: Times,
    pub asked: usize,
    /// How many answers had which status.
    pub statuses: BTreeMap<u16, u64>,
    pub failure: Option<String>,
}

impl Calls {
    /// The answers that are not those of a call that succeeds: `20 of 20 answers were 500`.
    fn unlike_a_call(&self) -> Option<String> {
        let unlike = || self.statuses.iter().filter(|(status, _)| !(200..300).contains(*status));
        let counts: Vec<String> = unlike().map(|(_, count)| count.to_string()).collect();
        let statuses: Vec<String> = unlike().map(|(status, _)| status.to_string()).collect();
        let answers = self.times.count();
        (!counts.is_empty())
            .then(|| format!("{} of {answers} answers were {}", counts.join(" and "), statuses.join(" and ")))
    }
}

/// `arrival_jitter`: the range of the time from sending to the first byte of an answer holds the range of the time to
/// arriving, and that of the vendor's work and of the way back. The whole is the most that the jitter can be, a half what
/// it would be if both ways were alike.
pub fn arrival_jitter(calls: &Calls, bar: Duration) -> Line {
    let (times, whole) = (&calls.times, calls.times.range());
    let mut line = Line::new("arrival_jitter", format!("range within the budget's arrival jitter, {}", in_words(bar)))
        .figure("requests", calls.asked)
        .figure("answers", times.count());
    for (status, count) in &calls.statuses {
        line = line.figure(&format!("status_{status}"), *count);
    }
    if let Some(failure) = &calls.failure {
        let text = format!("{} of {} requests had an answer", times.count(), calls.asked);
        return line.shown(text).fail(format!("a request failed ({failure}): check the URL, and try again"));
    }
    let line = line
        .figure("p50_ms", in_ms(times.within(0.5)))
        .figure("p99_ms", in_ms(times.within(0.99)))
        .figure("range_ms", in_ms(whole))
        .figure("half_range_ms", in_ms(whole / 2))
        .shown(format!("range {}, half {}", in_words(whole), in_words(whole / 2)));
    let refused = calls.statuses.get(&429).copied().unwrap_or_default();
    if times.count() < 2 {
        line.fail("one answer has no range: ask for more requests (--url-calls)")
    } else if whole / 2 > bar {
        line.fail(format!(
            "calls can arrive later than the limit allows for: \"call-budget budget set\" with --arrival-jitter {}",
            as_setting(whole)
        ))
    } else if whole > bar {
        line.warn(format!(
            "if most of that is on the way there, the limit does not allow for it: \"call-budget budget set\" with \
             --arrival-jitter {}, or measure again at a quiet time",
            as_setting(whole)
        ))
    } else if refused > 0 {
        line.warn(format!("{refused} answers were 429, too many calls: others use up this limit, find them first"))
    } else if let Some(unlike) = calls.unlike_a_call() {
        line.warn(format!("{unlike}: another call may take another time; see --header"))
    } else {
        line.pass("calls arrive as evenly as the limit needs")
    }
}

/// As an option takes it: whole milliseconds, none left out.
fn as_setting(duration: Duration) -> String {
    format!("{}ms", duration.as_micros().div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, Pass, Warn};
    use super::super::tests::{MS, says};
    use super::*;

    const CALL: Duration = Duration::from_secs(1);

    fn times(of: impl IntoIterator<Item = u64>) -> Times {
        Times::of(of.into_iter().map(MS).collect())
    }

    #[test]
    fn a_slow_stage_leaves_no_time_for_the_rest() {
        for (name, _) in STAGES {
            says(&stage(name, &times([2, 3, 3]), CALL), Pass, "has time");
            says(&stage(name, &times([2, 3, 300]), CALL), Warn, "leaves little time");
            says(&stage(name, &times([2, 1000]), CALL), Fail, "cannot end in time");
        }
        says(&stage("dns", &times([]), CALL), Pass, "no name is to be looked up");
    }

    #[test]
    fn a_call_must_be_able_to_reconnect() {
        says(&fresh_connection(&times([9, 20]), Some(MS(90)), CALL), Pass, "reconnects");
        says(&fresh_connection(&times([9, 600]), Some(MS(90)), CALL), Warn, "most of a call");
        says(&fresh_connection(&times([9, 1200]), Some(MS(90)), CALL), Fail, "no call could reconnect");
    }

    #[test]
    fn plain_text_is_fine_on_this_machine_and_nowhere_else() {
        let plain = |way| tls(&times([]), Protection { way, tls: None, wanted: None, pooled: false }, CALL);
        says(&plain(Way::Socket), Pass, "Unix socket");
        says(&plain(Way::Loopback), Pass, "loopback");
        says(&plain(Way::Network), Fail, "sslmode=verify-full");
    }

    #[test]
    fn tls_is_to_be_new_checked_and_quick() {
        let good = Protection {
            way: Way::Network,
            tls: Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
            wanted: Some(true),
            pooled: false,
        };
        says(&tls(&times([4]), good, CALL), Pass, "encrypted");
        says(&tls(&times([4]), Protection { tls: Some(("TLSv1.1", "")), ..good }, CALL), Fail, "ssl_min_protocol");
        says(&tls(&times([4]), Protection { wanted: Some(false), ..good }, CALL), Warn, "nobody checks");
        says(&tls(&times([4]), Protection { tls: None, ..good }, CALL), Warn, "ends TLS");
        says(&tls(&times([4]), Protection { tls: None, pooled: true, ..good }, CALL), Pass, "encrypted");
        says(&tls(&times([300]), good, CALL), Warn, "takes much");
        says(&tls(&times([1500]), good, CALL), Fail, "cannot end in time");
    }

    #[test]
    fn a_long_round_trip_drops_grants_and_the_share_is_told() {
        let mut hundred = vec![2; 99];
        hundred.push(40);
        says(&round_trip(&times(hundred.clone()), MS(25)), Pass, "in time");
        hundred.extend([40, 40]);
        let some = round_trip(&times(hundred), MS(25));
        says(&some, Warn, "2.9 % of the grants would be dropped");
        assert_eq!(some.figures["p99_9_ms"], 40.0);
        says(&round_trip(&times([30; 100]), MS(25)), Fail, "100.0 % of the grants");
    }

    #[test]
    fn clocks_that_disagree_or_were_set_are_told_of() {
        says(&clock_offset(-900_000, MS(1)), Pass, "agree");
        says(&clock_offset(-3_600_000_000, MS(1)), Warn, "NTP");
        says(&clock_offset(2_000_000, MS(900)), Warn, "NTP");
        says(&clock_steps(0, 0, MS(10_000)), Pass, "neither");
        says(&clock_steps(1, 0, MS(10_000)), Fail, "hide a burst");
        says(&clock_steps(0, 1, MS(10_000)), Warn, "moves calendars");
    }

    #[test]
    fn jitter_over_the_budgets_own_is_told_with_what_to_set() {
        let calls = |of: &[u64]| Calls { times: times(of.iter().copied()), asked: of.len(), ..Calls::default() };
        says(&arrival_jitter(&calls(&[10, 12, 60]), MS(50)), Pass, "evenly");
        says(&arrival_jitter(&calls(&[10, 12, 80]), MS(50)), Warn, "--arrival-jitter 70ms");
        says(&arrival_jitter(&calls(&[10, 12, 210]), MS(50)), Fail, "--arrival-jitter 200ms");
        says(&arrival_jitter(&calls(&[10]), MS(50)), Fail, "--url-calls");
        let refused = Calls { statuses: [(200, 1), (429, 1)].into(), ..calls(&[10, 11]) };
        says(&arrival_jitter(&refused, MS(50)), Warn, "1 answers were 429");
        let wrong = Calls { statuses: [(500, 3)].into(), ..calls(&[10, 11, 12]) };
        says(&arrival_jitter(&wrong, MS(50)), Warn, "3 of 3 answers were 500: another call may take another time");
        let mixed = Calls { statuses: [(200, 1), (301, 1), (404, 2)].into(), ..calls(&[10, 11, 12, 11]) };
        says(&arrival_jitter(&mixed, MS(50)), Warn, "1 and 2 of 4 answers were 301 and 404: ");
        let failed = Calls { failure: Some("connection refused".into()), ..calls(&[]) };
        says(&arrival_jitter(&failed, MS(50)), Fail, "connection refused");
    }
}
