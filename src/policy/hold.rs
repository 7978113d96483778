//! Holds: "this scope is refused until ..., because ...". No breaker state: who is held says nothing of the vendor.
//!
//! A credential is held for a while, or until it changes. The second is a doubt that time alone does not settle: after 60 s,
//! doubling to 1 h, one call is let through, a *trial*, and its answer decides for all others. A surface is held for a while;
//! the surface that issues tokens is one, so a hold on it stops new tokens and no call that has one.
//!
//! The longest hold wins, a shorter one never shortens it. What is over is forgotten: labels may be millions of users.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Instant;
use super::verdict::{Action, Finding, Verdict};

/// The first wait of a hold "until it changes".
const FIRST: Duration = Duration::from_secs(60);
/// Its longest wait.
const LONGEST: Duration = Duration::from_secs(3600);
/// A trial without an answer for this long is replaced.
const TRIAL_LOST: Duration = Duration::from_secs(60);
/// An answer to a trial can come at any time: who is refused because of one is not sent further away than this.
const SOON: Duration = Duration::from_secs(1);
/// A doubt that nobody has tried for this long after its wait is forgotten, and begins anew with the first wait.
const FORGOTTEN: Duration = LONGEST;
/// So many are forgotten at once, at most: no call pays for all the others. More than one, so that they grow fewer.
const FORGET: usize = 8;
/// So many credentials are shown, at most.
const SHOWN: usize = 20;

/// Who makes a call, as holds see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Provider and environment, such as `kis/real`: a credential is known there, whatever the surface.
    pub account: Arc<str>,
    pub surface: Arc<str>,
    /// The surface that issues the tokens of this one, where there is one.
    pub token_surface: Option<Arc<str>>,
    /// The opaque label, never the secret.
    pub credential: Arc<str>,
    /// Changes when what stands behind the label changes: no hold on the one before concerns it.
    pub revision: u64,
    /// Its surface issues the tokens of others: what it does for a trial that is out is a part of that.
    pub issues_tokens: bool,
}

/// Why a call is refused although the breaker lets it pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What is held, such as `credential "alice" at kis/real` or `surface kis/real/balance`.
    pub scope: String,
    pub until: Instant,
    pub why: Arc<str>,
}

/// The one call that is let through after a hold, where it is one. Dropping it lets another one through.
#[must_use = "settle it: a trial that is dropped tells nothing of the credential"]
#[derive(Debug)]
pub struct Trial {
    out: Option<Arc<()>>,
    /// It fetches the token that the trial needs: it can fail the trial, and its success alone proves nothing.
    part: bool,
}

impl Trial {
    /// No trial.
    pub const NONE: Self = Self { out: None, part: false };
}

#[derive(Debug, Default)]
pub struct Holds {
    credentials: BTreeMap<Key, Entry>,
    /// When each of them can be forgotten.
    over: BTreeSet<(Instant, Key)>,
    /// As many as there are surfaces in the settings, at most.
    surfaces: HashMap<Arc<str>, Hold>,
}

/// A credential as it is now: with another revision it is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    account: Arc<str>,
    credential: Arc<str>,
    revision: u64,
}

#[derive(Debug, Default)]
struct Entry {
    pause: Option<Hold>,
    doubt: Option<Doubt>,
}

#[derive(Clone, Debug)]
struct Hold {
    until: Instant,
    why: Arc<str>,
}

#[derive(Debug)]
struct Doubt {
    hold: Hold,
    /// The wait that ends at `hold.until`.
    wait: Duration,
    trial: Option<Out>,
}

/// A trial that was let through.
#[derive(Debug)]
struct Out {
    /// Gone as soon as the trial is dropped.
    alive: Weak<()>,
    since: Instant,
}

impl Holds {
    /// Whether this call may go now.
    ///
    /// # Errors
    /// The hold that lasts longest.
    pub fn admit(&mut self, now: Instant, who: &Holder) -> Result<Trial, Held> {
        if self.credentials.is_empty() && self.surfaces.is_empty() {
            return Ok(Trial::NONE);
        }
        self.forget(now);
        let key = Key::of(who);
        let entry = self.credentials.get(&key).filter(|entry| now < entry.over());
        let doubt = entry.and_then(|entry| entry.doubt.as_ref());
        if who.issues_tokens
            && let Some(out) = doubt.and_then(|doubt| doubt.out(now))
        {
            return self.beside_the_doubt(now, who, Trial { out: Some(out), part: true });
        }
        let surface = self.surfaces.get(&who.surface).and_then(|hold| hold.held(now, || of_surface(&who.surface)));
        if let Some(held) = longest(surface, entry.and_then(|entry| entry.held(now, &key))) {
            return Err(held);
        }
        if doubt.is_none() {
            return Ok(Trial::NONE);
        }
        let place = Arc::new(());
        let out = Out { alive: Arc::downgrade(&place), since: now };
        self.change(now, &key, |entry| {
            if let Some(doubt) = &mut entry.doubt {
                doubt.trial = Some(out);
            }
        });
        Ok(Trial { out: Some(place), part: false })
    }

