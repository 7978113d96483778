//! Who waits for a moment: wakers by key. A key is used once; what fires after it was cancelled finds nobody.

use std::task::Waker;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    place: u32,
    /// How many have had the place before.
    turn: u32,
}

impl Key {
    pub fn number(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.place)
    }
}

#[derive(Default)]
pub struct Timers {
    places: Vec<(u32, Option<Waker>)>,
    free: Vec<u32>,
}

impl Timers {
    pub fn add(&mut self, waker: Waker) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).expect("fewer than four billion timers at once")
        });
        let (turn, waiting) = &mut self.places[place as usize];
        *waiting = Some(waker);
        Key { place, turn: *turn }
    }

    /// The same task, perhaps by another waker.
    pub fn wake_by(&mut self, key: Key, waker: &Waker) {
        let (turn, waiting) = &mut self.places[key.place as usize];
        if *turn == key.turn && !waiting.as_ref().is_some_and(|before| before.will_wake(waker)) {
            *waiting = Some(waker.clone());
        }
    }

    /// Takes whoever waits under the key, because the moment has come or nobody waits for it any longer.
    pub fn cancel(&mut self, key: Key) -> Option<Waker> {
        let (turn, waiting) = &mut self.places[key.place as usize];
        if *turn != key.turn {
            return None;
        }
        *turn += 1;
        self.free.push(key.place);
        waiting.take()
    }

    /// Whoever waits under the key, and goes on waiting.
    pub fn waiting(&self, key: Key) -> Option<Waker> {
        let (turn, waiting) = &self.places[key.place as usize];
        waiting.as_ref().filter(|_| *turn == key.turn).cloned()
    }
}
