//! When an attempt may be made once more, and after how long.
//!
//! Every attempt is an attempt of its own: it takes its own pass and its own slot, and is judged on its own. What is decided
//! here is only whether there is to be another. A token refresh is not made by this rule: it happens once, whatever the
//! waits say.

use std::time::Duration;

use super::verdict::{Action, Broken, Finding, Verdict};

/// The waits between the attempts of one call, and what they are made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Before the second attempt, before the third, ...: 1 attempt more than there are waits.
    pub waits: Vec<Duration>,
    pub on: On,
}

/// Which failures are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Every bad verdict.
    Bad,
    /// No whole answer came.
    Transport,
}

impl Retry {
    /// The wait before the next attempt, or `None` where there is to be none. `failed` attempts have been made, the last of
    /// which ended as `finding` says; `broken` where it brought no whole answer; `retry_after` is what the vendor asked for,
    /// already capped.
    ///
    /// Only a bad verdict is tried again: after a refusal, a "too many" or a rejected key the next attempt would meet the
    /// same. What the vendor's table says is never sent again is not, whatever it is. A call that is not `idempotent` is sent again only when the last attempt never left: a bad answer does not say
    /// that nothing was done.
    pub fn next(
        &self,
        failed: u32,
        finding: &Finding,
        broken: Option<Broken>,
        idempotent: bool,
        retry_after: Option<Duration>,
    ) -> Option<Duration> {
        let worth_it = finding.verdict == Verdict::Bad && !finding.throttled && !finding.never_again;
        let meant = self.on == On::Bad || broken.is_some();
        let harmless = idempotent || broken == Some(Broken::NotConnected);
        if !(worth_it && meant && harmless) {
            return None;
        }
        let own = *self.waits.get(usize::try_from(failed.checked_sub(1)?).ok()?)?;
        // A Retry-After of nothing, such as a date that has passed, asks for nothing.
        let wait = retry_after.filter(|asked| !asked.is_zero()).unwrap_or(own);
        // Sooner, it would only be refused.
        Some(match finding.action {
            Action::HoldSurface(held) | Action::HoldCredential(held) => wait.max(held),
            _ => wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn finding(verdict: Verdict) -> Finding {
        Finding {
            verdict,
            action: Action::Nothing,
            code: None,
            throttled: false,
            outcome_unknown: false,
            never_again: false,
            no_data: false,
            meaning: "".into(),
        }
    }

    const ENDS: [Option<Broken>; 4] =
        [None, Some(Broken::NotConnected), Some(Broken::Interrupted), Some(Broken::TimedOut)];

    fn patient() -> Retry {
        Retry { waits: vec![S, 2 * S], on: On::Bad }
    }

    fn brief() -> Retry {
        Retry { waits: vec![S / 2, S / 2], on: On::Transport }
    }

    /// Every combination of what decides.
    fn each(mut look: impl FnMut(&Retry, u32, &Finding, Option<Broken>, bool, Option<Duration>)) {
        for retry in [patient(), brief(), Retry { waits: vec![], on: On::Bad }] {
            for failed in 0..5 {
                for verdict in [Verdict::Good, Verdict::Bad, Verdict::None] {
                    for (throttled, outcome_unknown) in [(false, false), (false, true), (true, false)] {
                        for action in [Action::Nothing, Action::HoldSurface(9 * S), Action::RefreshToken] {
                            for broken in ENDS {
                                for idempotent in [false, true] {
                                    for asked in [None, Some(Duration::ZERO), Some(S / 10), Some(7 * S)] {
                                        let finding =
                                            Finding { action, throttled, outcome_unknown, ..finding(verdict) };
                                        look(&retry, failed, &finding, broken, idempotent, asked);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn two_more_attempts_on_every_bad_verdict_or_three_where_no_whole_answer_came() {
        let bad = finding(Verdict::Bad);
        let waits = |retry: &Retry, broken| -> Vec<Duration> {
            (1..5).map_while(|failed| retry.next(failed, &bad, broken, true, None)).collect()
        };
        assert_eq!(waits(&patient(), None), [S, 2 * S]);
        for broken in [Broken::NotConnected, Broken::Interrupted, Broken::TimedOut] {
            assert_eq!(waits(&patient(), Some(broken)), [S, 2 * S]);
            assert_eq!(waits(&brief(), Some(broken)), [S / 2, S / 2]);
        }
        assert!(waits(&brief(), None).is_empty(), "a whole answer, however bad, is no transport error");
    }

    #[test]
    fn there_are_never_more_attempts_than_the_waits_allow() {
        each(|retry, failed, finding, broken, idempotent, asked| {
            if retry.next(failed, finding, broken, idempotent, asked).is_some() {
                let waits = u32::try_from(retry.waits.len()).unwrap();
                assert!((1..=waits).contains(&failed), "{retry:?} after {failed}");
            }
        });
    }

    #[test]
    fn only_a_bad_verdict_that_is_no_too_many_is_tried_again() {
        each(|retry, failed, finding, broken, idempotent, asked| {
            if retry.next(failed, finding, broken, idempotent, asked).is_some() {
                assert!(finding.verdict == Verdict::Bad && !finding.throttled, "{finding:?}");
            }
        });
    }

    #[test]
    fn what_the_table_says_is_never_sent_again_is_not_however_harmless() {
        each(|retry, failed, finding, broken, idempotent, asked| {
            let finding = Finding { never_again: true, ..finding.clone() };
            assert_eq!(retry.next(failed, &finding, broken, idempotent, asked), None, "{finding:?}");
        });
    }

    #[test]
    fn what_must_not_happen_twice_is_sent_again_only_if_it_never_left() {
        let mut again = 0;
        each(|retry, failed, finding, broken, idempotent, asked| {
            if !idempotent && retry.next(failed, finding, broken, idempotent, asked).is_some() {
                assert_eq!(broken, Some(Broken::NotConnected), "{finding:?}");
                again += 1;
            }
        });
        assert!(again > 0);
    }

    #[test]
    fn no_wait_is_shorter_than_the_vendor_asked_for_or_than_the_hold_that_it_caused() {
        each(|retry, failed, finding, broken, idempotent, asked| {
            if let Some(wait) = retry.next(failed, finding, broken, idempotent, asked) {
                assert!(wait >= asked.unwrap_or_default());
                assert!(wait >= S / 2 || asked == Some(S / 10), "own waits are kept unless the vendor says another");
                if let Action::HoldSurface(held) = finding.action {
                    assert!(wait >= held);
                }
            }
        });
        let bad = finding(Verdict::Bad);
        let next = |asked| patient().next(2, &bad, None, true, asked);
        assert_eq!(next(Some(30 * S)), Some(30 * S));
        assert_eq!(next(Some(S)), Some(S), "its word wins over the longer wait of our own too");
        assert_eq!(next(Some(Duration::ZERO)), Some(2 * S));
    }
}
