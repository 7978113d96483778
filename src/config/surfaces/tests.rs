use std::path::PathBuf;
use std::time::Duration;

use jiff::civil::date;

use super::*;
use crate::policy::breaker::calendar::{Mode, Window};
use crate::policy::breaker::rules::{Over, Probes, Rate, Slow};
use crate::policy::retry::On;

const QUOTE: &str = "[surface.\"kis/real/quote\"]\nbudget = \"kis-real\"\nclass = \"minute\"\nvendor = \"kis\"\nbreaker = \"escalating\"\n";
const ORDER: &str = "[class.order]\nmay_probe = false\n[surface.\"kis/real/order\"]\nbudget = \"kis-real\"\nclass = \"order\"\nvendor = \"kis\"\n";
const WINDOW: &str =
    "[calendar.open]\ntz = \"Asia/Seoul\"\ndays = \"mon-fri\"\nfrom = \"09:00\"\nto = \"09:05\"\nmode = \"expect\"\n";

fn of(text: &str) -> Result<Surfaces, SettingsError> {
    Surfaces::of(&Settings::of_toml(text, Path::new(""))?)
}

/// The settings themselves refuse it: a bad file stops the start.
#[track_caller]
fn refused(text: &str) -> String {
    match Settings::of_toml(text, Path::new("")) {
        Ok(_) => panic!("taken: {text}"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    let error = refused(text);
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error:?}, for {text}");
    }
}

fn rules(text: &str) -> Rules {
    let surfaces = of(&(text.to_owned() + &QUOTE.replace("\"escalating\"", "\"mine\""))).unwrap();
    surfaces.get("kis/real/quote").unwrap().breaker.clone().unwrap().1
}

#[test]
fn a_surface_says_what_stands_around_its_calls() {
    let surfaces = of(&(QUOTE.to_owned()
        + "retry = \"patient\"\nidempotent = true\nattempt_timeout = \"7s\"\ntoken = \"kis/token\"\n"
        + &QUOTE.replace("kis/real/quote", "kis/token").replace("\"escalating\"", "\"none\"")))
    .unwrap();
    let quote = surfaces.get("kis/real/quote").unwrap();
    assert_eq!((&*quote.name, &*quote.account), ("kis/real/quote", "kis/real"));
    assert_eq!((&*quote.budget, &*quote.class), ("kis-real", "minute"));
    assert_eq!(*quote.vendor, Vendor::named("kis").unwrap());
    assert_eq!(quote.breaker, Some(("kis/real/quote".into(), Rules::escalating())));
    assert_eq!(quote.retry.as_ref().unwrap().waits, [Duration::from_secs(1), Duration::from_secs(2)]);
    assert!(quote.idempotent);
    assert_eq!(quote.attempt_timeout, Duration::from_secs(7));
    assert_eq!(quote.token_surface.as_deref(), Some("kis/token"));
    let token = surfaces.get("kis/token").unwrap();
    assert!(token.breaker.is_none() && token.retry.is_none() && !token.idempotent && token.token_surface.is_none());
    assert_eq!(token.attempt_timeout, Duration::from_secs(10));
    assert_eq!(surfaces.iter().count(), 2);
    assert!(surfaces.get("kis/real").is_none());
}

#[test]
fn without_tables_there_are_no_surfaces_and_every_class_may_probe() {
    let surfaces = Surfaces::of(&Settings::default()).unwrap();
    assert_eq!(surfaces.iter().count(), 0);
    assert!(surfaces.may_probe("order"));
}

#[test]
fn a_class_may_probe_unless_the_settings_say_no() {
    let surfaces = of("[class.order]\nmay_probe = false\n[class.batch]\n").unwrap();
    assert!(!surfaces.may_probe("order") && surfaces.may_probe("batch") && surfaces.may_probe("minute"));
}

