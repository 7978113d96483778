//! Every command of the documents is run, as it stands there: the blocks marked `sh`, page by page and in order, against a
//! database as the demo leaves it and a mock vendor; and what stands in a sentence is known to the program.

#[path = "../support/mod.rs"]
mod support;

mod mentions;
mod page;

use page::Page;

#[tokio::test]
async fn the_commands_of_the_readme_do_what_it_says() {
    let ran = Page::of("README.md").run().await;
    // A demo and the tests are started by whoever runs this.
    assert!(ran.commands >= 5, "{ran:?}");
    assert!(ran.output.contains("\"governed\":true"), "an acquire by curl: {}", ran.output);
}

#[tokio::test]
async fn the_commands_of_the_activation_page_lead_on_and_back_and_leave_nothing_running() {
    let ran = Page::of("docs/activation.md").run().await;
    assert!(ran.commands >= 10, "{ran:?}");
    assert_eq!(ran.paused, 0, "the way back ends with a budget that grants again");
}

#[tokio::test]
async fn the_commands_of_the_operating_page_do_what_it_says() {
    let ran = Page::of("docs/operating.md").run().await;
    assert!(ran.commands >= 10, "{ran:?}");
    assert_eq!(ran.paused, 0);
}

#[tokio::test]
async fn the_korean_pages_run_the_same_commands() {
    for page in ["activation.md", "operating.md"] {
        let (english, korean) = (Page::of(&format!("docs/{page}")), Page::of(&format!("docs/ko/{page}")));
        assert_eq!(korean.commands(), english.commands(), "{page}");
    }
    let korean = Page::of("docs/ko/README.md");
    assert_eq!(korean.commands(), Page::of("README.md").commands());
}

#[test]
fn the_settings_of_the_recipes_are_settings() {
    let mut recipes = 0;
    for (name, text) in page::all().iter().filter(|(name, _)| name.ends_with("operating.md")) {
        for recipe in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let read = call_budget::Settings::of_toml(recipe, page::root());
            read.unwrap_or_else(|error| panic!("{name}: {error}"));
            recipes += 1;
        }
    }
    assert_eq!(recipes, 2, "one a language");
}

#[test]
fn every_other_page_has_no_block_of_commands_that_nobody_runs() {
    const RUN: &[&str] = &["docs/activation.md", "docs/operating.md"];
    for file in std::fs::read_dir(page::root().join("docs")).unwrap() {
        let name = format!("docs/{}", file.unwrap().file_name().to_str().unwrap());
        if name.ends_with(".md") && !RUN.contains(&name.as_str()) {
            assert_eq!(Page::of(&name).commands(), [""; 0], "{name}: let tests/documents run it");
        }
    }
}

#[test]
fn every_command_and_option_that_a_sentence_names_exists() {
    let faults = mentions::unknown(&page::all());
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    let sample = "say `call-budget statu --json`, or `call-budget status --jsonn`, or `call-budget status --json`";
    assert_eq!(mentions::unknown(&[("x".to_owned(), sample.to_owned())]).len(), 2);
}
