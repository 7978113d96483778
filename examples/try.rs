use call_budget::*;
use std::time::{Duration, Instant};
#[tokio::main]
async fn main() {
    let url = "postgresql://postgres@127.0.0.1:54999/t1";
    let mut s = Settings::default();
    s.enabled = true;
    s.database_url = Some(url.into());
    s.rtt_max = Duration::from_millis(40);
    let cb = CallBudget::new(&s).unwrap();
    println!("{:?}", cb.acquire("nope", "a").await.map(|_| ()));
    println!("{:?}", cb.acquire("fast", "nope").await.map(|_| ()));
    println!("{:?}", cb.acquire_with("fast", "a", Options { cost: 3, max_wait: None }).await.map(|_| ()));
    for _ in 0..3 {
        let p = cb.acquire("k", "order").await;
        println!("{:?}", p.as_ref().map(|p| p.nonce()).map_err(|e| e.to_string()));
    }
    let (client, conn) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(conn);
    let st = client.prepare("UPDATE raw SET v = v + 1 WHERE k = 'x' RETURNING v").await.unwrap();
    for _ in 0..5 {
        let mut raw = vec![];
        let mut acq = vec![];
        for _ in 0..800 {
            let t = Instant::now();
            client.query_one(&st, &[]).await.unwrap();
            raw.push(t.elapsed());
        }
        for _ in 0..800 {
            let t = Instant::now();
            let p = cb.acquire("fast", "a").await.unwrap();
            acq.push(t.elapsed());
            drop(p.start());
        }
        raw.sort();
        acq.sort();
        println!("raw {:?} acq {:?} ratio {:.2}", raw[400], acq[400], acq[400].as_secs_f64() / raw[400].as_secs_f64());
    }
    println!("{:?}", cb.counters());
}