    /// Whether a call that was let through, and has waited since, may still go.
    ///
    /// # Errors
    /// As [`Holds::admit`]; then its trial is over, where it is one.
    pub fn admit_again(&mut self, now: Instant, who: &Holder, trial: Trial) -> Result<Trial, Held> {
        let doubt = self.credentials.get(&Key::of(who)).and_then(|entry| entry.doubt.as_ref());
        if doubt.is_some_and(|doubt| doubt.is_tried_by(&trial)) {
            return self.beside_the_doubt(now, who, trial);
        }
        drop(trial);
        self.admit(now, who)
    }

    /// What is held besides the doubt that this trial is about.
    fn beside_the_doubt(&self, now: Instant, who: &Holder, trial: Trial) -> Result<Trial, Held> {
        let surface = self.surfaces.get(&who.surface).and_then(|hold| hold.held(now, || of_surface(&who.surface)));
        let key = Key::of(who);
        let pause = self.credentials.get(&key).and_then(|entry| entry.pause.as_ref());
        let pause = pause.and_then(|hold| hold.held(now, || of_credential(&key)));
        longest(surface, pause).map_or(Ok(trial), Err)
    }

    /// The call ended as `finding` says, or (`None`) without anything learned.
    pub fn settle(&mut self, now: Instant, who: &Holder, trial: Trial, finding: Option<&Finding>) {
        self.forget(now);
        let Some(finding) = finding else { return };
        let why = &finding.meaning;
        match finding.action {
            Action::HoldCredentialUntilChanged => self.doubt(now, who, &trial, why),
            Action::RefreshToken if who.token_surface.is_none() => self.doubt(now, who, &trial, why),
            Action::HoldCredential(wait) | Action::PushBackAndHoldCredential(wait) => {
                self.change(now, &Key::of(who), |entry| lengthen(&mut entry.pause, now + wait, why));
            }
            Action::HoldSurface(wait) => self.hold_surface(now, &who.surface, wait, why),
            Action::HoldTokenSurface(wait) => {
                self.hold_surface(now, who.token_surface.as_ref().unwrap_or(&who.surface), wait, why);
            }
            Action::Nothing | Action::PushBack(_) | Action::RefreshToken => {}
        }
        // Only a trial ends a doubt: other good answers may be to calls that were under way before it began.
        if finding.verdict == Verdict::Good && trial.out.is_some() && !trial.part {
            self.change(now, &Key::of(who), |entry| {
                if entry.doubt.as_ref().is_some_and(|doubt| doubt.is_tried_by(&trial)) {
                    entry.doubt = None;
                }
            });
        }
    }

    /// What is held now of this surface as a whole, for people.
    pub fn of_surface(&self, now: Instant, surface: &str) -> Option<Held> {
        self.surfaces.get(surface).and_then(|hold| hold.held(now, || of_surface(surface)))
    }

    /// Which credentials of this account are held now, for people: the longest first, and where there are many, a line that
    /// counts the rest. A credential that has changed is shown until its hold runs out.
    pub fn of_account(&self, now: Instant, account: &str) -> Vec<Held> {
        let first = Key { account: account.into(), credential: "".into(), revision: 0 };
        let (mut count, mut longest) = (0, BinaryHeap::with_capacity(SHOWN + 2));
        // They may be a hundred thousand, and calls wait meanwhile: only those that are shown are written out.
        for (key, entry) in self.credentials.range(first..).take_while(|(key, _)| &*key.account == account) {
            let Some((until, _)) = entry.longest(now) else { continue };
            count += 1;
            let next = Reverse((until, Reverse(key)));
            if longest.len() <= SHOWN {
                longest.push(next);
            } else if let Some(mut last) = longest.peek_mut()
                && next < *last
            {
                *last = next;
            }
        }
        let longest = longest.into_sorted_vec();
        let longest =
            longest.into_iter().filter_map(|Reverse((_, Reverse(key)))| self.credentials.get(key)?.held(now, key));
        let mut held: Vec<Held> = longest.collect();
        if let Some(next) = held.get_mut(SHOWN) {
            next.scope = format!("{} more credentials at {account}", count - SHOWN);
        }
        held
    }

