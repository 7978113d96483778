//! The counts of one budget and class, kept by its lane and by the permits that it handed out.

use std::sync::Arc;
use std::time::Duration;

use super::histogram::Steps;
use super::{ClassFigures, Dropped};
use crate::counters::{Count, Tally};
use crate::error::Code;

/// More names than that, and what they come to is counted together: each has some twenty series.
const MOST_CLASSES: usize = 1_000;
/// The store takes no longer name, in characters.
const LONGEST_NAME: usize = 100;

const CODES: [Code; 7] = [
    Code::StoreUnavailable,
    Code::Uncertain,
    Code::WaitExceeded,
    Code::Paused,
    Code::UnknownBudget,
    Code::UnknownClass,
    Code::Misconfigured,
];

/// The books of one process: where those of its classes come from, and where they go.
#[derive(Debug)]
pub(crate) struct Ledger {
    tally: Arc<Tally>,
    /// Where a send comes from, by number: 0 is a plain acquire.
    surfaces: Arc<[Arc<str>]>,
    /// For names that keep none of their own.
    rest: Arc<ClassBook>,
}

/// Counts for its class and for the process alike. What it has counted goes to the rest with its last owner.
#[derive(Debug)]
pub(crate) struct ClassBook {
    budget: Arc<str>,
    class: Arc<str>,
    tally: Arc<Tally>,
    rest: Option<Arc<ClassBook>>,
    counts: Counts,
}

#[derive(Debug)]
struct Counts {
    granted: Count,
    permits: Count,
    /// By number of the surface.
    sends: Box<[Count]>,
    refusals: [Count; CODES.len()],
    dropped_round_trip: Count,
    dropped_late: Count,
    dropped_unwanted: Count,
    dropped_clock_step: Count,
    lost: Count,
    lapsed: Count,
    waits: Steps,
}

impl Ledger {
    /// `surfaces`: the names of the settings.
    pub fn new<'a>(tally: Arc<Tally>, surfaces: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let surfaces: Arc<[Arc<str>]> = [Arc::default()].into_iter().chain(surfaces.cloned()).collect();
        let (nobody, counts) = (Arc::<str>::default(), Counts::new(surfaces.len()));
        let rest =
            ClassBook { budget: Arc::clone(&nobody), class: nobody, tally: Arc::clone(&tally), rest: None, counts };
        Self { tally, surfaces, rest: Arc::new(rest) }
    }

    /// The book of a class that had none, where there are so many others.
    pub fn open(&self, budget: &Arc<str>, class: &Arc<str>, others: usize) -> Arc<ClassBook> {
        let too_long = |name: &str| name.chars().nth(LONGEST_NAME).is_some();
        if others >= MOST_CLASSES || too_long(budget) || too_long(class) {
            return Arc::clone(&self.rest);
        }
        Arc::new(ClassBook {
            budget: Arc::clone(budget),
            class: Arc::clone(class),
            tally: Arc::clone(&self.tally),
            rest: Some(Arc::clone(&self.rest)),
            counts: Counts::new(self.surfaces.len()),
        })
    }

    /// The book of those who have none.
    pub fn rest(&self) -> &ClassBook {
        &self.rest
    }

    /// What these books say, and that of the rest if there is anything in it; by name.
    pub fn read(&self, books: impl IntoIterator<Item = Arc<ClassBook>>) -> Vec<ClassFigures> {
        let own = books.into_iter().filter(|book| !Arc::ptr_eq(book, &self.rest)).map(|book| self.figures(&book));
        let rest = Some(self.figures(&self.rest)).filter(|rest| rest.granted + rest.refused() + rest.permits > 0);
        let mut figures: Vec<ClassFigures> = own.chain(rest).collect();
        figures.sort_by(|one, other| (&one.budget, &one.class).cmp(&(&other.budget, &other.class)));
        figures
    }

    fn figures(&self, book: &ClassBook) -> ClassFigures {
        let Counts { granted, permits, sends, refusals, lost, lapsed, waits, .. } = &book.counts;
        let sends = self.surfaces.iter().zip(sends).map(|(surface, times)| (Arc::clone(surface), times.get()));
        ClassFigures {
            budget: Arc::clone(&book.budget),
            class: Arc::clone(&book.class),
            granted: granted.get(),
            permits: permits.get(),
            sends: sends.filter(|(surface, times)| surface.is_empty() || *times > 0).collect(),
            refusals: CODES.iter().zip(refusals).map(|(code, times)| (*code, times.get())).collect(),
            dropped: Dropped {
                round_trip: book.counts.dropped_round_trip.get(),
                late: book.counts.dropped_late.get(),
                unwanted: book.counts.dropped_unwanted.get(),
                clock_step: book.counts.dropped_clock_step.get(),
            },
            lost: lost.get(),
            lapsed: lapsed.get(),
            waits: waits.read(),
        }
    }
}

