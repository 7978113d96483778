//! What the adapters have in common: whole answers as the `http` crate has them, and tokens in its headers.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::call::{Answer, Attempt, Failed};

impl Answer for http::Response<Bytes> {
    fn status(&self) -> u16 {
        http::Response::status(self).as_u16()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    fn body(&self) -> &[u8] {
        self.body().as_ref()
    }
}

/// Where the surface has a token source, the attempt's token stands in `authorization`, whatever stood there.
pub(crate) fn authorize(headers: &mut HeaderMap, attempt: &Attempt) -> Result<(), Failed> {
    if let Some(token) = &attempt.token {
        let bearer = format!("Bearer {}", token.as_str());
        // The error does not quote the text.
        let mut bearer = HeaderValue::try_from(bearer).map_err(|error| Failed::NotSent(error.into()))?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    Ok(())
}
