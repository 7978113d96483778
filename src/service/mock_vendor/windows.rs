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
    /// The units of the arrival that ends it.
    own: u64,
}

impl ClosedWindow {
    pub fn is_over_limit(&self) -> bool {
        self.units > u64::from(self.limit)
    }
}

/// The closed window [t - window, t] of every arrival so far. To enter an arrival takes only as long as its window is
/// full, and to look at them all is one quick pass, so that a long run can be watched without slowing it down.
#[derive(Clone, Debug, Default)]
pub struct Windows(Vec<ClosedWindow>);

impl Windows {
    /// Enters an arrival, which need not be the latest.
    pub fn enter(&mut self, arrival: Weighed) {
        let (from_us, to_us) = (arrival.at_us.saturating_sub(arrival.window_us), arrival.at_us);
        let own = u64::from(arrival.units);
        let place = self.0.partition_point(|window| window.to_us <= to_us);
        let (earlier, later) = self.0.split_at_mut(place);
        let mut units = own;
        for window in earlier.iter_mut().rev().take_while(|window| window.to_us >= from_us) {
            units += window.own;
            if window.to_us == to_us {
                window.units += own;
            }
        }
        for window in later.iter_mut().filter(|window| window.from_us <= to_us) {
            window.units += own;
        }
        self.0.insert(place, ClosedWindow { from_us, to_us, units, limit: arrival.limit, own });
    }

    /// The most units in any window.
    pub fn worst(&self) -> u64 {
        self.0.iter().map(|window| window.units).max().unwrap_or(0)
    }

    /// The windows that hold more than the limit.
    pub fn over_limit(&self) -> impl Iterator<Item = &ClosedWindow> {
        self.0.iter().filter(|window| window.is_over_limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(window_us: u64, limit: u32, calls: &[(u64, u32)]) -> Vec<Weighed> {
        calls.iter().map(|&(at_us, units)| Weighed { at_us, units, limit, window_us }).collect()
    }

    fn windows(arrivals: &[Weighed]) -> Windows {
        let mut windows = Windows::default();
        arrivals.iter().for_each(|arrival| windows.enter(*arrival));
        windows
    }

    fn units(arrivals: &[Weighed]) -> Vec<u64> {
        windows(arrivals).0.iter().map(|window| window.units).collect()
    }

    #[test]
    fn two_arrivals_exactly_a_window_apart_are_both_inside() {
        assert_eq!(units(&arrivals(1_000, 1, &[(500, 1), (1_500, 1)])), [1, 2]);
        assert_eq!(units(&arrivals(1_000, 1, &[(500, 1), (1_501, 1)])), [1, 1]);
        assert_eq!(units(&arrivals(1_000, 1, &[(1_500, 1), (500, 1)])), [1, 2]);
    }

    #[test]
    fn arrivals_of_the_same_moment_see_each_other() {
        assert_eq!(units(&arrivals(10, 1, &[(5, 1), (5, 2), (16, 1)])), [3, 3, 1]);
    }

    #[test]
    fn only_more_than_the_limit_is_over_it_and_costs_count() {
        let windows = windows(&arrivals(10, 3, &[(0, 1), (1, 2), (2, 1)]));
        let over: Vec<_> = windows.over_limit().map(|window| (window.from_us, window.to_us, window.units)).collect();
        assert_eq!((windows.worst(), over), (4, vec![(0, 2, 4)]));
    }

    #[test]
    fn each_arrival_is_judged_by_the_window_and_limit_of_its_time() {
        let mut changing = arrivals(10, 5, &[(0, 1), (20, 1), (40, 1), (60, 1)]);
        changing[2].window_us = 40;
        changing[2].limit = 2;
        assert_eq!(units(&changing), [1, 1, 3, 1]);
        assert_eq!(windows(&changing).over_limit().map(|window| window.to_us).collect::<Vec<_>>(), [40]);
    }

    #[test]
    fn whatever_the_order_of_entry_the_windows_hold_what_counting_every_pair_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let calls: Vec<(u64, u32)> = (0..60).map(|_| (random.u64(0..300), random.u32(0..4))).collect();
            let mut arrivals = arrivals(random.u64(1..80), 5, &calls);
            for arrival in &mut arrivals {
                arrival.window_us += random.u64(0..20);
            }
            let entered = windows(&arrivals);
            let mut found: Vec<_> =
                entered.0.iter().map(|window| (window.to_us, window.from_us, window.units)).collect();
            let inside = |end: &Weighed, at| at <= end.at_us && at + end.window_us >= end.at_us;
            let mut by_pairs: Vec<_> = arrivals
                .iter()
                .map(|end| {
                    let units =
                        arrivals.iter().filter(|other| inside(end, other.at_us)).map(|other| u64::from(other.units));
                    (end.at_us, end.at_us.saturating_sub(end.window_us), units.sum::<u64>())
                })
                .collect();
            found.sort_unstable();
            by_pairs.sort_unstable();
            assert_eq!(found, by_pairs);
        }
    }
}