    /// The vendor does not accept this credential.
    fn doubt(&mut self, now: Instant, who: &Holder, trial: &Trial, why: &Arc<str>) {
        self.change(now, &Key::of(who), |entry| {
            let wait = match &entry.doubt {
                None => FIRST,
                Some(doubt) if doubt.is_tried_by(trial) => (doubt.wait * 2).min(LONGEST),
                // Calls that were under way together fail together: one wait is enough for all of them.
                Some(doubt) if now < doubt.hold.until || doubt.free_at(now).is_some() => return,
                Some(doubt) => doubt.wait,
            };
            entry.doubt = Some(Doubt { hold: Hold { until: now + wait, why: Arc::clone(why) }, wait, trial: None });
        });
    }

    fn hold_surface(&mut self, now: Instant, surface: &Arc<str>, wait: Duration, why: &Arc<str>) {
        self.surfaces.retain(|_, hold| now < hold.until);
        let mut hold = self.surfaces.remove(surface);
        lengthen(&mut hold, now + wait, why);
        self.surfaces.extend(hold.map(|hold| (Arc::clone(surface), hold)));
    }

    /// Changes what is kept of a credential, and when that can be forgotten.
    fn change(&mut self, now: Instant, key: &Key, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.credentials.remove(key).unwrap_or_default();
        self.over.remove(&(entry.over(), key.clone()));
        if entry.over() <= now {
            entry = Entry::default();
        }
        change(&mut entry);
        if now < entry.over() {
            self.over.insert((entry.over(), key.clone()));
            self.credentials.insert(key.clone(), entry);
        }
    }

    fn forget(&mut self, now: Instant) {
        for _ in 0..FORGET {
            if self.over.first().is_none_or(|(over, _)| now < *over) {
                break;
            }
            if let Some((_, key)) = self.over.pop_first() {
                self.credentials.remove(&key);
            }
        }
    }
}

impl Key {
    fn of(who: &Holder) -> Self {
        Self { account: Arc::clone(&who.account), credential: Arc::clone(&who.credential), revision: who.revision }
    }
}

impl Entry {
    fn held(&self, now: Instant, key: &Key) -> Option<Held> {
        let (until, why) = self.longest(now)?;
        Some(Held { scope: of_credential(key), until, why: Arc::clone(why) })
    }

    /// Until when it is held, and why.
    fn longest(&self, now: Instant) -> Option<(Instant, &Arc<str>)> {
        let pause = self.pause.as_ref().map(|hold| (hold.until, &hold.why));
        let doubt = self.doubt.as_ref().map(|doubt| (doubt.free_at(now).unwrap_or(doubt.hold.until), &doubt.hold.why));
        pause.into_iter().chain(doubt).filter(|(until, _)| now < *until).max_by_key(|(until, _)| *until)
    }

    /// When nothing of it matters any longer.
    fn over(&self) -> Instant {
        let pause = self.pause.as_ref().map(|hold| hold.until);
        let doubt = self.doubt.as_ref().map(|doubt| {
            let tried = doubt.trial.as_ref().map_or(Instant::default(), |out| out.since + TRIAL_LOST);
            tried.max(doubt.hold.until + FORGOTTEN)
        });
        pause.max(doubt).unwrap_or_default()
    }
}

impl Doubt {
    /// While a trial is out: when to come back.
    fn free_at(&self, now: Instant) -> Option<Instant> {
        let out = self.trial.as_ref().filter(|out| out.alive.strong_count() > 0)?;
        let lost = out.since + TRIAL_LOST;
        (now < lost).then(|| lost.min(now + SOON))
    }

    /// The trial that is out and not lost.
    fn out(&self, now: Instant) -> Option<Arc<()>> {
        self.trial.as_ref().filter(|out| now < out.since + TRIAL_LOST)?.alive.upgrade()
    }

    fn is_tried_by(&self, trial: &Trial) -> bool {
        let out = self.trial.as_ref().and_then(|out| out.alive.upgrade());
        out.zip(trial.out.as_ref()).is_some_and(|(out, trial)| Arc::ptr_eq(&out, trial))
    }
}

impl Hold {
    fn held(&self, now: Instant, scope: impl FnOnce() -> String) -> Option<Held> {
        (now < self.until).then(|| Held { scope: scope(), until: self.until, why: Arc::clone(&self.why) })
    }
}

fn of_credential(key: &Key) -> String {
    format!("credential \"{}\" at {}", key.credential, key.account)
}

fn of_surface(surface: &str) -> String {
    format!("surface {surface}")
}

fn longest(one: Option<Held>, other: Option<Held>) -> Option<Held> {
    one.into_iter().chain(other).max_by_key(|held| held.until)
}

fn lengthen(hold: &mut Option<Hold>, until: Instant, why: &Arc<str>) {
    if hold.as_ref().is_none_or(|hold| hold.until < until) {
        *hold = Some(Hold { until, why: Arc::clone(why) });
    }
}