macro_rules! counted_twice {
    ($($name:ident),+) => {
        $(pub fn $name(&self, n: usize) {
            self.tally.$name.add(n);
            self.counts.$name.add(n);
        })+
    };
}

impl ClassBook {
    counted_twice!(
        granted,
        permits,
        dropped_round_trip,
        dropped_late,
        dropped_unwanted,
        dropped_clock_step,
        lost,
        lapsed
    );

    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// A permit was started, for the surface of this number.
    pub fn sent(&self, surface: usize) {
        self.counts.sends[surface].add(1);
    }

    /// An acquire ended with an error.
    pub fn refused(&self, code: Code) {
        self.counts.refusals[index(code)].add(1);
    }

    /// An acquire brought a permit after so long.
    pub fn waited(&self, wait: Duration) {
        self.counts.waits.add(wait);
    }
}

impl Drop for ClassBook {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            rest.counts.add_all(&self.counts);
        }
    }
}

impl Counts {
    fn new(surfaces: usize) -> Self {
        Self {
            granted: Count::default(),
            permits: Count::default(),
            sends: (0..surfaces).map(|_| Count::default()).collect(),
            refusals: Default::default(),
            dropped_round_trip: Count::default(),
            dropped_late: Count::default(),
            dropped_unwanted: Count::default(),
            dropped_clock_step: Count::default(),
            lost: Count::default(),
            lapsed: Count::default(),
            waits: Steps::default(),
        }
    }

    fn add_all(&self, others: &Counts) {
        for (count, more) in self.all().zip(others.all()) {
            count.join(more);
        }
        self.waits.add_all(&others.waits);
    }

    fn all(&self) -> impl Iterator<Item = &Count> {
        let single = [
            &self.granted,
            &self.permits,
            &self.dropped_round_trip,
            &self.dropped_late,
            &self.dropped_unwanted,
            &self.dropped_clock_step,
            &self.lost,
            &self.lapsed,
        ];
        single.into_iter().chain(&self.sends).chain(&self.refusals)
    }
}

const fn index(code: Code) -> usize {
    match code {
        Code::StoreUnavailable => 0,
        Code::Uncertain => 1,
        Code::WaitExceeded => 2,
        Code::Paused => 3,
        Code::UnknownBudget => 4,
        Code::UnknownClass => 5,
        Code::Misconfigured => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(Arc::default(), ["kis/real/quote".into()].iter())
    }

    #[test]
    fn every_code_has_a_place_of_its_own() {
        for (place, code) in CODES.iter().enumerate() {
            assert_eq!(index(*code), place, "{code}");
        }
    }

    #[test]
    fn what_a_name_came_to_that_is_forgotten_is_counted_under_the_empty_name() {
        let ledger = ledger();
        let (book, kept) =
            (ledger.open(&"a".into(), &"b".into(), 0), ledger.open(&"kis-real".into(), &"order".into(), 1));
        for book in [&book, &kept] {
            book.granted(5);
            book.permits(3);
            book.dropped_late(2);
            book.sent(1);
            book.refused(Code::UnknownClass);
            book.waited(Duration::from_millis(7));
        }
        let own = ledger.figures(&book);
        let hand = Arc::clone(&book);
        drop(book);
        assert_eq!(ledger.read([Arc::clone(&kept)]).len(), 1, "a permit is still out");
        drop(hand);
        let read = ledger.read([kept]);
        let names: Vec<_> = read.iter().map(|figures| (&*figures.budget, &*figures.class)).collect();
        assert_eq!(names, [("", ""), ("kis-real", "order")]);
        assert_eq!(read[0], ClassFigures { budget: "".into(), class: "".into(), ..own });
        assert_eq!(read[0].sends[&Arc::from("kis/real/quote")], 1);
        assert_eq!(ledger.tally.read().granted, 10);
    }

    #[test]
    fn names_that_are_too_many_or_too_long_keep_no_book() {
        let ledger = ledger();
        let long: Arc<str> = "초".repeat(LONGEST_NAME + 1).into();
        let own = |budget: &Arc<str>, others| !Arc::ptr_eq(&ledger.open(budget, &"b".into(), others), &ledger.rest);
        assert!(own(&"a".into(), MOST_CLASSES - 1) && own(&"초".repeat(LONGEST_NAME).into(), 0));
        assert!(!own(&"a".into(), MOST_CLASSES) && !own(&long, 0));
    }
}
