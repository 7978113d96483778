use super::*;

fn at(seconds: u64) -> Instant {
    Instant::from_boot(Duration::from_secs(1_000_000 + seconds))
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn who(credential: &str, revision: u64) -> Holder {
    Holder {
        account: "kis/real".into(),
        surface: "kis/real/quote".into(),
        token_surface: Some("kis/real/token".into()),
        credential: credential.into(),
        revision,
        issues_tokens: false,
    }
}

fn on(surface: &str) -> Holder {
    Holder { surface: surface.into(), token_surface: None, ..who("alice", 0) }
}

fn finding(verdict: Verdict, action: Action) -> Finding {
    Finding {
        verdict,
        action,
        code: None,
        throttled: false,
        outcome_unknown: false,
        never_again: false,
        no_data: false,
        meaning: "why".into(),
    }
}

fn held(action: Action) -> Finding {
    finding(Verdict::None, action)
}

fn wrong_key() -> Finding {
    held(Action::HoldCredentialUntilChanged)
}

fn good() -> Finding {
    finding(Verdict::Good, Action::Nothing)
}

/// One call, admitted and settled in the same moment.
fn call(holds: &mut Holds, now: Instant, who: &Holder, finding: &Finding) -> Result<(), Held> {
    let trial = holds.admit(now, who)?;
    holds.settle(now, who, trial, Some(finding));
    Ok(())
}

fn until(holds: &mut Holds, now: Instant, who: &Holder) -> Option<Instant> {
    holds.admit(now, who).err().map(|held| held.until)
}

#[test]
fn five_401_under_way_together_hold_their_credential_once_and_nobody_else() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    let calls: Vec<Trial> = (0..5).map(|_| holds.admit(at(0), &alice).expect("not held")).collect();
    for (second, trial) in (1..).zip(calls) {
        holds.settle(at(second), &alice, trial, Some(&wrong_key()));
    }
    let refused = holds.admit(at(5), &alice).expect_err("held");
    assert_eq!(refused, Held { scope: "credential \"alice\" at kis/real".into(), until: at(61), why: "why".into() });
    assert_eq!(until(&mut holds, at(5), &Holder { surface: "kis/real/order".into(), ..alice.clone() }), Some(at(61)));
    assert_eq!(until(&mut holds, at(5), &who("bob", 0)), None);
    assert_eq!(until(&mut holds, at(5), &Holder { account: "kis/paper".into(), ..alice }), None);
}

#[test]
fn one_call_is_let_through_after_60_s_doubling_to_1_h_and_a_good_answer_ends_it() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    call(&mut holds, at(0), &alice, &wrong_key()).expect("not held yet");
    let mut now = 0;
    for wait in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
        assert_eq!(until(&mut holds, at(now), &alice), Some(at(now + wait)));
        assert_eq!(until(&mut holds, at(now + wait - 1), &alice), Some(at(now + wait)));
        now += wait;
        let trial = holds.admit(at(now), &alice).expect("its turn");
        assert_eq!(until(&mut holds, at(now), &alice), Some(at(now + 1)), "one call, not two");
        holds.settle(at(now), &alice, trial, Some(&wrong_key()));
    }
    call(&mut holds, at(now + 3600), &alice, &good()).expect("its turn");
    for _ in 0..3 {
        call(&mut holds, at(now + 3600), &alice, &good()).expect("free again");
    }
    call(&mut holds, at(now + 3600), &alice, &wrong_key()).expect("free");
    assert_eq!(until(&mut holds, at(now + 3600), &alice), Some(at(now + 3660)), "it began anew");
}

#[test]
fn a_trial_that_is_dropped_or_taught_nothing_lets_the_next_call_through_at_once() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    call(&mut holds, at(0), &alice, &wrong_key()).expect("not held yet");
    drop(holds.admit(at(60), &alice).expect("its turn"));
    let trial = holds.admit(at(60), &alice).expect("the first was dropped");
    holds.settle(at(60), &alice, trial, None);
    call(&mut holds, at(60), &alice, &finding(Verdict::Bad, Action::Nothing)).expect("nothing was learned");
    call(&mut holds, at(60), &alice, &held(Action::RefreshToken)).expect("of the credential neither");
    let _out = holds.admit(at(60), &alice).expect("nor by a token that had expired");
    assert_eq!(until(&mut holds, at(60), &alice), Some(at(61)), "it is still in doubt");
}

#[test]
fn a_trial_without_an_answer_for_60_s_is_replaced_and_its_late_answer_changes_nothing() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    call(&mut holds, at(0), &alice, &wrong_key()).expect("not held yet");
    let hung = holds.admit(at(100), &alice).expect("its turn");
    assert_eq!(until(&mut holds, at(159), &alice), Some(at(160)));
    let second = holds.admit(at(160), &alice).expect("the first is lost");
    holds.settle(at(161), &alice, hung, Some(&good()));
    assert_eq!(until(&mut holds, at(161), &alice), Some(at(162)), "the late yes frees nobody");
    holds.settle(at(162), &alice, second, Some(&wrong_key()));
    assert_eq!(until(&mut holds, at(162), &alice), Some(at(282)));
}

