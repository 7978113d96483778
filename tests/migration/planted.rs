//! The planted bugs themselves: a plant that no longer finds its place would prove nothing.

use call_budget::store::migrate::migrations;

use crate::support::planted;

#[test]
fn every_planted_bug_finds_its_place_in_the_migrations() {
    for (planted, edit) in planted::SQL.iter().flat_map(|planted| planted.edits.iter().map(move |edit| (planted, edit)))
    {
        let migration = migrations()
            .into_iter()
            .find(|migration| format!("V{}__{}", migration.version(), migration.name()) == edit.file)
            .unwrap_or_else(|| panic!("{} names {}, which does not exist", planted.name, edit.file));
        let text = migration.sql().unwrap();
        assert_ne!(planted.plant_in(edit.file, text.to_owned()), text, "{}", planted.name);
    }
}
