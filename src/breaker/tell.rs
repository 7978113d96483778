//! What people are told of a breaker. Names and fields are stable: alerts are built on them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::policy::Wall;
use crate::policy::breaker::Event;
use crate::policy::breaker::event::{Cause, Summary};

/// Tells somebody who may panic: whoever listens damages no call.
pub(crate) fn unharmed(tell: impl FnOnce()) {
    // The panic hook has had its say: there is nobody else to tell.
    let _ = catch_unwind(AssertUnwindSafe(tell));
}

/// `left_out`: so many failures before this one are told by nobody.
pub(super) fn event(breaker: &str, zone: Option<&TimeZone>, event: &Event, left_out: u64) {
    match event {
        Event::Failure { fail_count, threshold } => {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::warn!(breaker, fail_count, threshold, left_out, verdict = "bad", "circuit_breaker_failure");
        }
        Event::Opened { cause, fail_count, reopen_count, open_for, rung } => {
            let (open_seconds, cause) = (open_for.as_secs_f64(), word(*cause));
            tracing::warn!(breaker, fail_count, reopen_count, open_seconds, cause, rung, "circuit_breaker_opened");
        }
        Event::Reopened { cause, reopen_count, open_for, rung } => {
            let (open_seconds, cause) = (open_for.as_secs_f64(), word(*cause));
            tracing::warn!(breaker, reopen_count, open_seconds, cause, rung, "circuit_breaker_reopened");
        }
        Event::Closed { probe_count } => tracing::info!(breaker, probe_count, "circuit_breaker_closed"),
        Event::EpisodeSummary(summary) => {
            let Summary { reopen_count, probe_count, lost_probes, rejected, .. } = summary;
            tracing::info!(
                breaker,
                total_open_seconds = summary.total_open.as_secs_f64(),
                reopen_count,
                probe_count,
                episode_started_at = date(summary.started_at, zone),
                episode_seconds = summary.duration.as_secs_f64(),
                lost_probes,
                rejected,
                cause = word(summary.cause),
                "circuit_episode_summary"
            );
        }
        Event::ByHand { what, who, why, in_force_for } => {
            let (who, why) = (&**who, &**why);
            let for_seconds = in_force_for.map(|in_force_for| in_force_for.as_secs_f64());
            tracing::warn!(breaker, what, who, why, for_seconds, "circuit_breaker_by_hand");
        }
    }
}

fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Streak => "streak",
        Cause::Rate => "rate",
        Cause::Slow => "slow",
        Cause::Probe => "probe",
        Cause::NoEvidence => "no_evidence",
    }
}

/// RFC 3339, in this zone or else UTC.
fn date(wall: Wall, zone: Option<&TimeZone>) -> String {
    let Ok(moment) = Timestamp::from_microsecond(wall.unix_us()) else {
        return "a moment that no calendar has".to_owned();
    };
    match zone {
        Some(zone) => moment.display_with_offset(zone.to_offset(moment)).to_string(),
        None => moment.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_the_zone_of_the_calendar_or_else_in_utc() {
        let wall = Wall::from_unix_us(1_767_571_207_000_000);
        let seoul = TimeZone::get("Asia/Seoul").unwrap();
        assert_eq!(date(wall, Some(&seoul)), "2026-01-05T09:00:07+09:00");
        assert_eq!(date(wall, None), "2026-01-05T00:00:07Z");
        assert_eq!(date(Wall::from_unix_us(i64::MAX), None), "a moment that no calendar has");
    }
}
