//! Each toxic, on both streams.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::{BOTH, Rig, drain, receive, send, silent, soon};
use crate::tools::proxy::{Placed, Stream, Toxic};

#[tokio::test]
async fn without_toxics_an_echo_comes_back_unchanged() {
    let rig = Rig::new().await;
    let (client, server) = rig.connection().await;
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = server.into_split();
        tokio::io::copy(&mut read, &mut write).await.unwrap()
    });
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut read, mut write) = client.into_split();
    let mut back = vec![0; sent.len()];
    let (written, got) = soon(async { tokio::join!(write.write_all(&sent), read.read_exact(&mut back)) }).await;
    written.unwrap();
    got.unwrap();
    assert!(back == sent);
    drop((read, write));
    assert_eq!(soon(echo).await.unwrap(), sent.len() as u64);
}

#[tokio::test]
async fn latency_delays_by_what_it_says_within_a_fifth() {
    let rig = Rig::new().await;
    for stream in BOTH {
        rig.proxy.add(stream, Toxic::Latency { latency: 300, jitter: 0 }).await.unwrap();
        let (mut sender, mut receiver) = rig.ends(stream).await;
        let mut took = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            send(&mut sender, b"late").await;
            assert_eq!(receive(&mut receiver, 4).await, b"late");
            took.push(start.elapsed().as_millis());
        }
        assert!(took.iter().all(|&ms| (299..2_300).contains(&ms)), "{stream:?}: {took:?} ms");
        // A busy machine may delay some, hardly all.
        assert!(took.iter().any(|&ms| ms <= 360), "{stream:?}: {took:?} ms");
        // The other stream is as fast as ever.
        let start = Instant::now();
        send(&mut receiver, b"fast").await;
        receive(&mut sender, 4).await;
        assert!(stream == Stream::Downstream || start.elapsed() < Duration::from_millis(290));
    }
}

