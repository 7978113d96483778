//! The planted bugs themselves: a plant that no longer finds its place would prove nothing.

use call_budget::store::migrate::migrations;

use crate::support::planted;

#[test]
fn every_planted_bug_finds_its_place_in_the_migrations() {
    for planted in planted::SQL {
        let migration = migrations()
            .into_iter()
            .find(|migration| format!("V{}__{}", migration.version(), migration.name()) == planted.file)
            .unwrap_or_else(|| panic!("{} names {}, which does not exist", planted.name, planted.file));
        let text = migration.sql().unwrap();
        assert_ne!(planted.plant_in(text.to_owned()), text, "{}", planted.name);
    }
}
