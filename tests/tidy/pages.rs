//! What the documents say is so: cases, codes, links, commands, and which test keeps what.

use std::collections::BTreeSet;
use std::path::Path;

use crate::none;
use crate::text::{self, File, between, files, read, root, tables};

/// The names of cases, such as 11.silent, among these words.
fn case_names<'a>(words: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let is_case = |word: &&str| {
        word.split_once('.').is_some_and(|(row, what)| {
            row.parse::<u8>().is_ok_and(|row| (1..=36).contains(&row))
                && what.starts_with(|first: char| first.is_ascii_lowercase())
                && what.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
    };
    words.filter(is_case).map(str::to_owned).collect()
}

#[test]
fn failure_modes_md_and_the_fault_suite_have_the_same_cases_and_every_row() {
    let rows: Vec<String> =
        files(&["tests/fault/rows"], "rs").iter().flat_map(|file| text::literals(&file.text)).collect();
    let tried = case_names(rows.iter().map(String::as_str));
    let page = read("docs/failure-modes.md");
    let told = case_names(page.split('`'));
    assert_eq!(
        tried.difference(&told).collect::<Vec<_>>(),
        [] as [&String; 0],
        "tried, and not in docs/failure-modes.md"
    );
    assert_eq!(
        told.difference(&tried).collect::<Vec<_>>(),
        [] as [&String; 0],
        "in docs/failure-modes.md, and not tried"
    );
    let missing: Vec<u8> =
        (1..=36).filter(|row| !tried.iter().any(|case| case.starts_with(&format!("{row}.")))).collect();
    assert_eq!(missing, [] as [u8; 0], "rows without a case");
    let sample = ["2.syn", "37.no_such_row", "1.2", "15.18", "config.rs", "0.member"];
    assert_eq!(case_names(sample.into_iter()), BTreeSet::from(["2.syn".to_owned()]));
}

/// What the program that writes the figures could not find, promises without a figure, and sources that are not told.
fn performance_faults(page: &str) -> Vec<String> {
    let markers = ["peers", "client", "growth"].into_iter().flat_map(|part| [part.to_owned(), format!("/{part}")]);
    let lost = markers.filter(|marker| page.matches(&format!("<!-- {marker} -->")).count() != 1);
    let lost = lost.map(|marker| format!("the marker {marker} does not stand there once"));
    let short = tables(page).into_iter().next().unwrap_or_default();
    let figure = |cell: &String| cell.contains(|c: char| c.is_ascii_digit());
    let empty = short.iter().filter(|row| row.len() != 3 || !row[1..].iter().all(figure));
    let empty = empty.map(|row| format!("no goal or figure: {row:?}"));
    let (text, sources) = page.split_once("\nSources:\n").unwrap_or((page, ""));
    let cited = between(text, "[", "]").filter(|number| number.parse::<u8>().is_ok());
    let untold = cited.filter(|number| !sources.contains(&format!("\n{number}. ")));
    lost.chain(empty).chain(untold.map(|number| format!("source {number} is not told"))).collect()
}

#[test]
fn performance_md_has_the_places_for_its_figures_and_tells_its_sources() {
    none(performance_faults(&read("docs/performance.md")));
    let sample = "| a | b | c |\n| --- | --- | --- |\n| x | 1 | |\n<!-- peers -->\n[2] [1](x)\n\nSources:\n\n1. x\n";
    assert_eq!(performance_faults(sample).len(), 5 + 1 + 1);
}

/// Rows `| question | [file](link) | `symbol` |` and `| never | `test` in file |`.
fn architecture_faults(document: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for row in tables(document).into_iter().flatten() {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        let claim = match cells[..] {
            [_, file, symbol] => {
                file.split(['[', ']']).nth(1).map(|file| (file.to_owned(), symbol.trim_matches('`').to_owned()))
            }
            [_, kept] => kept
                .split_once("` in ")
                .map(|(test, file)| (file.to_owned(), format!("fn {}(", test.trim_start_matches('`')))),
            _ => None,
        };
        match claim {
            None => faults.push(format!("a row without file and symbol: {row:?}")),
            Some((file, symbol)) => match read(&file) {
                None => faults.push(format!("there is no {file}")),
                Some(text) if !text.contains(&symbol) => faults.push(format!("{file} does not hold {symbol}")),
                Some(_) => {}
            },
        }
    }
    faults
}

