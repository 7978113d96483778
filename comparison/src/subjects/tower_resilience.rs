use std::task::{Context, Poll};
use std::time::Duration;

use tower::{Layer, Service, ServiceExt};
use tower_resilience_circuitbreaker::{CircuitBreakerError, CircuitBreakerLayer};

use crate::subject::{Kind, OPEN, Policy, Subject};
use crate::wrapped::{Ended, Failed, Work, Wrapped, counts};

pub struct TowerResilience;

/// A request: the work itself.
struct Job(Work);

#[derive(Clone)]
struct Does;

impl Service<Job> for Does {
    type Response = ();
    type Error = Failed;
    type Future = Work;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, Job(work): Job) -> Work {
        work
    }
}

impl Kind for TowerResilience {
    fn name(&self) -> &'static str {
        "tower-resilience"
    }

    fn package(&self) -> Option<&'static str> {
        Some("tower-resilience-circuitbreaker")
    }

    fn expressed(&self) -> &'static str {
        "The layer's service, a clone for each call, its future polled step by step. Streak: `consecutive_failures(5)`. \
         Rate: `sliding_window_size(20)`, `minimum_number_of_calls(10)`, `failure_rate_threshold(0.5)`. One call \
         permitted in half-open. Excluded errors and local refusals: the failure classifier says no. State: its handle."
    }

    fn make(&self, policy: Policy, listener: fn()) -> Box<dyn Subject> {
        let builder = CircuitBreakerLayer::builder().wait_duration_in_open(OPEN).permitted_calls_in_half_open(1);
        let builder = match policy {
            Policy::Streak => builder.consecutive_failures(5),
            Policy::Rate => builder.sliding_window_size(20).minimum_number_of_calls(10).failure_rate_threshold(0.5),
        };
        let (layer, handle) = builder
            .on_state_transition(move |_, _| listener())
            .on_call_permitted(move |_| listener())
            .on_call_rejected(listener)
            .on_success(move |_| listener())
            .on_failure(move |_| listener())
            .failure_classifier(|result: &Result<(), Failed>| result.as_ref().is_err_and(counts))
            .build_with_handle()
            .expect("the settings are within its ranges");
        let service = layer.layer(Does);
        // A Service is a thing of one task: each call takes a clone, as servers do.
        let service = std::sync::Mutex::new(service);
        let call = move |work: Work| {
            let service = service.lock().expect("cloning does not panic").clone();
            Box::pin(async move {
                match service.oneshot(Job(work)).await {
                    Err(CircuitBreakerError::OpenCircuit) => Ended::Refused,
                    _ => Ended::Answered,
                }
            }) as _
        };
        let read = move || format!("{:?}", handle.state());
        Box::new(Wrapped { call: Box::new(call), read: Some(Box::new(read)), evidence: 1, pace: Duration::ZERO })
    }
}
