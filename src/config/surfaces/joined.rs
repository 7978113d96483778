//! What surfaces say of each other, looked up; and what could never work, refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Draft, Surface, Surfaces};
use crate::config::SettingsError;

type Drafts<'a> = BTreeMap<&'a str, Draft<'a>>;

pub(super) fn joined(drafts: &Drafts<'_>, classes: &Surfaces) -> Result<Vec<Surface>, SettingsError> {
    let joined: Vec<Surface> = drafts.values().map(|draft| join(draft, drafts)).collect::<Result<_, _>>()?;
    for (draft, surface) in drafts.values().zip(&joined) {
        not_tripped_by_one_call(draft, surface)?;
        not_lost_while_it_may_still_answer(draft, surface, classes)?;
        not_open_for_ever(draft, surface, &joined, classes)?;
        not_waiting_for_itself(draft, surface, &joined, drafts)?;
    }
    Ok(joined)
}

fn join(draft: &Draft<'_>, drafts: &Drafts<'_>) -> Result<Surface, SettingsError> {
    let mut surface = draft.surface.clone();
    if let Some(name) = draft.breaker_of {
        let owner = last(draft, "breaker_of", drafts, |draft| draft.breaker_of)?;
        surface.breaker.clone_from(&owner.surface.breaker);
        if surface.breaker.is_none() {
            return Err(draft.table.refused(
                "breaker_of",
                format_args!(
                    "names {name:?}, but {:?} has none: write breaker = \"none\" here too",
                    owner.surface.name
                ),
            ));
        }
    }
    if draft.token.is_some() {
        last(draft, "token", drafts, |draft| draft.token)?;
        surface.token_surface = draft.token.map(Arc::from);
    }
    Ok(surface)
}

/// The end of the way from surface to surface along a key.
fn last<'d, 'a>(
    first: &'d Draft<'a>,
    key: &str,
    drafts: &'d Drafts<'a>,
    next: impl Fn(&Draft<'a>) -> Option<&'a str>,
) -> Result<&'d Draft<'a>, SettingsError> {
    let mut way = vec![&*first.surface.name];
    let mut draft = first;
    while let Some(name) = next(draft) {
        let none = "there is no other surface";
        let others = || drafts.keys().copied().filter(|other| *other != &*draft.surface.name);
        let next = drafts.get(name).ok_or_else(|| draft.table.unknown(key, name, others(), none))?;
        let seen = way.contains(&name);
        way.push(name);
        if seen {
            return Err(first.table.refused(
                key,
                format_args!("leads in a circle ({}): take it away from one of them", way.join(" -> ")),
            ));
        }
        draft = next;
    }
    Ok(draft)
}

/// A fresh token after a refusal is no second bad verdict, so it is no attempt here.
fn not_tripped_by_one_call(draft: &Draft<'_>, surface: &Surface) -> Result<(), SettingsError> {
    let Some((_, rules)) = &surface.breaker else { return Ok(()) };
    let attempts = surface.retry.as_ref().map_or(1, |retry| retry.waits.len().saturating_add(1));
    match rules.tripped_by_one_call(u32::try_from(attempts).unwrap_or(u32::MAX)) {
        None => Ok(()),
        Some(rule) => {
            let (key, fewer) = match surface.retry {
                Some(_) => ("retry", ", or take a retry of fewer attempts"),
                None => (breaker_key(draft), ""),
            };
            Err(draft.table.refused(
                key,
                format_args!(
                    "lets one call ({attempts} attempts at most) trip the breaker alone: raise the breaker's {rule}{fewer}"
                ),
            ))
        }
    }
}

fn not_lost_while_it_may_still_answer(
    draft: &Draft<'_>,
    surface: &Surface,
    classes: &Surfaces,
) -> Result<(), SettingsError> {
    let Some((_, rules)) = &surface.breaker else { return Ok(()) };
    if !classes.may_probe(&surface.class) || surface.attempt_timeout < rules.probes.timeout {
        return Ok(());
    }
    Err(draft.table.refused(
        "attempt_timeout",
        format_args!(
            "is {:?}, and a probe of its breaker is lost after {:?}: one that answers late would never close it; write a \
             shorter one, or raise the breaker's probes.timeout above it",
            surface.attempt_timeout, rules.probes.timeout
        ),
    ))
}

fn not_open_for_ever(
    draft: &Draft<'_>,
    surface: &Surface,
    all: &[Surface],
    classes: &Surfaces,
) -> Result<(), SettingsError> {
    let Some((name, _)) = &surface.breaker else { return Ok(()) };
    let in_front = |other: &&Surface| other.breaker.as_ref().is_some_and(|(breaker, _)| breaker == name);
    let probes = |other: &&Surface| classes.may_probe(&other.class);
    if all.iter().filter(in_front).any(|surface| probes(&surface)) {
        return Ok(());
    }
    let others = || all.iter().filter(|other| other.breaker.is_some()).filter(probes);
    let shared = others().find(|other| other.account == surface.account).or_else(|| others().next());
    let share = match shared {
        Some(other) => format!("write breaker_of = {:?} instead, whose calls may", &*other.name),
        None => "share the breaker of a surface whose class may (breaker_of)".to_owned(),
    };
    Err(draft.table.refused(
        breaker_key(draft),
        format_args!(
            "is a breaker that could open and never close: no class in front of which it stands may probe ({0}; where nothing \
             says it, a class may if idempotent = true stands in all its surfaces); {share}, or [class.{0:?}] with may_probe = \
             true if a call of it may go first to a vendor that was failing, or breaker = \"none\"",
            surface.class
        ),
    ))
}

/// The call that is to be the probe would first need a token, and the breaker lets nobody else pass.
fn not_waiting_for_itself(
    draft: &Draft<'_>,
    surface: &Surface,
    all: &[Surface],
    drafts: &Drafts<'_>,
) -> Result<(), SettingsError> {
    let Some((breaker, _)) = &surface.breaker else { return Ok(()) };
    let from = |surface: &Surface| all.iter().find(|other| Some(&other.name) == surface.token_surface.as_ref());
    let tokens = std::iter::successors(from(surface), |token| from(token));
    let behind = |token: &&Surface| token.breaker.as_ref().is_some_and(|(name, _)| name == breaker);
    let Some(token) = tokens.into_iter().find(behind) else { return Ok(()) };
    let shares = drafts.get(&*token.name).filter(|token| token.breaker_of.is_some()).unwrap_or(draft);
    Err(shares.table.refused(
        "breaker_of",
        format_args!(
            "puts {:?} and {:?}, which gives it its tokens, behind one breaker: once that is open, its probe would need a token \
             that it refuses itself; give {1:?} a breaker of its own (such as breaker = \"escalating\"), or breaker = \"none\"",
            &*surface.name, &*token.name
        ),
    ))
}

fn breaker_key(draft: &Draft<'_>) -> &'static str {
    if draft.breaker_of.is_some() { "breaker_of" } else { "breaker" }
}
