//! A store that fails: how long it is tried, and what callers hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::store::Failing;
use call_budget::{Code, Settings};

use crate::script::{Step, standing};
use crate::{ms, pass, settle};

#[tokio::test]
async fn an_outage_is_judged_from_its_first_failure_then_newcomers_fail_at_once_and_recovery_is_at_once() {
    let well = Arc::new(AtomicBool::new(false));
    let (clock, script) = standing({
        let well = Arc::clone(&well);
        move |_, _| match well.load(Ordering::SeqCst) {
            true => Step::GrantAll,
            false => Step::Fail(Stage::Connect, Failing::Unavailable),
        }
    });
    let budget = script.budget(&Settings::default());
    let acquire = || {
        let budget = budget.clone();
        tokio::spawn(async move { budget.acquire("kis-real", "order").await.map(drop) })
    };

    let first = acquire();
    settle().await;
    pass(&clock, ms(5000)).await;
    let later = acquire();
    pass(&clock, ms(4990)).await;
    assert!(!first.is_finished() && !later.is_finished(), "not yet judged");
    pass(&clock, ms(270)).await;
    for waiting in [first, later] {
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!((error.code(), error.stage()), (Code::StoreUnavailable, Some(Stage::Connect)));
        assert!(!error.may_have_spent());
        assert!(error.to_string().contains("as the script says"), "{error}");
    }
    let times = script.asked_at();
    for pause in times.windows(2).map(|pair| pair[1].saturating_since(pair[0])) {
        assert!((ms(150)..=ms(251)).contains(&pause), "{pause:?}");
    }

    let before = script.calls();
    pass(&clock, ms(60_000 / 100)).await;
    assert_eq!(script.calls(), before, "nobody waits, nobody asks");
    let newcomer = acquire();
    settle().await;
    assert_eq!(newcomer.await.unwrap().unwrap_err().code(), Code::StoreUnavailable, "without waiting");
    assert_eq!(script.calls(), before + 1);

    well.store(true, Ordering::SeqCst);
    let recovered = acquire();
    settle().await;
    recovered.await.unwrap().unwrap();
    well.store(false, Ordering::SeqCst);
    let again = acquire();
    settle().await;
    pass(&clock, ms(1000)).await;
    assert!(!again.is_finished(), "the next outage has its own beginning");
}

#[tokio::test]
async fn an_outage_of_lost_answers_says_how_many() {
    let (clock, script) = standing(|_, _| Step::Hang(Stage::Query));
    let mut settings = Settings::default();
    settings.store_outage_max = ms(1100);
    let budget = script.budget(&settings);
    let waiting = tokio::spawn(async move { budget.acquire("kis-real", "order").await.unwrap_err() });
    settle().await;
    pass(&clock, ms(3500)).await;
    let error = waiting.await.unwrap();
    assert_eq!((error.code(), error.stage(), error.lost()), (Code::StoreUnavailable, Some(Stage::Query), 2));
}

#[tokio::test]
async fn what_waiting_will_not_help_ends_everybody_at_once() {
    let (_, script) = standing(|_, _| Step::Fail(Stage::Startup, Failing::Misconfigured));
    let budget = script.budget(&Settings::default());
    let (one, two) = tokio::join!(budget.acquire("a", "b"), budget.acquire("a", "b"));
    for error in [one.unwrap_err(), two.unwrap_err()] {
        assert_eq!((error.code(), error.stage()), (Code::Misconfigured, Some(Stage::Startup)));
    }
    assert_eq!(script.calls(), 1);
}

#[tokio::test]
async fn with_no_patience_for_outages_the_first_failure_is_one() {
    let (_, script) = standing(|_, _| Step::Fail(Stage::Connect, Failing::Unavailable));
    let mut settings = Settings::default();
    settings.store_outage_max = Duration::ZERO;
    let error = script.budget(&settings).acquire("a", "b").await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable);
}
