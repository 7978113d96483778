//! Bugs planted into the SQL on purpose. Each turns the test that it names red, or that test proves nothing.
//!
//! `PLANTED_BUG=no-marker cargo test --test contract` runs the tests against one of them.

/// One bug: what is replaced in the migrations before they are applied.
pub struct Planted {
    pub name: &'static str,
    pub edits: &'static [Edit],
    /// The test in the binary `contract` that must fail.
    pub test: &'static str,
}

/// One text that is replaced by another. It stands in the file exactly once.
pub struct Edit {
    pub file: &'static str,
    find: &'static str,
    replace: &'static str,
}

const fn edit(file: &'static str, find: &'static str, replace: &'static str) -> Edit {
    Edit { file, find, replace }
}

pub const SQL: &[Planted] = &[
    Planted {
        name: "clock-before-lock",
        edits: &[edit(
            "V5__decide",
            "patience_us, nonce,\n                                               (extract(epoch FROM clock_timestamp())",
            "patience_us, nonce,\n                                               (extract(epoch FROM statement_timestamp())",
        )],
        test: "slots_keep_their_distance_however_long_the_lock_was_waited_for",
    },
    Planted {
        name: "no-marker",
        edits: &[
            edit(
                "V5__decide",
                "SELECT r.timeline INTO timeline FROM call_budget.call_budget_remembered AS r WHERE r.budget = b.name;",
                "timeline := call_budget.call_budget_timeline();",
            ),
            edit(
                "V5__decide",
                "(SELECT r.timeline FROM call_budget.call_budget_remembered AS r WHERE r.budget = h.budget)",
                "call_budget.call_budget_timeline()",
            ),
        ],
        test: "a_restart_that_forgets_commits_is_fenced",
    },
    Planted {
        name: "fence-before-step-back",
        // The two statements change places, and the fence leaves the clock to the shift behind it.
        edits: &[
            edit(
                "V5__decide",
                "        IF s.stepped_back THEN\n            PERFORM call_budget.call_budget_shift(b.name, now_us);\n        END IF;\n",
                "",
            ),
            edit(
                "V5__decide",
                "            PERFORM call_budget.call_budget_fence_now(b.name, now_us);\n        END IF;\n",
                "            PERFORM call_budget.call_budget_fence_now(b.name, now_us);\n        END IF;\n        PERFORM call_budget.call_budget_shift(b.name, now_us);\n",
            ),
            edit(
                "V2__acquire",
                "    UPDATE call_budget.call_budget_schedule AS s SET last_seen_us = now_us, waiting = 0 WHERE s.budget = budget_name;\n    DELETE",
                "    DELETE",
            ),
        ],
        test: "a_failover_to_a_clock_behind_keeps_the_spacing",
    },
    Planted {
        name: "short-way-past-the-queue",
        edits: &[edit("V5__decide", "CASE WHEN h.waiting = 0 THEN", "CASE WHEN true THEN")],
        test: "sql_memory_and_model_decide_alike_at_every_step",
    },
    Planted {
        name: "share-by-all-lanes",
        edits: &[edit("V5__decide", "(1 + least(4, alive))", "(1 + alive)")],
        test: "many_waiting_lanes_do_not_starve_the_row",
    },
    Planted {
        name: "refusal-costs-the-place",
        edits: &[edit(
            "V5__decide",
            "            behind := CASE WHEN own_place IS NULL THEN 0 ELSE rest.units - costs[1] END;\n",
            "",
        )],
        test: "a_refusal_of_the_first_in_a_lane_keeps_the_place_for_those_behind_it",
    },
    Planted {
        name: "floor-rounded-down",
        edits: &[edit(
            "V5__decide",
            "THEN greatest(c.due_us, base_us - greatest(b.lookahead_us, 3 * b.max_cost * b.interval_us))",
            "THEN greatest(c.due_us, base_us - greatest(b.lookahead_us, b.interval_us))",
        )],
        test: "each_class_gets_its_floor_and_then_priority_decides",
    },
    Planted {
        name: "all-classes-equal",
        edits: &[edit(
            "V2__acquire",
            "CASE WHEN floor_ppm > 0 AND due_us <= at_us THEN ARRAY[0, due_us, 0] ELSE ARRAY[1, priority, last_slot_us] END",
            "ARRAY[1, 0, last_slot_us]",
        )],
        test: "each_class_gets_its_floor_and_then_priority_decides",
    },
    Planted {
        name: "max-cost-ignored",
        edits: &[edit(
            "V1__schema",
            "CHECK ((limit_units - max_cost + 1) * interval_us",
            "CHECK (limit_units * interval_us",
        )],
        test: "a_budget_whose_max_cost_breaks_the_bound_is_refused",
    },
];

impl Planted {
    /// The SQL plant that `PLANTED_BUG` names; other names are planted elsewhere.
    pub fn asked_for() -> Option<&'static Planted> {
        let wanted = std::env::var("PLANTED_BUG").ok()?;
        SQL.iter().find(|planted| planted.name == wanted)
    }

    /// The migration's text with the bug in it, or as it was where the bug is in another.
    pub fn plant_in(&self, migration: &str, mut text: String) -> String {
        for Edit { file, find, replace } in self.edits.iter().filter(|edit| edit.file == migration) {
            let found = text.matches(find).count();
            assert_eq!(found, 1, "the planted bug {} finds its place {found} times in {file}: {find}", self.name);
            text = text.replacen(find, replace, 1);
        }
        text
    }
}
