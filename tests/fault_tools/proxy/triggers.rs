//! Triggers: the fault at the byte, not near it.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::{BOTH, Rig, drain, receive, send, silent};
use crate::tools::proxy::{Action, Stream, Toxic, Trigger};

#[tokio::test]
async fn a_cut_comes_after_exactly_that_many_bytes_of_a_connection() {
    let rig = Rig::new().await;
    let sent = b"an answer of some length";
    for stream in BOTH {
        for (action, ending) in [(Action::Fin, None), (Action::Reset, Some(ErrorKind::ConnectionReset))] {
            for after in 0..=sent.len() {
                let armed = rig.own().arm(Trigger::new(stream, after as u64, action));
                let (mut sender, mut receiver) = rig.ends(stream).await;
                // At byte 0 the connection may be cut before this is sent.
                let _ = sender.write_all(sent).await;
                assert_eq!(
                    drain(&mut receiver).await,
                    (sent[..after].to_vec(), ending),
                    "{stream:?} {action:?} {after}"
                );
                assert_eq!(armed.fired(), 1);
                armed.disarm();
                rig.closed((sender, receiver)).await;
            }
        }
    }
}

#[tokio::test]
async fn a_reset_after_much_data_loses_none_of_what_had_passed() {
    let rig = Rig::new().await;
    let _armed = rig.own().arm(Trigger::new(Stream::Downstream, 100_000, Action::Reset));
    let (mut sender, mut receiver) = rig.ends(Stream::Downstream).await;
    let _ = sender.write_all(&[5; 150_000]).await;
    let (bytes, ending) = drain(&mut receiver).await;
    assert_eq!((bytes.len(), ending), (100_000, Some(ErrorKind::ConnectionReset)));
}

#[tokio::test]
async fn since_armed_counts_from_the_moment_of_arming_on_open_connections() {
    let rig = Rig::new().await;
    for stream in BOTH {
        for after in 0..=3 {
            let (mut sender, mut receiver) = rig.ends(stream).await;
            send(&mut sender, b"long before").await;
            receive(&mut receiver, 11).await;
            let armed = rig.own().arm(Trigger::new(stream, after, Action::Fin).since_armed());
            let _ = sender.write_all(b"now").await;
            let (bytes, ending) = drain(&mut receiver).await;
            assert_eq!((bytes.len() as u64, ending), (after, None), "{stream:?}");
            assert_eq!(armed.fired(), 1);
            armed.disarm();
            rig.closed((sender, receiver)).await;
        }
    }
}

#[tokio::test]
async fn counted_from_the_start_a_connection_that_is_past_the_byte_is_left_alone() {
    let rig = Rig::new().await;
    let (mut sender, mut receiver) = rig.ends(Stream::Downstream).await;
    send(&mut sender, b"12345").await;
    receive(&mut receiver, 5).await;
    let past = rig.own().arm(Trigger::new(Stream::Downstream, 4, Action::Reset));
    let ahead = rig.own().arm(Trigger::new(Stream::Downstream, 7, Action::Fin));
    send(&mut sender, b"6789").await;
    assert_eq!(drain(&mut receiver).await, (b"67".to_vec(), None));
    assert_eq!((past.fired(), ahead.fired()), (0, 1));
}

#[tokio::test]
async fn held_bytes_come_when_the_trigger_is_disarmed_and_the_end_behind_them() {
    let rig = Rig::new().await;
    for stream in BOTH {
        let armed = rig.own().arm(Trigger::new(stream, 6, Action::Hold));
        let (mut sender, mut receiver) = rig.ends(stream).await;
        send(&mut sender, b"passedheld").await;
        assert_eq!(receive(&mut receiver, 6).await, b"passed");
        assert!(silent(&mut receiver).await);
        // The other way is open.
        send(&mut receiver, b"back").await;
        assert_eq!(receive(&mut sender, 4).await, b"back");
        drop(sender);
        armed.disarm();
        assert_eq!(drain(&mut receiver).await, (b"held".to_vec(), None), "{stream:?}");
        rig.own().open_connections(0, Duration::from_secs(20)).await.unwrap();
    }
}

#[tokio::test]
async fn a_held_stream_holds_up_its_sender_in_the_end() {
    let rig = Rig::new().await;
    let _armed = rig.own().arm(Trigger::new(Stream::Upstream, 1, Action::Hold));
    let (mut sender, mut receiver) = rig.ends(Stream::Upstream).await;
    let sent = timeout(Duration::from_secs(2), sender.write_all(&vec![0; 200 << 20])).await;
    assert!(sent.is_err(), "200 MiB went nowhere without notice");
    receive(&mut receiver, 1).await;
    assert!(silent(&mut receiver).await);
}

#[tokio::test]
async fn swallowed_bytes_are_lost_for_good() {
    let rig = Rig::new().await;
    for stream in BOTH {
        let armed = rig.own().arm(Trigger::new(stream, 0, Action::Swallow));
        let (mut sender, mut receiver) = rig.ends(stream).await;
        send(&mut sender, b"lost").await;
        assert!(silent(&mut receiver).await);
        assert_eq!(armed.fired(), 1);
        armed.disarm();
        send(&mut sender, b"found").await;
        assert_eq!(receive(&mut receiver, 5).await, b"found", "{stream:?}");
        rig.closed((sender, receiver)).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_held_ends_when_its_receiver_has_gone() {
    let rig = Rig::new().await;
    for action in [Action::Hold, Action::Swallow] {
        let armed = rig.own().arm(Trigger::new(Stream::Downstream, 0, action));
        let (mut client, mut server) = rig.connection().await;
        send(&mut server, b"never seen").await;
        assert!(silent(&mut client).await);
        drop(client);
        assert_eq!(drain(&mut server).await, (vec![], None), "the server learns of it");
        rig.own().open_connections(0, Duration::from_secs(5)).await.unwrap();
        armed.disarm();
    }
}

#[tokio::test]
async fn a_trigger_counts_what_the_toxics_let_through() {
    let rig = Rig::new().await;
    rig.proxy.add(Stream::Downstream, Toxic::Latency { latency: 60_000, jitter: 0 }).await.unwrap();
    let armed = rig.own().arm(Trigger::new(Stream::Downstream, 2, Action::Fin));
    let (mut sender, mut receiver) = rig.ends(Stream::Downstream).await;
    send(&mut sender, b"late").await;
    assert!(silent(&mut receiver).await);
    assert_eq!(armed.fired(), 0);
    rig.toxiproxy.reset().await.unwrap();
    assert_eq!(drain(&mut receiver).await, (b"la".to_vec(), None));
}
