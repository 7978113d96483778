"""Its modules by themselves, as the browser loads them, and its table of words."""

import re
from pathlib import Path

from page import PageTest

FILES = Path(__file__).resolve().parents[2] / "src/service/http/page"


class Parts(PageTest):
    def test_slots_in_a_hole_are_not_made_up(self):
        seconds = self.run_module(
            """const { Samples } = await import('/page/figures.js');
               const samples = new Samples();
               for (const s of [0, 1, 2, 10, 11, 12]) samples.add(s * 1000, { a: s * 4 });
               return samples.seconds(12000, 12).map((second) => second && second.a);"""
        )
        self.assertEqual(seconds, [4, 4] + [None] * 8 + [4, 4])

    def test_a_sample_between_two_seconds_is_counted_in_proportion_and_none_twice(self):
        seconds = self.run_module(
            """const { Samples } = await import('/page/figures.js');
               const samples = new Samples();
               [0, 900, 2100, 3000, 4300].forEach((at, n) => samples.add(at, { a: n * 3 }));
               return samples.seconds(4300, 4).map((second) => second.a);"""
        )
        # 0 at 0, 3 at 0.9 s, 6 at 2.1 s, 9 at 3 s, 12 at 4.3 s
        for seen, expected in zip(seconds, [3.25, 2.5, 3.25, 3 / 1.3]):
            self.assertAlmostEqual(seen, expected, places=6)

    def test_counts_that_began_anew_are_no_slots(self):
        seconds = self.run_module(
            """const { Samples } = await import('/page/figures.js');
               const samples = new Samples();
               [900, 905, 2, 6].forEach((count, s) => samples.add(s * 1000, { a: count }));
               return samples.seconds(3000, 3).map((second) => second.a);"""
        )
        self.assertEqual(seconds, [5, 0, 4])

    def test_a_queue_that_grows_is_told_from_one_that_goes_up_and_down(self):
        grew = self.run_module(
            """const { Queue } = await import('/page/figures.js');
               const seconds = Array.from({ length: 120 }, () => ({ a: 3 }));
               const after = (units, until = 60) => {
                 const queue = new Queue('a');
                 for (let s = 0; s <= until; s += 1) queue.add(1e6 + s * 1000, units(s), seconds);
                 return queue.grows;
               };
               return [(s) => s, (s) => s / 2 + (s % 5), (s) => 14, (s) => Math.round(40 + 20 * Math.sin(s / 5)), (s) => s <= 20 ? 0 : 40,
                 (s) => Math.max(0, 60 - s), (s) => s % 2].map((units) => after(units)).concat(after((s) => s, 30));"""
        )
        self.assertEqual(grew, [True, True, False, False, False, False, False, False])

    def test_the_expected_wait_is_of_the_class_itself_and_long_only_after_a_while(self):
        told = self.run_module(
            """const { Queue } = await import('/page/figures.js');
               const waits = (rate, units, from, until) => {
                 const queue = new Queue('a');
                 for (let s = 0; s <= until; s += 1) {
                   const seconds = Array.from({ length: 120 }, (_, at) => ({ a: s - 120 + at >= from ? rate : 0, b: 9 }));
                   queue.add(1e6 + s * 1000, s >= from ? units : 0, seconds);
                 }
                 return [queue.expected === null ? null : Math.round(queue.expected * 10) / 10, queue.long];
               };
               return [waits(4, 14, -200, 3), waits(4, 14, 30, 45), waits(4, 400, -200, 5), waits(4, 400, -200, 12), waits(0, 3, 0, 20), waits(0, 3, 0, 45),
                 waits(4, 0, -200, 30)];"""
        )
        self.assertEqual(told, [[3.5, False], [3.5, False], [100, False], [100, True], [None, False], [None, True], [0, False]])

    def test_events_are_read_as_the_standard_says(self):
        read = self.run_module(
            "const { parse } = await import('/page/stream.js'); return ['event: a\\ndata: 1\\ndata: 2', ': nothing', 'data:x'].map(parse);"
        )
        self.assertEqual(read, [{"name": "a", "data": "1\n2"}, {"name": "message", "data": ""}, {"name": "message", "data": "x"}])

    def test_every_text_is_there_in_both_languages_and_used(self):
        table = (FILES / "words.js").read_text(encoding="utf-8").split("const LIBRARY")[0]
        keys = re.findall(r"^  (\w+): \[", table, re.M)
        self.assertEqual(len(keys), len(set(keys)))
        entries = re.findall(r'^  \w+: \[\s*("(?:[^"\\]|\\.)+"), ?\s*("(?:[^"\\]|\\.)+"),?\s*\]', table, re.M)
        self.assertEqual(len(entries), len(keys), "each has two texts")
        for english, korean in entries:
            self.assertEqual(set(re.findall(r"\{\w+\}", english)), set(re.findall(r"\{\w+\}", korean)), english)
        code = "\n".join(file.read_text(encoding="utf-8") for file in FILES.iterdir() if file.name != "words.js")
        used = set(re.findall(r'"(\w+)"', code)) | set(re.findall(r'data-(?:text|label)="(\w+)"', code))
        named = {f"{stem}{end}" for stem in ("ask_", "did_") for end in ("pause", "resume", "pushback", "pause_what", "resume_what", "pushback_what")}
        named |= {f"state_{state}" for state in ("open", "probe_due", "probing", "held", "forced_open", "bypass", "observe")}
        self.assertEqual([key for key in keys if key not in used | named], [])
        asked = set(re.findall(r'\bsay\("(\w+)"', code)) | set(re.findall(r'data-(?:text|label)="(\w+)"', code))
        self.assertEqual([key for key in asked if key not in keys], [])

    def run_module(self, body):
        wrapped = f"const done = arguments[arguments.length - 1]; (async () => {{ {body} }})().then(done, (error) => done(String(error)));"
        return self.driver.execute_async_script(wrapped)