#[test]
fn a_good_answer_to_a_call_from_before_the_hold_does_not_end_it() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    let before = holds.admit(at(0), &alice).expect("not held yet");
    call(&mut holds, at(0), &alice, &wrong_key()).expect("not held yet");
    holds.settle(at(1), &alice, before, Some(&good()));
    assert_eq!(until(&mut holds, at(1), &alice), Some(at(60)));
}

#[test]
fn a_changed_credential_is_free_at_once_and_stragglers_of_the_old_do_not_hold_it() {
    let (mut holds, old, new) = (Holds::default(), who("alice", 1), who("alice", 2));
    let straggler = holds.admit(at(0), &old).expect("not held yet");
    call(&mut holds, at(0), &old, &wrong_key()).expect("not held yet");
    call(&mut holds, at(1), &new, &good()).expect("another credential");
    holds.settle(at(2), &old, straggler, Some(&wrong_key()));
    assert_eq!(until(&mut holds, at(2), &new), None);
    assert_eq!(until(&mut holds, at(2), &old), Some(at(60)));
}

#[test]
fn the_longest_hold_wins_and_a_shorter_one_never_shortens_it() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    let calls: Vec<Trial> = (0..5).map(|_| holds.admit(at(0), &alice).expect("not held")).collect();
    let findings = [
        (Action::HoldCredential(secs(10)), 10),
        (Action::PushBackAndHoldCredential(secs(3)), 10),
        (Action::HoldSurface(secs(20)), 20),
        (Action::HoldSurface(secs(5)), 20),
        (Action::HoldCredentialUntilChanged, 60),
    ];
    for (trial, (action, longest)) in calls.into_iter().zip(findings) {
        holds.settle(at(0), &alice, trial, Some(&held(action)));
        assert_eq!(until(&mut holds, at(0), &alice), Some(at(longest)), "{action:?}");
    }
    assert_eq!(until(&mut holds, at(0), &who("bob", 0)), Some(at(20)), "the surface is held for all");
    let scope = |held: Option<Held>| held.map(|held| held.scope);
    assert_eq!(scope(holds.of_surface(at(0), "kis/real/quote")).as_deref(), Some("surface kis/real/quote"));
    assert_eq!(scope(holds.of_account(at(0), "kis/real").pop()).as_deref(), Some("credential \"alice\" at kis/real"));
    assert_eq!((holds.of_surface(at(60), "kis/real/quote"), holds.of_account(at(60), "kis/real")), (None, vec![]));
}

#[test]
fn a_held_token_surface_stops_new_tokens_and_no_call_that_has_one() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    call(&mut holds, at(0), &alice, &held(Action::HoldTokenSurface(secs(60)))).expect("not held yet");
    assert_eq!(until(&mut holds, at(1), &alice), None);
    assert_eq!(until(&mut holds, at(1), &on("kis/real/token")), Some(at(60)));
    // A call to the token surface itself holds its own.
    call(&mut holds, at(60), &on("kis/real/token"), &held(Action::HoldTokenSurface(secs(60)))).expect("over");
    assert_eq!(until(&mut holds, at(61), &on("kis/real/token")), Some(at(120)));
}

#[test]
fn a_token_to_refresh_where_there_is_none_to_fetch_holds_the_credential() {
    let mut holds = Holds::default();
    call(&mut holds, at(0), &who("alice", 0), &held(Action::RefreshToken)).expect("not held yet");
    assert_eq!(until(&mut holds, at(0), &who("alice", 0)), None, "it is the token");
    call(&mut holds, at(0), &on("kis/real/quote"), &held(Action::RefreshToken)).expect("not held yet");
    assert_eq!(until(&mut holds, at(0), &who("alice", 0)), Some(at(60)), "it is the credential");
}

#[test]
fn pushing_a_budget_back_holds_nothing_here() {
    let mut holds = Holds::default();
    call(&mut holds, at(0), &who("alice", 0), &held(Action::PushBack(secs(9)))).expect("not held yet");
    assert_eq!(until(&mut holds, at(0), &who("alice", 0)), None);
    assert!(holds.credentials.is_empty() && holds.surfaces.is_empty());
}

#[test]
fn a_trial_that_is_tried_at_the_very_end_is_not_forgotten_before_its_answer() {
    let (mut holds, alice) = (Holds::default(), who("alice", 0));
    call(&mut holds, at(0), &alice, &wrong_key()).expect("not held yet");
    let trial = holds.admit(at(3659), &alice).expect("its turn");
    assert_eq!(until(&mut holds, at(3700), &alice), Some(at(3701)), "the trial is still out");
    holds.settle(at(3700), &alice, trial, Some(&wrong_key()));
    assert_eq!(until(&mut holds, at(3700), &alice), Some(at(3820)));
}

