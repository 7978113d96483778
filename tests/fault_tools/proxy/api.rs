//! The HTTP API as toxiproxy documents it: statuses, names, defaults, shapes.

use hyper::Method;
use serde_json::{Value, json};

use super::Rig;
use crate::tools::proxy::{ApiError, Stream, Toxic, Toxiproxy};

#[tokio::test]
async fn a_proxy_has_the_documented_shape() {
    let rig = Rig::new().await;
    let upstream = rig.upstream.local_addr().unwrap().to_string();
    let shape = json!({
        "name": "rig",
        "listen": rig.proxy.address(),
        "upstream": upstream,
        "enabled": true,
        "toxics": [],
    });
    assert_eq!(get(&rig, "/proxies/rig").await, shape);
    assert_eq!(rig.toxiproxy.proxies().await.unwrap(), json!({ "rig": shape }));
    rig.proxy.disable().await.unwrap();
    assert_eq!(get(&rig, "/proxies/rig").await["enabled"], false);
    assert_eq!(get(&rig, "/proxies/rig").await["listen"], rig.proxy.address(), "the port stays");
    assert!(rig.toxiproxy.version().await.unwrap().starts_with("2."));
}

#[tokio::test]
async fn a_toxic_has_the_documented_shape_and_defaults() {
    let rig = Rig::new().await;
    let latency = json!({
        "name": "latency_downstream",
        "type": "latency",
        "stream": "downstream",
        "toxicity": 1.0,
        "attributes": { "latency": 1_000, "jitter": 0 },
    });
    let short = json!({ "type": "latency", "attributes": { "latency": 1_000 } });
    assert_eq!(post(&rig, "/proxies/rig/toxics", short).await.unwrap(), latency);
    let slicer = json!({
        "name": "thin",
        "type": "slicer",
        "stream": "upstream",
        "toxicity": 0.5,
        "attributes": { "average_size": 10, "size_variation": 2, "delay": 7 },
    });
    assert_eq!(post(&rig, "/proxies/rig/toxics", slicer.clone()).await.unwrap(), slicer);
    assert_eq!(rig.proxy.toxics().await.unwrap(), json!([slicer, latency]), "upstream comes first");
    assert_eq!(get(&rig, "/proxies/rig/toxics/thin").await, slicer);
    assert_eq!(get(&rig, "/proxies/rig").await["toxics"], json!([slicer, latency]));

    let mut changed = latency;
    changed["attributes"]["jitter"] = json!(5);
    changed["toxicity"] = json!(0.25);
    let path = "/proxies/rig/toxics/latency_downstream";
    let change = json!({ "attributes": { "jitter": 5 }, "toxicity": 0.25, "name": "other" });
    let answer = rig.toxiproxy.call(Method::PATCH, path, Some(change)).await.unwrap();
    assert_eq!(answer, changed, "what is not named stays, and the name cannot change");
}

#[tokio::test]
async fn every_toxic_is_written_as_it_is_read() {
    let rig = Rig::new().await;
    let all = [
        Toxic::Latency { latency: 1, jitter: 2 },
        Toxic::Timeout { timeout: 3 },
        Toxic::Bandwidth { rate: 4 },
        Toxic::SlowClose { delay: 5 },
        Toxic::ResetPeer { timeout: 6 },
        Toxic::Slicer { average_size: 7, size_variation: 8, delay: 9 },
        Toxic::LimitData { bytes: 10 },
    ];
    let names =
        ["latency", "timeout", "bandwidth", "slow_close", "reset_peer", "slicer", "limit_data"].map(str::to_owned);
    for (toxic, name) in all.into_iter().zip(names) {
        assert_eq!(rig.proxy.add(Stream::Upstream, toxic).await.unwrap(), format!("{name}_upstream"));
        let shown = get(&rig, &format!("/proxies/rig/toxics/{name}_upstream")).await;
        assert_eq!(Toxic::from_parts(&name, &shown["attributes"]), Ok(toxic));
    }
    assert_eq!(rig.proxy.toxics().await.unwrap().as_array().map(Vec::len), Some(7));
    rig.proxy.disable().await.unwrap();
    rig.toxiproxy.reset().await.unwrap();
    assert_eq!(rig.proxy.toxics().await.unwrap(), json!([]), "reset removes them");
    assert_eq!(get(&rig, "/proxies/rig").await["enabled"], true, "and enables");
}

