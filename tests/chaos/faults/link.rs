//! The way to the server is bad: toxics of the fault proxy.

use fastrand::Rng;
use tokio::time::sleep;

use super::{Healed, Scene, between};
use crate::fleet::now_us;
use crate::judge::Span;
use crate::schedule::Kind;
use crate::tools::proxy::{Stream, Toxic};

/// # Panics
/// The kind is none of the link.
pub async fn poisoned(kind: Kind, scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let stream = if rng.bool() { Stream::Upstream } else { Stream::Downstream };
    let toxic = match kind {
        Kind::LinkLatency => Toxic::Latency { latency: rng.u64(60..400), jitter: rng.u64(0..50) },
        Kind::LinkBlackHole => Toxic::Timeout { timeout: 0 },
        Kind::LinkReset => Toxic::ResetPeer { timeout: rng.u64(0..20) },
        Kind::LinkSlicer => {
            Toxic::Slicer { average_size: rng.u64(10..60), size_variation: 5, delay: rng.u64(100..5000) }
        }
        Kind::LinkBandwidth => Toxic::Bandwidth { rate: 1 },
        Kind::LinkLimitData => Toxic::LimitData { bytes: rng.u64(50..2000) },
        _ => panic!("{kind:?} is none of the link"),
    };
    let proxy = scene.site.proxy();
    let name = proxy.add(stream, toxic).await.map_err(|error| error.to_string())?;
    let from_us = now_us();
    let span = between(rng, 1000, 3500);
    sleep(span).await;
    let to_us = now_us();
    proxy.remove(&name).await.map_err(|error| error.to_string())?;
    let silent = (kind == Kind::LinkBlackHole).then_some(Span { from_us, to_us });
    Ok(Healed { silent, ..Healed::now(format!("{} {toxic:?} for {span:.1?}", stream.name())) })
}