#[test]
fn only_breaker_of_shares_a_breaker() {
    let surfaces = of(&format!(
        "{QUOTE}{}{ORDER}breaker_of = \"kis/real/minute\"\n{}",
        QUOTE.replace("quote", "balance"),
        QUOTE.replace("quote", "minute").replace("breaker = \"escalating\"", "breaker_of = \"kis/real/quote\""),
    ))
    .unwrap();
    let breaker = |name| surfaces.get(name).unwrap().breaker.clone().unwrap();
    assert_eq!(breaker("kis/real/order"), breaker("kis/real/quote"), "by way of another surface");
    assert_eq!(&*breaker("kis/real/minute").0, "kis/real/quote");
    assert_eq!(&*breaker("kis/real/balance").0, "kis/real/balance");
}

#[test]
fn a_breaker_changes_what_it_says_and_keeps_the_rest_of_its_preset() {
    assert_eq!(rules("[breaker.mine]\n"), Rules::escalating());
    assert_eq!(rules("[breaker.mine]\npreset = \"rate-yahoo\"\n"), Rules::rate_yahoo());
    let s = Duration::from_secs;
    let said = rules(
        "[breaker.mine]\nstreak = 7\nrate = {window = \"60s\", min = 12, at_least = 0.25}\n\
         slow = {limit = \"2s\", last = 30, min = 10, at_least = 1}\nschedule = [\"10s\", \"1m\"]\njitter = 0.02\n\
         probes = {needed = 2, parallel = 2}\nepisode_good = 9\nepisode_quiet = \"2m\"\n",
    );
    let probes = Rules::escalating().probes;
    assert_eq!(
        said,
        Rules {
            streak: Some(7),
            rate: Some(Rate { over: Over::Time(s(60)), min: 12, at_least: 0.25 }),
            slow: Some(Slow { limit: s(2), over: Over::Calls(30), min: 10, at_least: 1.0 }),
            schedule: vec![s(10), s(60)],
            jitter: 0.02,
            probes: Probes { needed: 2, parallel: 2, ..probes },
            episode_good: 9,
            episode_quiet: s(120),
            calendar: Rules::escalating().calendar,
        }
    );
    let (kis, partly) = (
        Rules::rate_kis(),
        rules("[breaker.mine]\npreset = \"rate-kis\"\nrate = {at_least = 0.9}\nslow = {limit = \"4s\"}\n"),
    );
    assert_eq!(partly.rate, kis.rate.map(|rate| Rate { at_least: 0.9, ..rate }));
    assert_eq!(partly.slow, kis.slow.map(|slow| Slow { limit: s(4), ..slow }));
}

#[test]
fn false_and_nothing_else_switches_a_rule_off() {
    let rules = rules("[breaker.mine]\npreset = \"rate-kis\"\nstreak = 4\nrate = false\nslow = false\n");
    assert_eq!((rules.streak, rules.rate, rules.slow), (Some(4), None, None));
    says("[breaker.mine]\nstreak = 0\n", &["breaker.mine.streak is 0", "write false"]);
    says("[breaker.mine]\nrate = true\n", &["breaker.mine.rate", "false"]);
}