#[test]
fn the_architecture_page_tells_where_things_are_and_which_test_keeps_each_absence() {
    let document = read("docs/architecture.md");
    assert!(tables(&document).len() == 2 && tables(&document).iter().all(|table| table.len() >= 10));
    none(architecture_faults(&document, |path| std::fs::read_to_string(root().join(path)).ok()));
    let sample = "| a | b | c |\n| --- | --- | --- |\n| q | [f](f) | `fn x` |\n| q | [g](g) | `fn x` |\n\n| a | b |\n| --- | --- |\n| n | `t` in f |\n";
    let read = |path: &str| (path == "f").then(|| "fn y() {}".to_owned());
    assert_eq!(architecture_faults(sample, read).len(), 3);
}

fn dead_links(file: &File, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let here = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let links = file.text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let local = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
    local
        .filter(|link| !exists(&here.join(link.split('#').next().unwrap_or_default())))
        .map(|link| format!("{}: the link {link} leads nowhere", file.path))
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let pages = files(&["docs", "scripts", "README.md", "CHANGELOG.md"], "md");
    assert!(pages.len() >= 7, "{pages:?}");
    none(pages.iter().flat_map(|file| dead_links(file, |path| root().join(path).exists())));
    let sample = File::new("docs/x.md", "[a](b.md) [c](https://d) [e](../f#g)");
    assert_eq!(dead_links(&sample, |path| path == Path::new("docs/../f")), ["docs/x.md: the link b.md leads nowhere"]);
}

#[test]
fn every_script_is_listed_and_every_command_of_the_readme_can_be_run() {
    let listed: BTreeSet<String> =
        tables(&read("scripts/README.md"))[0].iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    let there: BTreeSet<String> = files(&["scripts"], "")
        .iter()
        .map(|file| file.path["scripts/".len()..].to_owned())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(listed, there);
    let readme = read("README.md");
    let commands: Vec<&str> = readme.lines().filter(|line| line.starts_with("scripts/")).collect();
    assert!(commands.len() >= 2);
    let commands = commands.iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned());
    let scripts = there.iter().filter(|name| !name.ends_with(".sh")).map(|name| format!("scripts/{name}"));
    for command in commands.chain(scripts).chain([".ci/run".to_owned()]) {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(root().join(&command))
                .unwrap_or_else(|_| panic!("there is no {command}"))
                .permissions();
            assert!(mode.mode() & 0o111 == 0o111, "{command} cannot be run");
        }
    }
    let ci: Vec<String> = read(".ci/run").lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    assert_eq!(ci, ["exec \"$(dirname \"$0\")/../scripts/test\""]);
}

#[test]
fn the_example_of_the_readme_is_the_compiled_one() {
    let example = |text: &str, fence: &str| {
        text.split_once(fence).and_then(|(_, rest)| rest.split_once("```")).map(|(code, _)| code.to_owned())
    };
    let readme = example(&read("README.md"), "```rust\n").expect("the README has an example");
    let guide: String = read("src/lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n")
        .collect();
    assert_eq!(Some(readme), example(&guide, "```no_run\n"));
}

