//! Another address of a server, judged at an echo.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::tools::door::{Door, Hole};

/// Nothing that works takes longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is silent for so long is silent.
const SILENT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_door_passes_everything_on_and_counts_who_is_there() {
    let door = Door::anywhere(echo().await).await;
    let mut first = TcpStream::connect(door.address()).await.unwrap();
    assert!(answers(&mut first).await);
    assert_eq!((door.links(), door.came()), (1, 1));
    drop(first);
    no_links(&door).await;
    assert_eq!(door.came(), 1);
}

#[tokio::test]
async fn forgotten_connections_are_silent_and_new_ones_are_well() {
    let door = Door::anywhere(echo().await).await;
    let mut old = TcpStream::connect(door.address()).await.unwrap();
    assert!(answers(&mut old).await);
    door.forget();
    assert!(!answers(&mut old).await);
    let mut new = TcpStream::connect(door.address()).await.unwrap();
    assert!(answers(&mut new).await);
    door.reset();
    assert_eq!(old.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn reset_connections_are_told_and_so_are_those_of_a_door_that_is_gone() {
    let door = Door::anywhere(echo().await).await;
    let address = door.address();
    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(answers(&mut first).await);
    door.reset();
    assert_eq!(first.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut second = TcpStream::connect(address).await.unwrap();
    assert!(answers(&mut second).await);
    drop(door);
    assert_eq!(second.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(PATIENCE, refused).await.expect("nobody listens any more");
}

#[tokio::test]
async fn a_delayed_door_connects_at_once_and_passes_things_on_later() {
    let door = Door::anywhere(echo().await).await;
    door.delay(SILENT);
    let began = Instant::now();
    let mut stream = TcpStream::connect(door.address()).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    stream.read_u8().await.unwrap();
    assert!(began.elapsed() >= SILENT);
}

#[tokio::test]
async fn a_hole_neither_accepts_nor_refuses() {
    let hole = Hole::dig((Ipv4Addr::LOCALHOST, 0).into()).await;
    assert!(timeout(SILENT, TcpStream::connect(hole.address())).await.is_err());
}

async fn answers(stream: &mut TcpStream) -> bool {
    stream.write_all(b"x").await.unwrap();
    timeout(SILENT, stream.read_u8()).await.is_ok_and(|answer| answer.is_ok_and(|byte| byte == b'x'))
}

async fn no_links(door: &Door) {
    let gone = async {
        while door.links() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("everybody has left");
}

/// Ends with the test's runtime.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reading, mut writing) = stream.split();
                tokio::io::copy(&mut reading, &mut writing).await
            });
        }
    });
    address
}
