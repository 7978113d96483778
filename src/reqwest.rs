//! Calls of a [`reqwest`](::reqwest) client (feature `reqwest`): `send` becomes [`send_through`](SendThrough::send_through).
//!
//! ```no_run
//! use call_budget::reqwest::SendThrough;
//! use call_budget::{CallBudget, Credential};
//!
//! # async fn price(budgets: CallBudget) -> Result<(), Box<dyn std::error::Error>> {
//! let client = reqwest::Client::builder()
//!     .redirect(reqwest::redirect::Policy::none())
//!     .retry(reqwest::retry::never())
//!     .build()?;
//! let answered = client
//!     .get("https://vendor.example/price")
//!     .send_through(&budgets, "kis/real/quote", &Credential::new("desk-1"))
//!     .await?;
//! println!("{} {:?}", answered.answer.status(), answered.answer.body());
//! # Ok(())
//! # }
//! ```
//!
//! The client must send what it is told, once. Each redirect that it follows and each retry of its own is a request that no
//! slot stands behind: turn both off, as above. An attempt ends at the surface's `attempt_timeout`; a timeout of the client
//! that is shorter counts the same.

use bytes::Bytes;

use crate::call::{Answered, Attempt, CallError, CallOptions, Credential, Failed};
use crate::clock::Clock;
use crate::coordinator::CallBudget;
use crate::http::authorize;
use crate::policy::verdict::Broken;
use crate::store::Store;

/// Sending with breaker and budget in front.
pub trait SendThrough: Sized {
    /// As [`SendThrough::send_through_with`], with nothing said beyond the surface.
    ///
    /// # Errors
    /// As [`CallBudget::call`].
    fn send_through<C: Clock, S: Store>(
        self,
        budgets: &CallBudget<C, S>,
        surface: &str,
        credential: &Credential,
    ) -> impl Future<Output = Result<Answered<http::Response<Bytes>>, CallError>> + Send {
        self.send_through_with(budgets, surface, credential, CallOptions::default())
    }

    /// Makes a call of this surface and reads the whole answer. The token of a surface that has them is sent as
    /// `authorization: Bearer`. A body that is a stream is sent once: what its first attempt came to is what the call comes to.
    ///
    /// # Errors
    /// As [`CallBudget::call_with`].
    fn send_through_with<C: Clock, S: Store>(
        self,
        budgets: &CallBudget<C, S>,
        surface: &str,
        credential: &Credential,
        options: CallOptions,
    ) -> impl Future<Output = Result<Answered<http::Response<Bytes>>, CallError>> + Send;
}

impl SendThrough for ::reqwest::RequestBuilder {
    async fn send_through_with<C: Clock, S: Store>(
        self,
        budgets: &CallBudget<C, S>,
        surface: &str,
        credential: &Credential,
        options: CallOptions,
    ) -> Result<Answered<http::Response<Bytes>>, CallError> {
        let (client, request) = self.build_split();
        // A request that cannot be written needs neither slot nor pass.
        let request = request.map_err(|error| CallError::Failed {
            surface: surface.into(),
            finding: None,
            attempts: 0,
            source: failed(error),
        })?;
        let mut once = Some(request);
        let next = move |attempt: Attempt| {
            let again = once.as_ref().and_then(::reqwest::Request::try_clone);
            let request = again.or_else(|| once.take());
            attempt_of(client.clone(), request, attempt)
        };
        budgets.call_with(surface, credential, options, next).await
    }
}

async fn attempt_of(
    client: ::reqwest::Client,
    request: Option<::reqwest::Request>,
    attempt: Attempt,
) -> Result<http::Response<Bytes>, Failed> {
    let Some(mut request) = request else {
        return Err(Failed::NotSent("the body is a stream, which can be sent only once".into()));
    };
    authorize(request.headers_mut(), &attempt)?;
    let mut response = client.execute(request).await.map_err(failed)?;
    attempt.heard();
    let (status, version) = (response.status(), response.version());
    let headers = std::mem::take(response.headers_mut());
    let body = response.bytes().await.map_err(failed)?;
    let mut answer = http::Response::new(body);
    (*answer.status_mut(), *answer.version_mut(), *answer.headers_mut()) = (status, version, headers);
    Ok(answer)
}

fn failed(error: ::reqwest::Error) -> Failed {
    let how = if error.is_builder() {
        None
    } else if error.is_connect() {
        // Before the timeout: one while connecting is both.
        Some(Broken::NotConnected)
    } else if error.is_timeout() {
        Some(Broken::TimedOut)
    } else {
        Some(Broken::Interrupted)
    };
    // An address may hold a key.
    let source = error.without_url().into();
    match how {
        Some(how) => Failed::Broken { how, source },
        None => Failed::NotSent(source),
    }
}