#[test]
fn sql_md_lists_the_arguments_and_answer_columns_of_the_migration() {
    let (page, sql) = (read("docs/sql.md"), read("migrations/V2__acquire.sql"));
    let columns = |table: usize| -> Vec<String> {
        tables(&page)[table].iter().map(|row| format!("{} {}", row[0].trim_matches('`'), row[1])).collect()
    };
    let declared = |from: &str| -> Vec<String> {
        let (_, rest) = sql.split_once(from).expect(from);
        let (list, _) = rest.split_once("\n)").expect("a list ends on a line of its own");
        list.split(',').map(|item| item.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(columns(0), declared("FUNCTION call_budget.call_budget_acquire("));
    assert_eq!(columns(1), declared("TYPE call_budget.call_budget_answer AS ("));
    let dates = [columns(0), columns(1)]
        .concat()
        .into_iter()
        .filter(|column| column.contains("time") && !column.starts_with("timeline "));
    assert_eq!(dates.collect::<Vec<_>>(), [""; 0], "only durations cross the wire");
    let reasons: BTreeSet<String> = first_cells(&page, 2);
    none(
        reasons
            .iter()
            .filter(|reason| !sql.contains(&format!("'{reason}'")))
            .map(|reason| format!("never given: {reason}")),
    );
    let answer = read("src/store/answer.rs");
    let given: BTreeSet<String> = text::between(&answer, "Some(\"", "\")")
        .filter(|reason| answer.contains(&format!("Some(\"{reason}\") => ")))
        .collect();
    assert_eq!(reasons, given);
}

#[test]
fn sql_md_lists_the_sqlstates_of_the_migrations() {
    let raised: BTreeSet<String> = files(&["migrations"], "sql")
        .iter()
        .flat_map(|file| text::between(&file.text, "ERRCODE = '", "'").collect::<Vec<_>>())
        .collect();
    let mut listed = first_cells(&read("docs/sql.md"), 3);
    assert!(listed.remove("23514"), "the constraints are listed too");
    assert_eq!(listed, raised);
    let known = read("src/store/sqlstate.rs");
    assert!(raised.iter().all(|state| known.contains(&format!("\"{state}\""))), "{raised:?}");
}

#[test]
fn breaker_md_lists_the_events_of_the_breaker_and_of_calls() {
    let sources = [files(&["src/breaker"], "rs"), files(&["src/call"], "rs")].concat();
    let told: BTreeSet<String> = sources
        .iter()
        .flat_map(|file| text::literals(&file.text))
        .filter(|text| ["circuit_", "call_budget_"].iter().any(|start| text.starts_with(start)))
        .collect();
    assert!(told.len() >= 8, "{told:?}");
    let page = read("docs/breaker.md");
    let listed: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("circuit_") || name.starts_with("call_budget_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, told);
}

#[test]
fn sql_md_lists_the_codes_of_the_library() {
    let source = read("src/error.rs");
    let codes: BTreeSet<String> = text::between(&source, "=> \"", "\"").collect();
    assert!(codes.len() >= 7, "{codes:?}");
    assert_eq!(first_cells(&read("docs/sql.md"), 4), codes);
}

#[test]
fn failure_modes_md_lists_the_codes_of_calls() {
    let quoted: BTreeSet<String> = text::literals(&read("src/call/error.rs"))
        .into_iter()
        .filter(|text| text.starts_with("CALL_BUDGET_"))
        .collect();
    assert!(quoted.len() >= 8, "{quoted:?}");
    let page = read("docs/failure-modes.md");
    let (_, section) = page.split_once("## Calls through the breaker\n").expect("the page has the section");
    assert_eq!(first_cells(section, 0), quoted);
}

#[test]
fn sql_md_calls_each_function_by_its_arguments() {
    let sql: String = files(&["migrations"], "sql").into_iter().map(|file| file.text).collect();
    let signatures: BTreeSet<String> = text::between(&sql, "CREATE FUNCTION call_budget.", " RETURNS")
        .chain(text::between(&sql, "CREATE FUNCTION call_budget.", "\nRETURNS"))
        .map(|head| {
            let (name, arguments) = head.split_once('(').unwrap_or((&head, ")"));
            let names =
                arguments.trim_end_matches(')').split(',').filter_map(|argument| argument.split_whitespace().next());
            format!("{name}({})", names.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let page = read("docs/sql.md");
    let called = text::between(&page, "`call_budget_", "`")
        .filter(|call| call.contains('('))
        .map(|call| format!("call_budget_{call}"));
    none(called.filter(|call| !signatures.contains(call)).map(|call| format!("no migration has {call}")));
}

fn first_cells(page: &str, table: usize) -> BTreeSet<String> {
    tables(page)[table].iter().map(|row| row[0].trim_matches('`').to_owned()).collect()
}
