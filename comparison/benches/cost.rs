//! What a breaker costs a call: leave and outcome together, while it is closed and every outcome is good.

use std::future::{Ready, ready};
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

/// The output of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing waits here"),
    }
}

#[divan::bench_group(threads = [1, 2], sample_count = 200, sample_size = 1000)]
mod a_call_budget {
    use super::*;
    use call_budget::Breaker;
    use call_budget::policy::breaker::Rules;
    use call_budget::policy::breaker::rules::{Over, Rate};
    use call_budget::policy::verdict::Verdict;

    fn cost(bencher: Bencher<'_, '_>, rules: Rules) {
        let breaker = Breaker::new("bench", rules).expect("the rules make sense");
        bencher.bench(|| {
            let pass = breaker.admit().expect("it is closed");
            pass.settle(black_box(Verdict::Good));
        });
    }

    #[divan::bench]
    fn streak(bencher: Bencher<'_, '_>) {
        cost(bencher, Rules::per_provider());
    }

    #[divan::bench]
    fn rate(bencher: Bencher<'_, '_>) {
        let mut rules = Rules::per_provider();
        rules.streak = None;
        rules.rate = Some(Rate { over: Over::Calls(20), min: 10, at_least: 0.5 });
        cost(bencher, rules);
    }
}

#[divan::bench_group(threads = [1, 2], sample_count = 200, sample_size = 1000)]
mod b_tower_resilience {
    use super::*;
    use tower::{Layer, Service};
    use tower_resilience_circuitbreaker::{CircuitBreakerConfigBuilder, CircuitBreakerLayer, DefaultClassifier};

    #[derive(Clone)]
    struct Answers;

    impl Service<()> for Answers {
        type Response = ();
        type Error = ();
        type Future = Ready<Result<(), ()>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            ready(black_box(Ok(())))
        }
    }

    // Its lock is asynchronous: where two threads meet, the call waits for its turn, on a runtime as in life.
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime")
    });

    fn cost(bencher: Bencher<'_, '_>, settings: CircuitBreakerConfigBuilder<DefaultClassifier>) {
        let service = settings.build().expect("the settings are in range").layer(Answers);
        // A service belongs to one task, so each gets a clone. They are made before the clock runs.
        let service = std::sync::Mutex::new(service);
        let one = || service.lock().expect("cloning does not panic").clone();
        bencher.with_inputs(one).bench_refs(|service| {
            let _ = service.poll_ready(&mut Context::from_waker(Waker::noop()));
            let mut call = service.call(());
            match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => black_box(answer).is_ok(),
                Poll::Pending => RUNTIME.block_on(call).is_ok(),
            }
        });
    }

    #[divan::bench]
    fn streak(bencher: Bencher<'_, '_>) {
        cost(bencher, CircuitBreakerLayer::builder().consecutive_failures(5));
    }

    #[divan::bench]
    fn rate(bencher: Bencher<'_, '_>) {
        let settings = CircuitBreakerLayer::builder().sliding_window_size(20).minimum_number_of_calls(10);
        cost(bencher, settings.failure_rate_threshold(0.5));
    }
}

#[divan::bench_group(threads = [1, 2], sample_count = 200, sample_size = 1000)]
mod c_recloser {
    use super::*;
    use recloser::{AsyncRecloser, Recloser};

    fn breaker() -> Recloser {
        Recloser::custom().closed_len(20).error_rate(0.5).build()
    }

    #[divan::bench]
    fn rate(bencher: Bencher<'_, '_>) {
        let breaker = breaker();
        bencher.bench(|| breaker.call(|| black_box(Ok::<(), ()>(()))).is_ok());
    }

    #[divan::bench]
    fn rate_future(bencher: Bencher<'_, '_>) {
        let breaker = AsyncRecloser::from(breaker());
        bencher.bench(|| at_once(breaker.call(ready(black_box(Ok::<(), ()>(()))))).is_ok());
    }
}

#[divan::bench_group(threads = [1, 2], sample_count = 200, sample_size = 1000)]
mod d_failsafe {
    use super::*;
    use failsafe::failure_policy::{consecutive_failures, success_rate_over_time_window};
    use failsafe::{Config, FailurePolicy, StateMachine, backoff};

    type Closed<P> = StateMachine<P, ()>;

    fn streak_policy() -> Closed<impl FailurePolicy + Send + Sync> {
        Config::new().failure_policy(consecutive_failures(5, backoff::constant(Duration::from_secs(60)))).build()
    }

    fn rate_policy() -> Closed<impl FailurePolicy + Send + Sync> {
        let open = backoff::constant(Duration::from_secs(60));
        Config::new().failure_policy(success_rate_over_time_window(0.5, 10, Duration::from_secs(30), open)).build()
    }

    fn by_call(bencher: Bencher<'_, '_>, breaker: Closed<impl FailurePolicy + Send + Sync>) {
        use failsafe::CircuitBreaker;
        bencher.bench(|| breaker.call(|| black_box(Ok::<(), ()>(()))).is_ok());
    }

    fn by_future(bencher: Bencher<'_, '_>, breaker: Closed<impl FailurePolicy + Send + Sync>) {
        use failsafe::futures::CircuitBreaker;
        bencher.bench(|| at_once(breaker.call(ready(black_box(Ok::<(), ()>(()))))).is_ok());
    }

    #[divan::bench]
    fn streak(bencher: Bencher<'_, '_>) {
        by_call(bencher, streak_policy());
    }

    #[divan::bench]
    fn streak_future(bencher: Bencher<'_, '_>) {
        by_future(bencher, streak_policy());
    }

    #[divan::bench]
    fn rate(bencher: Bencher<'_, '_>) {
        by_call(bencher, rate_policy());
    }

    #[divan::bench]
    fn rate_future(bencher: Bencher<'_, '_>) {
        by_future(bencher, rate_policy());
    }
}
