//! Faults of the wire under a session: cut, slow, in pieces, coming and going.

use std::net::SocketAddr;
use std::time::Duration;

use call_budget::policy::stage::Stage;
use call_budget::{Code, Settings};
use tokio::time::{Instant, sleep};

use crate::suite::error::{judged, says};
use crate::suite::{Caller, Case, HEALS, HEALS_SOON, How, Length, Proxied, Round, Sent, nothing};
use crate::tools::namespace::{self, Firewall};
use crate::tools::proxy::{Action, Stream, Toxic, Trigger};

/// One store call: the default `statement_timeout` and half a second.
const STORE_CALL: Duration = Duration::from_secs(1);

pub const CASES: &[Case] = &[
    Case {
        row: 8,
        id: "8.every_byte",
        name: "the connection is cut after part of the answer, at every byte",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(every_byte(round)),
    },
    Case {
        row: 8,
        id: "8.every_byte_plain",
        name: "the same without TLS: every byte of the protocol",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS_SOON,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(every_byte_plain(round)),
    },
    Case {
        row: 9,
        id: "9.bandwidth",
        name: "1 KB/s both ways",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(bandwidth(round)),
    },
    Case {
        row: 10,
        id: "10.slices",
        name: "everything comes in slices of 1 to 3 bytes: it must succeed",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: None,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(slices(round)),
    },
    Case {
        row: 10,
        id: "10.slow_slices",
        name: "the answer comes in slices, 20 ms apart: too late to be used",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Short,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(slow_slices(round)),
    },
    Case {
        row: 34,
        id: "34.flapping",
        name: "the link is cut for 200 ms and there for 200 ms, a minute long (4 s in the quick form)",
        how: How::Proxy,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS,
        needs: nothing,
        own_process: None,
        run: |round| Box::pin(flapping(round)),
    },
    Case {
        row: 34,
        id: "34.silent",
        name: "the link loses everything for 200 ms and nothing for 200 ms, a minute long (4 s in the quick form)",
        how: How::Namespace,
        deadline: STORE_CALL,
        length: Length::Long,
        heals: HEALS,
        needs: namespace::available,
        own_process: Some(namespace::WORDS),
        run: |round| Box::pin(flapping_silently(round)),
    },
];

/// Through TLS the bytes are those of records: whatever a record is cut at, nothing of it counts.
async fn every_byte(round: &mut Round) {
    let share = if round.long_form() { 1 } else { 61 };
    cut_answers(round, share).await;
}

async fn every_byte_plain(round: &mut Round) {
    let _server = round.own_server(&[]).await;
    let share = if round.long_form() { 1 } else { 17 };
    cut_answers(round, share).await;
}

/// Cuts one answer after the other, at each byte but the last, with FIN and with RST. Short of the long form at one of
/// `share` bytes, other ones each time, and always just before the last byte: it alone says that the commit is through.
async fn cut_answers(round: &mut Round, share: u64) {
    let proxy = Proxied::start_own(round).await;
    let mut settings = settings(round, proxy.address());
    settings.store_outage_max = Duration::ZERO;
    let caller = round.caller(&settings).await;
    let whole = length_of_an_answer(&caller, &proxy).await;
    let first = fastrand::u64(1..=share);
    let places = (1..whole).filter(|place| place % share == first % share || *place == whole - 1);
    for (after, action) in places.flat_map(|place| [(place, Action::Fin), (place, Action::Reset)]) {
        let lost = caller.counters().lost;
        let trigger = proxy.own().arm(Trigger::new(Stream::Downstream, after, action).since_armed());
        round.fault();
        round.no_send_is_allowed();
        let ended = caller.try_send().await;
        assert_eq!(trigger.fired(), 1, "after byte {after} of {whole}");
        let error = ended.refused();
        judged(&error, Stage::Query, 1);
        says(&error, &[&proxy.address().to_string(), "broke"]);
        assert_eq!(caller.counters().lost, lost + 1, "after byte {after} of {whole}");

        trigger.disarm();
        round.heal();
        let healed = Instant::now();
        caller.send().await;
        round.recovered_in(healed.elapsed());
    }
}

/// The bytes on the wire of an answer on a session that has served before.
async fn length_of_an_answer(caller: &Caller, proxy: &Proxied) -> u64 {
    caller.send().await;
    let before = proxy.own().counters().downstream_bytes;
    caller.send().await;
    proxy.own().counters().downstream_bytes - before
}