#[test]
fn a_breaker_takes_the_windows_of_the_calendars_that_it_names() {
    let weekend = "[calendar.weekend]\ntz = \"America/New_York\"\ndays = [\"fri-sun\", \"Tue\"]\nfrom = \"22:00:30\"\nto = \"06:00\"\nmode = \"closed\"\n";
    let both = rules(&format!("{WINDOW}{weekend}[breaker.mine]\ncalendar = [\"weekend\", \"open\"]\n"));
    let time = |hour, minute, second| jiff::civil::time(hour, minute, second, 0);
    let open = Window {
        tz: jiff::tz::TimeZone::get("Asia/Seoul").unwrap(),
        days: [true, true, true, true, true, false, false],
        holidays: [].into(),
        from: time(9, 0, 0),
        to: time(9, 5, 0),
        mode: Mode::Expect,
    };
    let closed = Window {
        tz: jiff::tz::TimeZone::get("America/New_York").unwrap(),
        days: [false, true, false, false, true, true, true],
        holidays: [].into(),
        from: time(22, 0, 30),
        to: time(6, 0, 0),
        mode: Mode::Closed,
    };
    assert_eq!(both.calendar.windows, [closed, open.clone()]);
    assert_eq!(rules(&format!("{WINDOW}[breaker.mine]\ncalendar = \"open\"\n")).calendar.windows, [open]);
    let over = rules(&format!("{}[breaker.mine]\ncalendar = \"open\"\n", WINDOW.replace("mon-fri", "sat-mon")));
    assert_eq!(over.calendar.windows[0].days, [true, false, false, false, false, true, true]);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one_at_every_level() {
    for (text, words) in [
        ("[surfaces.\"a/b\"]\n", ["\"surfaces\"", "\"surface\""]),
        ("[surface.\"a/b\"]\nbugdet = \"x\"\n", ["\"bugdet\" in surface.\"a/b\"", "\"budget\""]),
        ("[breaker.mine]\nstreek = 3\n", ["\"streek\" in breaker.mine", "\"streak\""]),
        ("[breaker.mine]\nrate = {at_last = 0.5}\n", ["\"at_last\" in breaker.mine.rate", "\"at_least\""]),
        ("[breaker.mine]\nslow = {limits = \"3s\"}\n", ["\"limits\" in breaker.mine.slow", "\"limit\""]),
        ("[breaker.mine]\nprobes = {paralel = 3}\n", ["\"paralel\" in breaker.mine.probes", "\"parallel\""]),
        ("[calendar.x]\nzone = \"UTC\"\n", ["\"zone\" in calendar.x", "known are tz, days"]),
        ("[retry.x]\nwait = [\"1s\"]\n", ["\"wait\" in retry.x", "\"waits\""]),
        ("[class.x]\nmay_prob = true\n", ["\"may_prob\" in class.x", "\"may_probe\""]),
        ("[vendor.x]\npath = \"x\"\n", ["\"path\" in vendor.x", "file"]),
    ] {
        says(text, &words);
    }
}

#[test]
fn a_name_that_leads_nowhere_is_refused_with_what_there_is() {
    let with = |from: &str, to: &str| QUOTE.replace(from, to);
    for (text, words) in [
        (
            with("\"escalating\"", "\"escalting\""),
            ["quote\".breaker", "did you mean \"escalating\"", "rate-yahoo, none"],
        ),
        (with("vendor = \"kis\"", "vendor = \"kiss\""), ["quote\".vendor", "did you mean \"kis\"", "http-own-keys"]),
        (format!("{QUOTE}retry = \"zzz\"\nidempotent = true\n"), ["quote\".retry", "zzz", "patient, brief"]),
        (format!("{QUOTE}token = \"kis/real/tokn\"\n"), ["quote\".token", "kis/real/tokn", "no other surface"]),
        (
            format!("{QUOTE}{ORDER}breaker_of = \"kis/real/qoute\"\n"),
            ["order\".breaker_of", "did you mean", "kis/real/quote"],
        ),
        ("[breaker.mine]\npreset = \"none\"\n".into(), ["breaker.mine.preset", "none", "per-provider"]),
        (format!("{WINDOW}[breaker.mine]\ncalendar = [\"opne\"]\n"), ["breaker.mine.calendar", "opne", "\"open\""]),
        ("[breaker.mine]\ncalendar = \"x\"\n".into(), ["breaker.mine.calendar", "\"x\"", "no table [calendar.NAME]"]),
        (WINDOW.replace("Asia/Seoul", "Asia/Soul"), ["calendar.open.tz", "Asia/Soul", "Asia/Seoul"]),
    ] {
        says(&text, &words);
    }
}

#[test]
fn the_name_of_what_comes_along_cannot_be_taken() {
    for name in ["breaker.escalating", "breaker.none", "retry.brief", "vendor.kis"] {
        says(&format!("[{name}]\n"), &[&format!("[{name}]"), "comes along"]);
    }
}

#[test]
fn what_must_be_there_is_refused_by_name_where_it_is_not() {
    for key in ["budget", "class", "vendor", "breaker"] {
        let without: Vec<&str> = QUOTE.lines().filter(|line| !line.starts_with(key)).collect();
        says(&without.join("\n"), &[&format!("surface.\"kis/real/quote\".{key} is missing")]);
    }
    for key in ["tz", "days", "from", "to", "mode"] {
        let without: Vec<&str> = WINDOW.lines().filter(|line| !line.starts_with(key)).collect();
        says(&without.join("\n"), &[&format!("calendar.open.{key} is missing")]);
    }
    says(&format!("{QUOTE}retry = \"brief\"\n"), &["quote\".idempotent is missing", "orders: false"]);
    says("[retry.x]\non = \"bad\"\n", &["retry.x.waits is missing"]);
    says("[retry.x]\nwaits = [\"1s\"]\n", &["retry.x.on is missing"]);
    says("[vendor.x]\n", &["vendor.x.file is missing"]);
    says("[breaker.x]\nrate = {min = 10, at_least = 0.5}\n", &["breaker.x.rate.last is missing", "window"]);
    says("[breaker.x]\nrate = {last = 10, at_least = 0.5}\n", &["breaker.x.rate.min is missing"]);
    says("[breaker.x]\nrate = {last = 10, min = 10}\n", &["breaker.x.rate.at_least is missing"]);
    says("[breaker.x]\nslow = {last = 10, min = 10, at_least = 1}\n", &["breaker.x.slow.limit is missing"]);
}

#[test]
fn a_value_that_cannot_be_is_refused_by_the_whole_name_of_its_key() {
    for (line, words) in [
        ("streak = 1001", ["breaker.x.streak", "from 2 to 1000"]),
        ("streak = \"5\"", ["breaker.x.streak", "whole number"]),
        ("rate = {last = 10, window = \"1s\", min = 5, at_least = 1}", ["breaker.x.rate.last", "keep one"]),
        ("rate = {last = 10, min = 5, at_least = 1.5}", ["breaker.x.rate.at_least is 1.5", "from 0.001 to 1"]),
        ("rate = 5", ["breaker.x.rate", "table"]),
        ("schedule = []", ["breaker.x.schedule", "list of 1 to 20"]),
        ("schedule = [\"30s\", \"1ms\"]", ["breaker.x.schedule is 1ms", "between 10ms"]),
        ("schedule = [30]", ["breaker.x.schedule", "unit"]),
        ("jitter = 0.2", ["breaker.x.jitter is 0.2", "from 0 to 0.1"]),
        ("probes = {needed = 0}", ["breaker.x.probes.needed", "from 1"]),
        ("probes = {timeout = \"2h\"}", ["breaker.x.probes.timeout", "between"]),
        ("episode_good = -1", ["breaker.x.episode_good is -1", "from 1"]),
        ("episode_quiet = \"2\"", ["breaker.x.episode_quiet", "unit"]),
        ("calendar = [1]", ["breaker.x.calendar", "list of texts"]),
    ] {
        says(&format!("[breaker.x]\n{line}\n"), &words);
    }
    for (from, to, words) in [
        ("mon-fri", "mon-fry", ["calendar.open.days", "mon-fry"]),
        ("\"mon-fri\"", "[]", ["calendar.open.days", "never"]),
        ("\"09:00\"", "\"9:00\"", ["calendar.open.from", "9:00"]),
        ("\"09:05\"", "\"24:00\"", ["calendar.open.to", "00:00"]),
        ("\"09:05\"", "\"09:05:60\"", ["calendar.open.to", "09:05:60"]),
        ("\"09:05\"", "09:05:00", ["calendar.open.to", "09:05:00 without quotes"]),
        ("expect", "except", ["calendar.open.mode", "\"expect\" or \"closed\""]),
    ] {
        says(&WINDOW.replace(from, to), &words);
    }
    says("[retry.x]\nwaits = [\"1s\"]\non = \"all\"\n", &["retry.x.on", "all", "transport"]);
    says(&format!("{QUOTE}attempt_timeout = \"1ms\"\n"), &["quote\".attempt_timeout is 1ms", "between 10ms and 600s"]);
    says(&format!("{QUOTE}idempotent = \"yes\"\n"), &["quote\".idempotent is \"yes\"", "true or false"]);
    says(&format!("{QUOTE}breaker_of = \"a/b\"\n"), &["quote\".breaker and breaker_of are both there"]);
    says(&QUOTE.replace("\"minute\"", "\"\""), &["quote\".class", "1 to 100 characters"]);
    for name in ["quote", "kis//quote", "/quote", "kis/", ""] {
        says(&QUOTE.replace("kis/real/quote", name), &[&format!("{name:?}"), "two parts"]);
    }
    says("surface = 3\n", &["surface"]);
    says("[surface]\n\"a/b\" = 3\n", &["surface.\"a/b\"", "[surface.\"a/b\"]"]);
}

#[test]
fn ways_from_surface_to_surface_that_lead_in_a_circle_are_refused() {
    let share = |name: &str, of: &str| {
        QUOTE.replace("quote", name).replace("breaker = \"escalating\"", &format!("breaker_of = \"kis/real/{of}\""))
    };
    says(
        &(share("a", "b") + &share("b", "c") + &share("c", "b")),
        &["breaker_of", "circle", "b -> kis/real/c -> kis/real/b"],
    );
    says(&share("a", "a"), &["breaker_of", "circle (kis/real/a -> kis/real/a)"]);
    let token = |name: &str, of: &str| QUOTE.replace("quote", name) + &format!("token = \"kis/real/{of}\"\n");
    says(&(token("a", "b") + &token("b", "a")), &["token", "circle (kis/real/a -> kis/real/b -> kis/real/a)"]);
    let none = QUOTE.replace("\"escalating\"", "\"none\"");
    says(&format!("{none}{}", share("a", "quote")), &["breaker_of", "has none"]);
}

#[test]
fn a_call_that_could_trip_the_breaker_alone_is_refused() {
    let mine = QUOTE.replace("\"escalating\"", "\"mine\"");
    let text = |min: u32, waits: &str| {
        format!(
            "[breaker.mine]\nrate = {{last = 10, min = {min}, at_least = 0.5}}\n[retry.mine]\nwaits = {waits}\non = \"bad\"\n\
             {mine}retry = \"mine\"\nidempotent = true\n"
        )
    };
    says(&text(3, "[\"1s\", \"1s\"]"), &["quote\".retry", "3 attempts", "rate.min"]);
    of(&text(4, "[\"1s\", \"1s\"]")).unwrap();
    says(&text(4, "[\"1s\", \"1s\", \"1s\"]"), &["4 attempts"]);
    says(
        &format!("[breaker.mine]\nrate = {{last = 10, min = 1, at_least = 0.5}}\n{mine}"),
        &["quote\".breaker", "1 attempts", "rate.min"],
    );
    says("[breaker.mine]\nstreak = 1\n", &["breaker.mine.streak"]);
}

#[test]
fn a_breaker_that_nobody_may_close_is_refused_with_the_way_out() {
    let own = format!("{ORDER}breaker = \"escalating\"\n");
    says(&own, &["order\".breaker", "never close", "(order)", "breaker = \"none\""]);
    says(&(own.clone() + QUOTE), &["breaker_of = \"kis/real/quote\""]);
    of(&format!("{ORDER}breaker = \"none\"\n")).unwrap();
    of(&format!("{QUOTE}{ORDER}breaker_of = \"kis/real/quote\"\n")).unwrap();
    // It does not matter for whom it was written: the quotes close it.
    let share = QUOTE.replace("breaker = \"escalating\"", "breaker_of = \"kis/real/order\"");
    of(&(own + &share)).unwrap();
}

#[test]
fn an_attempt_that_outlives_the_probe_is_refused_where_it_may_be_one() {
    let long = |seconds: u32| format!("{QUOTE}attempt_timeout = \"{seconds}s\"\n");
    of(&long(60)).unwrap();
    says(&long(61), &["quote\".attempt_timeout is 61s", "60s", "probes.timeout"]);
    of(&format!("{QUOTE}{ORDER}breaker_of = \"kis/real/quote\"\nattempt_timeout = \"61s\"\n")).unwrap();
}

#[test]
fn rules_that_make_no_sense_together_are_refused_by_their_table() {
    says("[breaker.x]\nrate = {last = 10, min = 11, at_least = 0.5}\n", &["[breaker.x]", "rate"]);
}

#[test]
fn files_are_looked_for_beside_the_settings_file_and_refused_by_their_path() {
    let directory = Directory::new("beside");
    let window = format!("{WINDOW}holidays = \"days.txt\"\n[breaker.mine]\ncalendar = \"open\"\n");
    let file = directory.write("settings.toml", &(window + &QUOTE.replace("\"escalating\"", "\"mine\"")));
    let error = Settings::layered(Some(&file)).unwrap_err().to_string();
    let days = directory.0.join("days.txt").display().to_string();
    assert!(error.contains("calendar.open.holidays") && error.contains(&days), "{error}");

    directory.write("days.txt", "# one\n2026-01-01\n\n  2026-02-17 # two\n");
    let settings = Settings::layered(Some(&file)).unwrap();
    let surfaces = Surfaces::of(&settings).unwrap();
    let rules = &surfaces.get("kis/real/quote").unwrap().breaker.as_ref().unwrap().1;
    assert_eq!(rules.calendar.windows[0].holidays, [date(2026, 1, 1), date(2026, 2, 17)].into());
    Surfaces::of(&settings.at("postgresql://u@h/d")).unwrap().get("kis/real/quote").expect("kept for another database");

    for wrong in ["2026-01-01\n2026-13-01\n", "2026-01-01\n20260101\n", "2026-01-01\n2026-01-02T00:00\n"] {
        directory.write("days.txt", wrong);
        let error = Settings::layered(Some(&file)).unwrap_err().to_string();
        assert!(error.contains(&days) && error.contains("line 2"), "{error}");
    }
    std::fs::remove_file(directory.0.join("days.txt")).unwrap();
    std::fs::create_dir(directory.0.join("days.txt")).unwrap();
    let error = Settings::layered(Some(&file)).unwrap_err().to_string();
    assert!(error.contains(&days) && error.contains("plain file"), "{error}");
}

#[test]
fn a_vendor_table_of_ones_own_is_read_and_its_faults_are_told() {
    let directory = Directory::new("vendor");
    let text =
        format!("[vendor.mine]\nfile = \"mine.toml\"\n{}", QUOTE.replace("vendor = \"kis\"", "vendor = \"mine\""));
    let read = || Settings::of_toml(&text, &directory.0);
    assert!(read().unwrap_err().to_string().contains("vendor.mine.file"));
    directory.write("mine.toml", "this is no vendor table");
    let error = read().unwrap_err().to_string();
    assert!(error.contains("vendor.mine.file") && error.contains("mine.toml, which is wrong"), "{error}");
    directory.write("mine.toml", VENDOR_TABLE);
    let surfaces = Surfaces::of(&read().unwrap()).unwrap();
    assert_eq!(*surfaces.get("kis/real/quote").unwrap().vendor, Vendor::parse(VENDOR_TABLE).unwrap());
}

#[test]
fn surfaces_survive_being_written_and_read_again() {
    let settings = Settings::of_toml(&(WINDOW.to_owned() + QUOTE), Path::new("")).unwrap();
    let again: Settings = serde_json::from_value(serde_json::to_value(&settings).unwrap()).unwrap();
    assert!(Surfaces::of(&again).unwrap().get("kis/real/quote").is_some());
    assert_eq!(again.calendar, settings.calendar);
}

const PAGE: &str = include_str!("../../../docs/surfaces.md");
const VENDOR_TABLE: &str = include_str!("../../vendor/kis.toml");

fn blocks(fence: &str) -> impl Iterator<Item = &'static str> {
    PAGE.split(&format!("```{fence}\n"))
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect::<Vec<_>>()
        .into_iter()
}