#[tokio::test]
async fn what_is_not_there_is_404() {
    let rig = Rig::new().await;
    for path in ["/proxies/none", "/proxies/none/toxics", "/proxies/rig/toxics/none", "/nowhere"] {
        let error = rig.toxiproxy.call(Method::GET, path, None).await.unwrap_err();
        assert_eq!(error.status(), Some(404), "{path}: {error}");
    }
    assert_eq!(rig.proxy.remove("none").await.unwrap_err().status(), Some(404));
    let error = rig.toxiproxy.call(Method::DELETE, "/proxies/none", None).await.unwrap_err();
    assert_eq!(error.to_string(), "toxiproxy answers 404: proxy not found");
    rig.toxiproxy.delete_if_there("none").await.unwrap();
    rig.toxiproxy.delete_if_there("rig").await.unwrap();
    assert_eq!(rig.toxiproxy.proxies().await.unwrap(), json!({}));
}

#[tokio::test]
async fn what_is_there_already_is_409() {
    let rig = Rig::new().await;
    let error = rig.toxiproxy.create("rig", "127.0.0.1:0", "127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.status(), Some(409), "{error}");
    rig.proxy.add(Stream::Upstream, Toxic::Timeout { timeout: 0 }).await.unwrap();
    let error = rig.proxy.add(Stream::Upstream, Toxic::Timeout { timeout: 0 }).await.unwrap_err();
    assert_eq!(error.status(), Some(409), "{error}");
    rig.proxy.add(Stream::Downstream, Toxic::Timeout { timeout: 0 }).await.unwrap();
}

#[tokio::test]
async fn what_makes_no_sense_is_400_and_changes_nothing() {
    let rig = Rig::new().await;
    let toxics = "/proxies/rig/toxics";
    let bad = [
        ("/proxies", json!({ "upstream": "127.0.0.1:1" })),
        ("/proxies", json!({ "name": "no upstream" })),
        ("/proxies", json!(7)),
        ("/proxies/rig", json!({ "enabled": "no" })),
        (toxics, json!({ "type": "toothache" })),
        (toxics, json!({ "attributes": {} })),
        (toxics, json!({ "type": "latency", "stream": "sideways" })),
        (toxics, json!({ "type": "latency", "toxicity": 2 })),
        (toxics, json!({ "type": "latency", "attributes": { "latency": -1 } })),
        (toxics, json!({ "type": "latency", "attributes": { "latenzy": 1 } })),
    ];
    let before = rig.toxiproxy.proxies().await.unwrap();
    for (path, body) in bad {
        let error = post(&rig, path, body.clone()).await.unwrap_err();
        assert_eq!(error.status(), Some(400), "{path} {body}: {error}");
    }
    assert_eq!(rig.toxiproxy.proxies().await.unwrap(), before);
    let error = rig.toxiproxy.call(Method::PUT, "/proxies", None).await.unwrap_err();
    assert_eq!(error.status(), Some(405));
}

#[tokio::test]
async fn a_port_that_is_taken_is_500_and_leaves_no_proxy() {
    let rig = Rig::new().await;
    let error = rig.toxiproxy.create("second", &rig.proxy.address(), "127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.status(), Some(500), "{error}");
    assert!(rig.toxiproxy.proxies().await.unwrap().get("second").is_none());
}

#[tokio::test]
async fn a_new_upstream_ends_the_connections_and_takes_the_next() {
    let rig = Rig::new().await;
    let (mut client, _server) = rig.connection().await;
    let other = Rig::new().await;
    let upstream = other.upstream.local_addr().unwrap().to_string();
    post(&rig, "/proxies/rig", json!({ "upstream": upstream })).await.unwrap();
    assert_eq!(super::drain(&mut client).await, (vec![], None));
    let mut client = super::soon(tokio::net::TcpStream::connect(rig.proxy.address())).await.unwrap();
    let (mut server, _) = super::soon(other.upstream.accept()).await.unwrap();
    super::send(&mut client, b"moved").await;
    assert_eq!(super::receive(&mut server, 5).await, b"moved");
}

#[tokio::test]
async fn without_a_server_a_call_says_so() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = Toxiproxy::at(&format!("http://{gone}")).version().await.unwrap_err();
    assert!(matches!(error, ApiError::NoAnswer(_)) && error.to_string().contains("refused"), "{error}");
}

async fn get(rig: &Rig, path: &str) -> Value {
    rig.toxiproxy.call(Method::GET, path, None).await.unwrap()
}

async fn post(rig: &Rig, path: &str, body: Value) -> Result<Value, ApiError> {
    rig.toxiproxy.call(Method::POST, path, Some(body)).await
}