#[tokio::test]
async fn latency_is_a_long_wire_and_not_a_narrow_one() {
    let rig = Rig::new().await;
    rig.proxy.add(Stream::Downstream, Toxic::Latency { latency: 200, jitter: 50 }).await.unwrap();
    let (mut sender, mut receiver) = rig.ends(Stream::Downstream).await;
    let start = Instant::now();
    let data = vec![7; 4 << 20];
    let (_, got) = tokio::join!(send(&mut sender, &data), receive(&mut receiver, data.len()));
    assert!(got == data);
    assert!(start.elapsed() >= Duration::from_millis(149));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn bandwidth_limits_the_rate() {
    let rig = Rig::new().await;
    for stream in BOTH {
        rig.proxy.add(stream, Toxic::Bandwidth { rate: 100 }).await.unwrap();
        let (mut sender, mut receiver) = rig.ends(stream).await;
        let start = Instant::now();
        send(&mut sender, &[1; 50_000]).await;
        receive(&mut receiver, 50_000).await;
        let ms = start.elapsed().as_millis();
        assert!((480..2_500).contains(&ms), "{stream:?}: 50 KB at 100 KB/s in {ms} ms");
    }
}

#[tokio::test]
async fn bandwidth_zero_stops_the_sender_too_and_its_removal_lets_all_of_it_pass() {
    let rig = Rig::new().await;
    for stream in BOTH {
        let (mut sender, mut receiver) = rig.ends(stream).await;
        let toxic = rig.proxy.add(stream, Toxic::Bandwidth { rate: 0 }).await.unwrap();
        let mut written = 0;
        let block = vec![3; 1 << 20];
        while let Ok(len) = timeout(Duration::from_millis(300), sender.write(&block)).await {
            written += len.unwrap();
            assert!(written < 200 << 20, "{stream:?}: the sender feels nothing");
        }
        assert!(silent(&mut receiver).await);
        rig.proxy.remove(&toxic).await.unwrap();
        receive(&mut receiver, written).await;
        assert!(silent(&mut receiver).await);
    }
}

#[tokio::test]
async fn slicer_really_slices() {
    let rig = Rig::new().await;
    for stream in BOTH {
        let toxic = Toxic::Slicer { average_size: 10, size_variation: 2, delay: 5_000 };
        rig.proxy.add(stream, toxic).await.unwrap();
        let (mut sender, mut receiver) = rig.ends(stream).await;
        let sent: Vec<u8> = (0..200).collect();
        let start = Instant::now();
        send(&mut sender, &sent).await;
        let (mut got, mut slices, mut buffer) = (Vec::new(), Vec::new(), [0; 1_000]);
        while got.len() < sent.len() {
            let len = soon(receiver.read(&mut buffer)).await.unwrap();
            got.extend_from_slice(&buffer[..len]);
            slices.push(len);
        }
        assert_eq!(got, sent);
        // 200 bytes in pieces of at most 12 are 17 pieces, 16 pauses between them.
        assert!(start.elapsed() >= Duration::from_millis(16 * 5 - 1), "{stream:?}: {:?}", start.elapsed());
        // Two may come as one where the reader was not scheduled.
        assert!(slices.len() >= 8, "{stream:?}: {slices:?}");
        assert!(slices.iter().any(|len| (8..=12).contains(len)), "{stream:?}: {slices:?}");
    }
}

#[tokio::test]
async fn timeout_zero_holds_the_connection_and_its_removal_closes_it_without_the_data() {
    let rig = Rig::new().await;
    for stream in BOTH {
        let (mut sender, mut receiver) = rig.ends(stream).await;
        let toxic = rig.proxy.add(stream, Toxic::Timeout { timeout: 0 }).await.unwrap();
        send(&mut sender, b"lost").await;
        assert!(silent(&mut receiver).await);
        rig.proxy.remove(&toxic).await.unwrap();
        assert_eq!(drain(&mut receiver).await, (vec![], None), "{stream:?}");
    }
}

#[tokio::test]
async fn timeout_closes_when_it_has_passed_without_a_byte_having_come_through() {
    let rig = Rig::new().await;
    for stream in BOTH {
        rig.proxy.add(stream, Toxic::Timeout { timeout: 300 }).await.unwrap();
        let start = Instant::now();
        let (mut sender, mut receiver) = rig.ends(stream).await;
        send(&mut sender, b"lost").await;
        assert_eq!(drain(&mut receiver).await, (vec![], None), "{stream:?}");
        let ms = start.elapsed().as_millis();
        assert!((299..2_300).contains(&ms), "{stream:?}: {ms} ms");
    }
}

#[tokio::test]
async fn slow_close_delays_the_end_and_not_the_data() {
    let rig = Rig::new().await;
    for stream in BOTH {
        rig.proxy.add(stream, Toxic::SlowClose { delay: 400 }).await.unwrap();
        let (mut sender, mut receiver) = rig.ends(stream).await;
        let start = Instant::now();
        send(&mut sender, b"last words").await;
        drop(sender);
        receive(&mut receiver, 10).await;
        assert!(start.elapsed() < Duration::from_millis(390), "{stream:?}: {:?}", start.elapsed());
        assert_eq!(drain(&mut receiver).await, (vec![], None));
        let ms = start.elapsed().as_millis();
        assert!((399..2_400).contains(&ms), "{stream:?}: {ms} ms");
    }
}

#[tokio::test]
async fn limit_data_closes_after_exactly_that_many_bytes() {
    let rig = Rig::new().await;
    for stream in BOTH {
        for limit in [0, 1, 17, 1_000, 20_001] {
            let toxic = rig.proxy.add(stream, Toxic::LimitData { bytes: limit }).await.unwrap();
            let (mut sender, mut receiver) = rig.ends(stream).await;
            send(&mut sender, &[9; 30_000]).await;
            let (bytes, ending) = drain(&mut receiver).await;
            assert_eq!((bytes.len() as u64, ending), (limit, None), "{stream:?}");
            rig.proxy.remove(&toxic).await.unwrap();
        }
    }
}

#[tokio::test]
async fn limit_data_closes_with_the_last_byte_and_not_with_the_next() {
    let rig = Rig::new().await;
    rig.proxy.add(Stream::Downstream, Toxic::LimitData { bytes: 4 }).await.unwrap();
    let (mut sender, mut receiver) = rig.ends(Stream::Downstream).await;
    send(&mut sender, b"four").await;
    assert_eq!(drain(&mut receiver).await, (b"four".to_vec(), None));
}

#[tokio::test]
async fn reset_peer_is_a_reset_for_both_ends_on_open_and_on_new_connections() {
    let rig = Rig::new().await;
    for stream in BOTH {
        for timeout in [0, 200] {
            let open = rig.ends(stream).await;
            let toxic = rig.proxy.add(stream, Toxic::ResetPeer { timeout }).await.unwrap();
            let new = rig.ends(stream).await;
            for (mut sender, mut receiver) in [open, new] {
                assert!(silent(&mut receiver).await, "it waits for the first data");
                let start = Instant::now();
                send(&mut sender, b"?").await;
                for end in [&mut receiver, &mut sender] {
                    assert_eq!(drain(end).await, (vec![], Some(ErrorKind::ConnectionReset)), "{stream:?} {timeout}");
                }
                let ms = start.elapsed().as_millis();
                assert!((u128::from(timeout.max(1) - 1)..u128::from(timeout) + 2_000).contains(&ms), "{ms} ms");
            }
            rig.proxy.remove(&toxic).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_toxic_acts_on_connections_that_are_open_and_not_on_what_has_passed() {
    let rig = Rig::new().await;
    for stream in BOTH {
        let (mut sender, mut receiver) = rig.ends(stream).await;
        send(&mut sender, b"before").await;
        receive(&mut receiver, 6).await;
        rig.proxy.add(stream, Toxic::LimitData { bytes: 3 }).await.unwrap();
        send(&mut sender, b"after").await;
        assert_eq!(drain(&mut receiver).await, (b"aft".to_vec(), None), "{stream:?}");
    }
}

#[tokio::test]
async fn removing_or_changing_a_latency_sets_free_what_it_holds() {
    let rig = Rig::new().await;
    for stream in BOTH {
        let (mut sender, mut receiver) = rig.ends(stream).await;
        let toxic = rig.proxy.add(stream, Toxic::Latency { latency: 60_000, jitter: 0 }).await.unwrap();
        send(&mut sender, b"held").await;
        assert!(silent(&mut receiver).await);
        rig.proxy.update(&toxic, Toxic::Latency { latency: 1, jitter: 0 }).await.unwrap();
        assert_eq!(receive(&mut receiver, 4).await, b"held");
        rig.proxy.update(&toxic, Toxic::Latency { latency: 60_000, jitter: 0 }).await.unwrap();
        send(&mut sender, b"again").await;
        assert!(silent(&mut receiver).await);
        rig.proxy.remove(&toxic).await.unwrap();
        assert_eq!(receive(&mut receiver, 5).await, b"again");
    }
}

#[tokio::test]
async fn toxics_act_in_the_order_of_their_coming() {
    let rig = Rig::new().await;
    rig.proxy.add(Stream::Downstream, Toxic::LimitData { bytes: 3 }).await.unwrap();
    rig.proxy.add(Stream::Downstream, Toxic::SlowClose { delay: 300 }).await.unwrap();
    let (mut sender, mut receiver) = rig.ends(Stream::Downstream).await;
    let start = Instant::now();
    send(&mut sender, b"abcdef").await;
    assert_eq!(receive(&mut receiver, 3).await, b"abc");
    assert_eq!(drain(&mut receiver).await, (vec![], None));
    assert!(start.elapsed() >= Duration::from_millis(299), "the limit's close is slow: {:?}", start.elapsed());
}

#[tokio::test]
async fn toxicity_is_the_share_of_connections() {
    let rig = Rig::new().await;
    let toxic = Toxic::LimitData { bytes: 1 };
    let placed = Placed { name: "some".to_owned(), stream: Stream::Downstream, toxicity: 0.5, toxic };
    rig.proxy.add_placed(&placed).await.unwrap();
    let mut hit = 0;
    for _ in 0..60 {
        let (mut sender, mut receiver) = rig.ends(Stream::Downstream).await;
        send(&mut sender, b"ab").await;
        drop(sender);
        hit += usize::from(drain(&mut receiver).await.0.len() == 1);
    }
    // Outside of this once in 200 million runs.
    assert!((8..=52).contains(&hit), "{hit} of 60");
}

#[tokio::test]
async fn disabled_it_refuses_and_closes_and_enabled_it_is_back_on_its_port() {
    let rig = Rig::new().await;
    let (mut client, mut server) = rig.connection().await;
    rig.proxy.disable().await.unwrap();
    assert_eq!(drain(&mut client).await, (vec![], None));
    assert_eq!(drain(&mut server).await, (vec![], None));
    let refused = soon(TcpStream::connect(rig.proxy.address())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    rig.proxy.enable().await.unwrap();
    let (mut client, mut server) = rig.connection().await;
    send(&mut client, b"back").await;
    assert_eq!(receive(&mut server, 4).await, b"back");
}

#[tokio::test]
async fn a_half_close_is_a_full_close_for_the_other_side() {
    let rig = Rig::new().await;
    let (mut client, mut server) = rig.connection().await;
    send(&mut client, b"all").await;
    client.shutdown().await.unwrap();
    assert_eq!(drain(&mut server).await, (b"all".to_vec(), None));
    assert_eq!(drain(&mut client).await, (vec![], None), "though the server has not closed");
}

#[tokio::test]
async fn a_server_that_refuses_is_an_end_for_the_client() {
    let rig = Rig::new().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = rig.toxiproxy.create("gone", "127.0.0.1:0", &gone.to_string()).await.unwrap();
    let mut client = soon(TcpStream::connect(proxy.address())).await.unwrap();
    assert_eq!(drain(&mut client).await, (vec![], None));
}