#[test]
fn what_is_over_is_forgotten_however_many_users_there_were() {
    let mut holds = Holds::default();
    for user in 0..2000 {
        let action = if user % 2 == 0 { Action::HoldCredentialUntilChanged } else { Action::HoldCredential(secs(9)) };
        call(&mut holds, at(user), &who(&format!("user-{user}"), user), &held(action)).expect("not held yet");
    }
    assert!(holds.credentials.len() < 1010, "{}: what ends meanwhile is forgotten meanwhile", holds.credentials.len());
    for _ in 0..1000 / FORGET + 1 {
        drop(holds.admit(at(10_000), &who("bob", 0)));
    }
    assert_eq!((holds.credentials.len(), holds.over.len()), (0, 0));
}

#[test]
fn many_held_credentials_are_shown_as_the_longest_and_a_count() {
    let mut holds = Holds::default();
    for user in 0..50 {
        let hold = held(Action::HoldCredential(secs(100 + user / 2 * 2)));
        call(&mut holds, at(0), &who(&format!("user-{user}"), 0), &hold).expect("not held yet");
    }
    let shown = holds.of_account(at(0), "kis/real");
    assert_eq!(shown.len(), SHOWN + 1);
    for (n, user) in (0..SHOWN).zip([48, 49, 46, 47, 44, 45]) {
        assert_eq!(shown[n].scope, format!("credential \"user-{user}\" at kis/real"));
    }
    assert_eq!((shown[0].until, shown[19].until), (at(148), at(130)));
    assert_eq!((shown[SHOWN].scope.as_str(), shown[SHOWN].until), ("30 more credentials at kis/real", at(128)));
    assert_eq!(holds.of_account(at(0), "kis/paper"), []);
    assert_eq!(holds.of_account(at(131), "kis/real").len(), 18, "what is over is not counted");
}

/// Random calls of few credentials over hours: whatever happens, the promises hold.
#[test]
fn any_sequence_of_calls_keeps_one_trial_out_and_every_wait_real() {
    for seed in 0..300 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let (mut holds, mut now) = (Holds::default(), at(0));
        let mut under_way: Vec<(Holder, Trial, Instant)> = Vec::new();
        for step in 0..300 {
            let about = format!("seed {seed}, step {step}");
            now = now + secs([0, 0, 1, 20, 70, 4000][dice.usize(0..if step % 40 == 0 { 6 } else { 5 })]);
            let who = who(["alice", "bob"][dice.usize(0..2)], dice.u64(0..2));
            match dice.u8(0..4) {
                0 | 1 => match holds.admit(now, &who) {
                    Ok(trial) => {
                        let tries = |(other, trial, since): &&(Holder, Trial, Instant)| {
                            *other == who && trial.out.is_some() && now < *since + TRIAL_LOST
                        };
                        assert!(
                            trial.out.is_none() || !under_way.iter().any(|call| tries(&call)),
                            "two trials: {about}"
                        );
                        under_way.push((who, trial, now));
                    }
                    Err(held) => {
                        assert!(now < held.until && held.until <= now + LONGEST, "{held:?}: {about}");
                        let again = holds.admit(held.until, &who);
                        let trial_out = under_way.iter().any(|(other, trial, _)| *other == who && trial.out.is_some());
                        assert!(again.is_ok() || trial_out, "not free at {:?}: {about}", held.until);
                    }
                },
                2 if !under_way.is_empty() => {
                    drop(under_way.swap_remove(dice.usize(0..under_way.len())));
                }
                _ if !under_way.is_empty() => {
                    let (who, trial, _) = under_way.swap_remove(dice.usize(0..under_way.len()));
                    let before = holds.admit(now, &who).err().filter(|held| held.until > now + SOON);
                    let wait = secs(dice.u64(0..100));
                    let found = match dice.u8(0..6) {
                        0 => good(),
                        1 => held(Action::HoldCredential(wait)),
                        2 => held(Action::HoldSurface(wait)),
                        3 => finding(Verdict::Bad, Action::Nothing),
                        _ => wrong_key(),
                    };
                    let decisive = trial.out.is_some();
                    holds.settle(now, &who, trial, Some(&found));
                    if let Some(before) = before.filter(|_| !decisive) {
                        let after = holds.admit(now, &who).expect_err(&about).until;
                        assert!(before.until <= after, "shortened from {:?} to {after:?}: {about}", before.until);
                    }
                }
                _ => {}
            }
            assert_eq!(holds.credentials.len(), holds.over.len(), "{about}");
            assert!(holds.credentials.len() <= 4 && holds.surfaces.len() <= 1, "{about}");
            let waits = holds.credentials.values().filter_map(|entry| entry.doubt.as_ref()).map(|doubt| doubt.wait);
            assert!(waits.into_iter().all(|wait| (FIRST..=LONGEST).contains(&wait)), "{about}");
        }
        drop(under_way);
        let _ = holds.admit(now + secs(20_000), &who("carol", 0));
        assert_eq!((holds.credentials.len(), holds.over.len()), (0, 0), "seed {seed}");
    }
}