/// The answer takes longer than `rtt_max`: it is dropped where it comes in time at all. A new session does not get through
/// the TLS handshake.
async fn bandwidth(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let mut settings = settings(round, proxy.address());
    let caller = round.caller(&settings).await;
    settings.max_wait = 2 * STORE_CALL;
    settings.store_outage_max = Duration::ZERO;
    let newcomer = round.caller(&settings).await;
    caller.send().await;
    let slow = Toxic::Bandwidth { rate: 1 };
    let toxics = [proxy.poison(Stream::Upstream, slow).await, proxy.poison(Stream::Downstream, slow).await];

    round.fault();
    round.no_send_is_allowed();
    let (waiting, new) = tokio::join!(caller.try_send(), newcomer.try_send());
    let error = waiting.refused();
    assert!(matches!(error.code(), Code::Uncertain | Code::WaitExceeded), "{error}");
    assert_eq!(error.stage(), Some(Stage::Query), "{error}");
    let error = new.refused();
    judged(&error, Stage::Tls, 0);
    says(&error, &[&proxy.address().to_string(), "does not answer the TLS handshake"]);

    let heal = async {
        for toxic in &toxics {
            proxy.cure(toxic).await;
        }
    };
    round.healing(&caller, heal).await;
}

async fn slices(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let slicer = Toxic::Slicer { average_size: 2, size_variation: 1, delay: 0 };
    for stream in [Stream::Upstream, Stream::Downstream] {
        proxy.poison(stream, slicer).await;
    }
    let caller = round.caller(&settings(round, proxy.address())).await;
    round.fault();
    // The first opens the session, in slices too.
    for _ in 0..5 {
        let ended = caller.try_send().await;
        assert_eq!(ended.result.expect("slices are no reason to refuse"), Sent::Left);
    }
    let counters = caller.counters();
    assert_eq!((counters.store_failures, counters.lost), (0, 0), "{counters:?}");
}

/// Each answer trickles in, and none is used: dropped for its round trip, or lost where it is not there by the deadline.
async fn slow_slices(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let caller = round.caller(&settings(round, proxy.address())).await;
    caller.send().await;
    let slicer = Toxic::Slicer { average_size: 32, size_variation: 8, delay: 20_000 };
    let toxic = proxy.poison(Stream::Downstream, slicer).await;

    round.fault();
    round.no_send_is_allowed();
    let error = caller.try_send().await.refused();
    assert!(matches!(error.code(), Code::Uncertain | Code::WaitExceeded), "{error}");
    assert_eq!(error.stage(), Some(Stage::Query), "{error}");
    let counters = caller.counters();
    assert_eq!((counters.permits, counters.store_failures), (1, 0), "{counters:?}");

    round.healing(&caller, proxy.cure(&toxic)).await;
}

/// The link that is cut takes its connections along, and refuses new ones.
async fn flapping(round: &mut Round) {
    let proxy = Proxied::start(round).await;
    let caller = round.caller(&settings(round, proxy.address())).await;
    let flaps = flaps(round);
    let flapping = async {
        for _ in 0..flaps {
            proxy.disable().await.expect("the link goes down");
            sleep(HALF).await;
            proxy.enable().await.expect("the link comes back");
            sleep(HALF).await;
        }
    };
    call_during(round, &caller, flapping).await;

    // The last time down: who waits finds it there again.
    proxy.disable().await.expect("the link goes down");
    round.healing(&caller, async { proxy.enable().await.expect("the link comes back") }).await;
}

/// The link that is dead loses what is sent, connections stay.
async fn flapping_silently(round: &mut Round) {
    let address = round.database().address();
    let caller = round.caller(&settings(round, address)).await;
    let firewall = Firewall::new().unwrap_or_else(|why| panic!("{why}"));
    let flaps = flaps(round);
    let flapping = async {
        for _ in 0..flaps {
            firewall.drop_port(address.port());
            sleep(HALF).await;
            firewall.lift();
            sleep(HALF).await;
        }
    };
    call_during(round, &caller, flapping).await;

    firewall.drop_port(address.port());
    let heal = async {
        sleep(HALF).await;
        firewall.lift();
    };
    round.healing(&caller, heal).await;
}

const HALF: Duration = Duration::from_millis(200);

/// How often the link goes down: for a minute, and for 4 s in the quick form.
fn flaps(round: &Round) -> u64 {
    if round.long_form() { 150 } else { 10 }
}

fn settings(round: &Round, address: SocketAddr) -> Settings {
    let mut settings = round.settings(round.database().url_by_way_of(address));
    settings.max_wait = STORE_CALL;
    settings
}

/// Calls all the time. Whoever does is granted a slot while the link is there, or told no in time.
async fn call_during(round: &mut Round, caller: &Caller, flapping: impl Future<Output = ()>) {
    const PAUSE: Duration = Duration::from_millis(5);
    let flaps = flaps(round);
    caller.send().await;
    round.fault();
    let calling = async {
        loop {
            if let Err(error) = caller.try_send().await.result {
                let known = matches!(error.code(), Code::StoreUnavailable | Code::Uncertain | Code::WaitExceeded);
                assert!(known, "{error}");
            }
            sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = flapping => {}
        () = calling => {}
    }
    let counters = caller.counters();
    // After a long round trip the lane probes, until one is short again.
    let hurt = counters.store_failures + counters.dropped_round_trip + counters.probes;
    assert!(counters.permits > flaps && hurt >= flaps / 2, "it was not both there and away: {counters:?}");
}
