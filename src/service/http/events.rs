//! `GET /v1/events`: the whole picture once a second, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;

use super::House;
use super::lookout::Sample;
use super::problem::Problem;
use super::status::Status;

const EVERY: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct History<'a> {
    samples: Vec<&'a Sample>,
}

pub(super) async fn events(
    State(house): State<Arc<House>>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>> + Send>, Problem> {
    let place = house.place()?;
    let samples = house.lookout.known().samples;
    let history = event("history", &History { samples: samples.iter().collect() });
    let statuses = stream::unfold((house, place, false), |(house, place, pause)| async move {
        if pause {
            tokio::select! {
                biased;
                () = house.stopped() => return None,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
        let seen = house.lookout.look().await;
        let status = event("status", &Status::of(&house, seen));
        Some((status, (house, place, true)))
    });
    Ok(Sse::new(stream::iter([history]).chain(statuses).map(Ok)))
}

fn event(name: &str, document: &impl Serialize) -> Event {
    let text = serde_json::to_string(document).expect("what is shown is always JSON");
    Event::default().event(name).data(text)
}