#[test]
fn the_examples_of_the_page_are_settings() {
    let directory = Directory::new("page");
    directory.write("krx-2026.txt", blocks("text").next().unwrap());
    directory.write("mine.toml", VENDOR_TABLE);
    let read = |text| Surfaces::of(&Settings::of_toml(text, &directory.0).unwrap()).unwrap();
    let all: Vec<Surfaces> = blocks("toml").map(read).collect();
    let [kis, mine] = &all[..] else { panic!("{} examples", all.len()) };
    for account in ["kis/real", "kis/paper"] {
        let surface = |kind: &str| Arc::clone(kis.get(&format!("{account}/{kind}")).unwrap());
        let (quote, order) = (surface("quote"), surface("order"));
        assert_eq!(quote.breaker, order.breaker);
        assert_eq!(order.retry, None);
        assert!(!order.idempotent && !kis.may_probe(&order.class) && kis.may_probe(&quote.class));
        let windows = &quote.breaker.as_ref().unwrap().1.calendar.windows;
        assert_eq!(windows[0].holidays.len(), 4);
        assert_eq!(windows.len(), if account == "kis/paper" { 2 } else { 1 });
        assert_eq!(order.token_surface.as_deref(), Some(&*format!("{account}/token")));
    }
    assert_ne!(
        kis.get("kis/real/balance").unwrap().breaker.as_ref().unwrap().0,
        kis.get("kis/real/quote").unwrap().breaker.as_ref().unwrap().0
    );
    let prices = mine.get("mine/prices").unwrap();
    assert_eq!(prices.retry.as_ref().unwrap().on, On::Transport);
    assert_eq!(prices.breaker.as_ref().unwrap().1.streak, Some(8));
    assert!(mine.get("mine/sandbox").unwrap().breaker.is_none());
}

