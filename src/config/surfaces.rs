//! Surfaces: what joins a kind of call to its budget, class, vendor table, breaker and retry.

use std::sync::Arc;
use std::time::Duration;

use super::{Settings, SettingsError};
use crate::policy::breaker::Rules;
use crate::policy::retry::Retry;
use crate::vendor::Vendor;

/// The surfaces of this process, checked.
#[derive(Clone, Debug, Default)]
pub struct Surfaces {}

/// One kind of call, such as `kis/real/quote`.
#[derive(Clone, Debug)]
pub struct Surface {
    pub name: Arc<str>,
    /// All but the last part of the name, such as `kis/real`: where a credential is known.
    pub account: Arc<str>,
    pub budget: Arc<str>,
    /// The class of a call that names none.
    pub class: Arc<str>,
    pub vendor: Arc<Vendor>,
    /// The breaker in front and its name, which surfaces that share it have in common; none: there is none.
    pub breaker: Option<(Arc<str>, Rules)>,
    pub retry: Option<Retry>,
    /// Whether a call of which nobody knows if it was carried out may be sent again.
    pub idempotent: bool,
    pub attempt_timeout: Duration,
    /// The surface that issues its tokens.
    pub token_surface: Option<Arc<str>>,
}

impl Surfaces {
    /// The surfaces that the settings name; files (vendor tables, holidays) are read here.
    ///
    /// # Errors
    /// What cannot be, by name and with the way out.
    pub fn of(settings: &Settings) -> Result<Self, SettingsError> {
        let _ = settings;
        todo!()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Surface>> {
        let _ = name;
        todo!()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Surface>> {
        [].into_iter()
    }

    /// Whether calls of this class may be probes.
    pub fn may_probe(&self, class: &str) -> bool {
        let _ = class;
        todo!()
    }
}
