//! A [`Layer`] that puts breaker and budget in front of a [`Service`] of HTTP requests (feature `tower`).
//!
//! ```no_run
//! use bytes::Bytes;
//! use call_budget::tower::CallBudgetLayer;
//! use call_budget::{CallBudget, CallError, Credential};
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tower_layer::Layer;
//! use tower_service::Service;
//!
//! # async fn price<S>(budgets: CallBudget, client: S) -> Result<Response<Full<Bytes>>, CallError>
//! # where
//! #     S: Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>> + Clone + Send + 'static,
//! #     S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
//! #     S::Future: Send,
//! # {
//! let layer = CallBudgetLayer::new(budgets, |_| "kis/real/quote", |_| Credential::new("desk-1"));
//! let mut client = layer.layer(client);
//! std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
//! client.call(Request::get("https://vendor.example/price").body(Full::default()).expect("is a request")).await
//! # }
//! ```
//!
//! The inner service must send what it is told, once, and soon: what it does on its own (redirects, retries) no slot stands
//! behind, and what it keeps waiting leaves its send window. Layers that limit, buffer or delay belong outside.

use std::error::Error;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower_layer::Layer;
use tower_service::Service;

use crate::call::{Answered, Attempt, CallError, CallOptions, Credential, Failed};
use crate::clock::{Clock, SystemClock};
use crate::coordinator::CallBudget;
use crate::http::authorize;
use crate::policy::verdict::Broken;
use crate::store::{PostgresStore, Store};

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Puts breaker and budget in front of a service.
pub struct CallBudgetLayer<C: Clock = SystemClock, S: Store = PostgresStore<C>>(Setup<C, S>);

/// A service with breaker and budget in front.
///
/// Every whole answer is `Ok`, whatever its status. What it means is among its extensions, as `Answered<()>`. Its body is
/// whole. A request whose extensions hold [`CallOptions`] is made with these. Whether it may be sent again is for its
/// surface and these options to say, not for its method: a POST can be a query. The token of a surface that has them is
/// sent as `authorization: Bearer`.
///
/// `poll_ready` asks the inner service, and the first attempt uses the place that this reserves. A later attempt is made only
/// if the inner service is ready at that moment: waiting for it would miss the send window. Else the call ends with what
/// the attempt before came to, and nothing is held against the vendor.
pub struct CallBudgetService<I, C: Clock = SystemClock, S: Store = PostgresStore<C>> {
    inner: I,
    setup: Setup<C, S>,
}

struct Setup<C: Clock, S: Store> {
    budgets: CallBudget<C, S>,
    surface_of: Of<Arc<str>>,
    credential_of: Of<Credential>,
    failed: Arc<dyn Fn(BoxError) -> Failed + Send + Sync>,
}

/// What is said of a request by its head.
type Of<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

impl<C: Clock, S: Store> CallBudgetLayer<C, S> {
    /// The surface and the credential of a request are what these say of its head.
    pub fn new<N: Into<Arc<str>>>(
        budgets: CallBudget<C, S>,
        surface_of: impl Fn(&Parts) -> N + Send + Sync + 'static,
        credential_of: impl Fn(&Parts) -> Credential + Send + Sync + 'static,
    ) -> Self {
        Self(Setup {
            budgets,
            surface_of: Arc::new(move |head| surface_of(head).into()),
            credential_of: Arc::new(credential_of),
            failed: Arc::new(|source| Failed::Broken { how: Broken::Interrupted, source }),
        })
    }

    /// What an error of the inner service means. Where not said, every one is [`Broken::Interrupted`]: the request may have
    /// been carried out. Say [`Broken::NotConnected`] only of what never left (with hyper's pooled client: `is_connect()`), and
    /// [`Failed::NotSent`] of what the service refused by itself.
    #[must_use]
    pub fn failed_by(mut self, failed: impl Fn(BoxError) -> Failed + Send + Sync + 'static) -> Self {
        self.0.failed = Arc::new(failed);
        self
    }
}

impl<I, C: Clock, S: Store> Layer<I> for CallBudgetLayer<C, S> {
    type Service = CallBudgetService<I, C, S>;

    fn layer(&self, inner: I) -> Self::Service {
        CallBudgetService { inner, setup: self.0.clone() }
    }
}

impl<I, B, R, C, S> Service<Request<B>> for CallBudgetService<I, C, S>
where
    I: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Error: Into<BoxError>,
    I::Future: Send,
    B: Clone + Send + 'static,
    R: Body + Send,
    R::Data: Send,
    R::Error: Into<BoxError>,
    C: Clock,
    S: Store,
{
    type Response = Response<Full<Bytes>>;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, CallError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // No request yet, so no surface.
        let not_sent = |error: I::Error| CallError::Failed {
            surface: "*".into(),
            finding: None,
            attempts: 0,
            source: Failed::NotSent(error.into()),
        };
        self.inner.poll_ready(cx).map_err(not_sent)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready goes; its clone is not, and stays.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        let mut ready = true;
        let setup = self.setup.clone();
        let failed = Arc::clone(&setup.failed);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let (surface, credential) = ((setup.surface_of)(&head), (setup.credential_of)(&head));
            let options = head.extensions.get::<CallOptions>().cloned().unwrap_or_default();
            let request = move |attempt: Attempt| {
                let mut request = Request::from_parts(head.clone(), body.clone());
                let sent = authorize(request.headers_mut(), &attempt)
                    .and_then(|()| if mem::take(&mut ready) { Ok(()) } else { ready_now(&mut inner) })
                    .map(|()| inner.call(request));
                let failed = Arc::clone(&failed);
                async move { whole(sent?.await.map_err(|error| failed(error.into()))?, &attempt).await }
            };
            let Answered { answer, finding, attempts, elapsed } =
                setup.budgets.call_with(&surface, &credential, options, request).await?;
            let mut response = answer.map(Full::new);
            response.extensions_mut().insert(Answered { answer: (), finding, attempts, elapsed });
            Ok(response)
        })
    }
}

/// Whether the service is ready at this moment.
fn ready_now<I, B>(inner: &mut I) -> Result<(), Failed>
where
    I: Service<Request<B>>,
    I::Error: Into<BoxError>,
{
    match std::future::poll_fn(|cx| inner.poll_ready(cx)).now_or_never() {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(Failed::NotSent(error.into())),
        None => Err(Failed::NotSent("the inner service is not ready for another attempt".into())),
    }
}

async fn whole<R>(response: Response<R>, attempt: &Attempt) -> Result<Response<Bytes>, Failed>
where
    R: Body,
    R::Error: Into<BoxError>,
{
    attempt.heard();
    let (head, body) = response.into_parts();
    let body = body.collect().await;
    let body = body.map_err(|error| Failed::Broken { how: Broken::Interrupted, source: error.into() })?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

impl<C: Clock, S: Store> Clone for CallBudgetLayer<C, S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I: Clone, C: Clock, S: Store> Clone for CallBudgetService<I, C, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), setup: self.setup.clone() }
    }
}

impl<C: Clock, S: Store> Clone for Setup<C, S> {
    fn clone(&self) -> Self {
        Self {
            budgets: self.budgets.clone(),
            surface_of: Arc::clone(&self.surface_of),
            credential_of: Arc::clone(&self.credential_of),
            failed: Arc::clone(&self.failed),
        }
    }
}