#[test]
fn the_page_lists_every_key_of_every_table() {
    for (of, keys) in [
        ("surface", &Draft::KEYS[..]),
        ("breaker", &breakers::KEYS),
        ("calendar", &calendars::KEYS),
        ("retry", &retries::KEYS),
        ("class", &CLASS_KEYS),
        ("vendor", &VENDOR_KEYS),
    ] {
        let section = PAGE.split("\n## ").find(|section| section.starts_with(&format!("`[{of}."))).expect(of);
        let table = section.split("| key |").nth(1).expect(of);
        let listed: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(listed, keys, "[{of}.NAME]");
    }
}

#[test]
fn the_page_gives_the_numbers_of_the_presets() {
    let rows = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .filter_map(|(name, row)| Some((Rules::preset(name)?, row)));
    let mut presets = 0;
    for (rules, row) in rows {
        presets += 1;
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let none = || "-".to_owned();
        let rate = |rate: Rate| match rate.over {
            Over::Calls(last) => format!("last {last}, min {}, {:?}", rate.min, rate.at_least),
            Over::Time(time) => format!("{time:?}, min {}, {:?}", rate.min, rate.at_least),
        };
        let waits: Vec<String> = rules.schedule.iter().map(|wait| wait.as_secs().to_string()).collect();
        let Probes { needed, allowed_bad, parallel, .. } = rules.probes;
        assert_eq!(
            cells[1..6],
            [
                rules.streak.map_or_else(none, |streak| streak.to_string()),
                rules.rate.map_or_else(none, rate),
                rules
                    .slow
                    .map_or_else(none, |slow| format!("{:?}, {:?}", slow.limit, slow.at_least).replacen('s', " s", 1)),
                waits.join(", ") + " s",
                format!("{needed} / {allowed_bad} / {parallel}"),
            ]
        );
    }
    assert_eq!(presets, 4);
}

/// Removed with the value.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("call-budget-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
