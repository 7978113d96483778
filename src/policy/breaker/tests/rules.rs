use std::time::Duration;

use crate::policy::breaker::rules::{Over, Rate, Slow};
use crate::policy::breaker::{Breaker, Rules};

type Spoil = fn(&mut Rules);

#[test]
fn nonsense_is_refused_by_the_name_of_its_field() {
    let spoiled: [(&str, Spoil); 27] = [
        ("streak", |rules| rules.streak = Some(0)),
        ("streak", |rules| rules.streak = Some(1001)),
        ("rate.over", |rules| rate(rules).over = Over::Calls(0)),
        ("rate.over", |rules| rate(rules).over = Over::Calls(u32::MAX)),
        ("rate.over", |rules| rate(rules).over = Over::Time(Duration::ZERO)),
        ("rate.min", |rules| rate(rules).min = 0),
        ("rate.min", |rules| rate(rules).min = 21),
        ("rate.at_least", |rules| rate(rules).at_least = 0.0),
        ("rate.at_least", |rules| rate(rules).at_least = 1.1),
        ("rate.at_least", |rules| rate(rules).at_least = f64::NAN),
        ("slow.limit", |rules| slow(rules).limit = Duration::ZERO),
        ("slow.min", |rules| slow(rules).min = 0),
        ("slow.min", |rules| slow(rules).min = 21),
        ("slow.at_least", |rules| slow(rules).at_least = -0.5),
        ("slow.at_least", |rules| slow(rules).at_least = f64::INFINITY),
        ("schedule", |rules| rules.schedule.clear()),
        ("schedule", |rules| rules.schedule.push(Duration::ZERO)),
        ("schedule", |rules| rules.schedule.push(Duration::MAX)),
        ("jitter", |rules| rules.jitter = -0.01),
        ("jitter", |rules| rules.jitter = 0.11),
        ("jitter", |rules| rules.jitter = f64::NAN),
        ("probes.needed", |rules| rules.probes.needed = 0),
        ("probes.allowed_bad", |rules| rules.probes.allowed_bad = u32::MAX),
        ("probes.parallel", |rules| rules.probes.parallel = 0),
        ("probes.timeout", |rules| rules.probes.timeout = Duration::ZERO),
        ("episode_good", |rules| rules.episode_good = 0),
        ("episode_quiet", |rules| rules.episode_quiet = Duration::ZERO),
    ];
    for (field, spoil) in spoiled {
        let mut rules = Rules::rate_kis();
        spoil(&mut rules);
        let told = rules.check().expect_err(field);
        assert!(told.starts_with(&format!("{field} must ")), "{told}");
        assert_eq!(Breaker::new(rules, 1).map(drop), Err(told));
    }
}

#[test]
fn rules_at_their_bounds_make_sense() {
    let mut rules = Rules::rate_kis();
    rules.probes.parallel = 1000;
    rules.jitter = 0.0;
    rate(&mut rules).min = 20;
    rate(&mut rules).at_least = 1.0;
    assert_eq!(rules.check(), Ok(()));
    let unruled = Rules { streak: None, rate: None, slow: None, ..rules };
    assert_eq!(unruled.check(), Ok(()), "opened by hand alone");
}

#[test]
fn a_rule_that_one_call_could_trip_alone_is_named() {
    assert_eq!(Rules::escalating().tripped_by_one_call(1000), None, "a call adds one to a streak");
    assert_eq!(Rules { streak: Some(1), ..Rules::escalating() }.tripped_by_one_call(1), Some("streak"));
    assert_eq!(Rules::rate_yahoo().tripped_by_one_call(4), None);
    assert_eq!(Rules::rate_yahoo().tripped_by_one_call(5), Some("rate.min"));
    assert_eq!(Rules { rate: None, ..Rules::rate_kis() }.tripped_by_one_call(10), Some("slow.min"));
}

fn rate(rules: &mut Rules) -> &mut Rate {
    rules.rate.as_mut().expect("rate-kis has a rate")
}

fn slow(rules: &mut Rules) -> &mut Slow {
    rules.slow.as_mut().expect("rate-kis has a slow rule")
}
