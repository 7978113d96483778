//! What stands in front of the budget: surfaces, breakers, holds, tokens.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::board::{Board, Breakers};
use super::tending::Tending;
use super::throttled::Throttled;
use super::tokens::Tokens;
use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::config::surfaces::Surfaces;
use crate::config::{Settings, SettingsError};
use crate::counters::Tally;
use crate::figures::{BreakerFigures, SurfaceBooks, SurfaceFigures};
use crate::publisher::Publisher;
use crate::store::Store;

pub(crate) struct Front<C: Clock, S: Store> {
    pub(super) surfaces: Surfaces,
    pub(super) board: Arc<Board<C>>,
    pub(super) tokens: Tokens<C, S>,
    pub(super) throttled: Throttled,
    pub(super) books: SurfaceBooks,
    publisher: Option<Publisher>,
    tending: Arc<Tending>,
}

impl<C: Clock, S: Store> Front<C, S> {
    /// `store`, with the bound of one call to it: where people look at the breakers of all processes.
    ///
    /// # Errors
    /// Surfaces that cannot be, by name and with the way out.
    pub fn new(
        settings: &Settings,
        clock: &C,
        store: Option<(&Arc<S>, Duration)>,
        tally: &Arc<Tally>,
    ) -> Result<Self, SettingsError> {
        let surfaces = Surfaces::of(settings)?;
        let seen = Arc::<OnceLock<Weak<Board<C>>>>::default();
        let publisher = store.map(|(store, store_call)| {
            let seen = Arc::clone(&seen);
            let look = move || seen.get().and_then(Weak::upgrade).map(|board| board.snapshots()).unwrap_or_default();
            Publisher::new(clock.clone(), Arc::clone(store), store_call, look)
        });
        let tending = Arc::<Tending>::default();
        let mut breakers = Breakers::<C>::new();
        let mut others = Vec::new();
        for surface in surfaces.iter() {
            let Some((name, rules)) = &surface.breaker else {
                others.push(Arc::clone(surface));
                continue;
            };
            if let Some((_, sharing)) = breakers.get_mut(name) {
                sharing.push(Arc::clone(surface));
                continue;
            }
            let (publisher, tending, seen) = (publisher.clone(), Arc::clone(&tending), Arc::clone(&seen));
            let changed = move || {
                if let Some(board) = seen.get() {
                    tending.begin(board);
                }
                if let Some(publisher) = &publisher {
                    publisher.changed();
                }
            };
            let breaker = Breaker::build(Arc::clone(name), rules.clone(), clock.clone(), Some(Box::new(changed)))?;
            breakers.insert(Arc::clone(name), (breaker, vec![Arc::clone(surface)]));
        }
        let board = Arc::new(Board::new(clock.clone(), breakers, others));
        // Nobody else knows it yet, so it is empty.
        let _ = seen.set(Arc::downgrade(&board));
        let (tokens, throttled) = (Tokens::default(), Throttled::default());
        let books = SurfaceBooks::new(tally, surfaces.iter().map(|surface| &surface.name));
        Ok(Self { surfaces, board, tokens, throttled, books, publisher, tending })
    }

    /// The names of the surfaces, in the order of their numbers.
    pub fn surfaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.surfaces.iter().map(|surface| &surface.name)
    }

    pub fn surface_figures(&self) -> Vec<SurfaceFigures> {
        self.books.read(self.throttled.by_surface())
    }

    pub fn breaker_figures(&self) -> Vec<BreakerFigures> {
        self.board.figures()
    }

    /// The number under which the store shows this process; none while nothing is shown.
    pub(super) fn process(&self) -> Option<i64> {
        self.publisher.as_ref().map(Publisher::process)
    }

    /// What is held has changed: people may want to see it.
    pub(super) fn changed(&self) {
        if let Some(publisher) = &self.publisher {
            publisher.changed();
        }
    }
}

impl<C: Clock, S: Store> Drop for Front<C, S> {
    fn drop(&mut self) {
        self.tending.end();
    }
}
