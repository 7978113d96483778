//! The closed windows that arrivals fill: the figure that everything else is judged by. Pure.

/// One arrival, as far as windows are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Weighed {
    pub at_us: u64,
    pub units: u32,
    /// The limit and the window that were in force when it arrived.
    pub limit: u32,
    pub window_us: u64,
}

/// The closed window [`from_us`, `to_us`] that ends at an arrival, and what lies in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedWindow {
    pub from_us: u64,
    pub to_us: u64,
    pub units: u64,
    pub limit: u32,
}

impl ClosedWindow {
    pub fn is_over_limit(&self) -> bool {
        self.units > u64::from(self.limit)
    }
}

/// The closed window [t - window, t] of every arrival, in their order. `arrivals` must be in the order of their times.
/// One pass: each end of the window only follows the arrivals (back again only where a setting made the window longer).
pub fn closed_windows(arrivals: &[Weighed]) -> impl Iterator<Item = ClosedWindow> {
    let (mut low, mut high, mut units) = (0, 0, 0_u64);
    arrivals.iter().map(move |arrival| {
        let (from_us, to_us) = (arrival.at_us.saturating_sub(arrival.window_us), arrival.at_us);
        while arrivals.get(high).is_some_and(|next| next.at_us <= to_us) {
            units += u64::from(arrivals[high].units);
            high += 1;
        }
        while arrivals[low].at_us < from_us {
            units -= u64::from(arrivals[low].units);
            low += 1;
        }
        while low > 0 && arrivals[low - 1].at_us >= from_us {
            low -= 1;
            units += u64::from(arrivals[low].units);
        }
        ClosedWindow { from_us, to_us, units, limit: arrival.limit }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(window_us: u64, limit: u32, calls: &[(u64, u32)]) -> Vec<Weighed> {
        calls.iter().map(|&(at_us, units)| Weighed { at_us, units, limit, window_us }).collect()
    }

    fn units(arrivals: &[Weighed]) -> Vec<u64> {
        closed_windows(arrivals).map(|window| window.units).collect()
    }

    #[test]
    fn two_arrivals_exactly_a_window_apart_are_both_inside() {
        assert_eq!(units(&arrivals(1_000, 1, &[(500, 1), (1_500, 1)])), [1, 2]);
        assert_eq!(units(&arrivals(1_000, 1, &[(500, 1), (1_501, 1)])), [1, 1]);
    }

    #[test]
    fn arrivals_of_the_same_moment_see_each_other() {
        assert_eq!(units(&arrivals(10, 1, &[(5, 1), (5, 2), (16, 1)])), [3, 3, 1]);
    }

    #[test]
    fn only_more_than_the_limit_is_over_it_and_costs_count() {
        let windows: Vec<_> = closed_windows(&arrivals(10, 3, &[(0, 1), (1, 2), (2, 1)])).collect();
        assert_eq!(windows.iter().map(ClosedWindow::is_over_limit).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(windows[2], ClosedWindow { from_us: 0, to_us: 2, units: 4, limit: 3 });
    }

    #[test]
    fn each_arrival_is_judged_by_the_window_and_limit_of_its_time() {
        let mut changing = arrivals(10, 5, &[(0, 1), (20, 1), (40, 1), (60, 1)]);
        changing[2].window_us = 40;
        changing[2].limit = 2;
        let windows: Vec<_> = closed_windows(&changing).collect();
        assert_eq!(windows.iter().map(|window| window.units).collect::<Vec<_>>(), [1, 1, 3, 1]);
        assert!(windows[2].is_over_limit() && !windows[3].is_over_limit());
    }

    #[test]
    fn one_pass_finds_what_counting_every_pair_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut calls: Vec<(u64, u32)> = (0..60).map(|_| (random.u64(0..300), random.u32(0..4))).collect();
            calls.sort_unstable();
            let arrivals = arrivals(random.u64(1..80), 5, &calls);
            let by_pairs: Vec<u64> = arrivals
                .iter()
                .map(|end| {
                    let inside = |at| at <= end.at_us && at + end.window_us >= end.at_us;
                    arrivals.iter().filter(|other| inside(other.at_us)).map(|other| u64::from(other.units)).sum()
                })
                .collect();
            assert_eq!(units(&arrivals), by_pairs, "{arrivals:?}");
        }
    }
}
