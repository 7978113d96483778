"""What is not well, and how the page tells it."""

import re
import time

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import prefer
from page import PALE_TEXTS, PageTest, TOKEN, needs_fake
from scenes import HANGUL, HOSTILE, LONG, episode


@needs_fake
class Moving(PageTest):
    def test_figures_and_bars_follow_what_is_granted(self):
        with self.fake.lock:
            for name, one in self.fake.world["budgets"]["kis-real"]["classes"].items():
                one.update(rate={"order": 6.0, "minute": 3.0}.get(name, 0.0), sway=0)
        self.first_budget()
        before = self.driver.execute_script("return [...document.querySelectorAll('#budget-1 svg path')].map((path) => path.getAttribute('d')).join()")
        self.until("nine a second", lambda: 8 <= float(self.text("#budget-1 .figure")) <= 10)
        self.until("six and three", lambda: self.rate("order") and 5 <= self.rate("order") <= 7 and 2 <= self.rate("minute") <= 4 and self.rate("eod") == 0)
        after = self.driver.execute_script("return [...document.querySelectorAll('#budget-1 svg path')].map((path) => path.getAttribute('d')).join()")
        self.assertNotEqual(before, after)
        share = lambda: int(self.text("#budget-1 tbody tr .share-figure").removesuffix("%"))
        first = share()
        self.until("the share of the first class grows", lambda: share() > first)
        self.assertIn("floor 10%", self.text("#budget-1 tbody tr .share"))

    def rate(self, name):
        rows = self.driver.execute_script("return [...document.querySelectorAll('#budget-1 tbody tr')].map((row) => [row.querySelector('.class').innerText.trim(), row.querySelector('.now').innerText])")
        return float(dict(rows)[name].removesuffix("/s"))

    def test_a_screen_reader_hears_alarms_and_not_every_second(self):
        self.first_budget()
        self.until_shown("#said", "All is well")
        self.driver.execute_script("window.told = 0; new MutationObserver(() => told++).observe(said, {childList: true, characterData: true, subtree: true})")
        time.sleep(5)
        self.assertEqual(self.driver.execute_script("return told"), 0)
        self.fake.world["budgets"]["kis-real"].update(fenced_for_us=4_000_000)
        self.until_shown("#said", "keeps a quiet moment")
        self.until_shown("#said", "All is well")
        self.assertEqual(self.driver.execute_script("return told"), 2)

    def test_a_class_under_its_floor_is_marked_when_it_has_waited_long(self):
        self.first_budget()
        classes = self.fake.world["budgets"]["kis-real"]["classes"]
        classes["index"].update(rate=0, queue=3)
        classes["index"]["floor_ppm"] = 900_000
        self.until_shown("#budget-1 tbody tr:nth-child(3) .share", "floor 90%")
        self.assertNotIn("under", self.text("#budget-1 tbody"))
        self.driver.execute_script("const now = performance.now.bind(performance); performance.now = () => now() + 70000")
        self.until_shown("#budget-1 tbody tr:nth-child(3) .share", "under its floor")

    def test_silence_is_told_with_its_age_and_is_neither_well_nor_bad(self):
        self.first_budget()
        self.until_shown("#headline-title", "All is well")
        budget = self.fake.world["budgets"]["kis-real"]
        with self.fake.lock:
            budget["last_slot_age_us"] = 40_000_000
            for one in budget["classes"].values():
                one.update(rate=0, queue=0, waiting_units=0)
        self.until_shown("#headline-detail", "nothing waits")
        self.assertEqual(self.attribute("#headline", "data-level"), "ok", "less than a minute is nothing")
        budget["last_slot_age_us"] = 3_725_000_000
        self.until_shown("#headline-title", "Nothing is being sent")
        self.assertIn("1 h 2 min ago", self.text("#headline-detail"))
        self.assertIn("do the callers run", self.text("#headline-doing"))
        self.assertEqual(self.attribute("#headline", "data-level"), "note")
        with self.fake.lock:
            budget["last_slot_age_us"] = None
        self.until_shown("#headline-title", "All is well")

    def test_each_class_shows_how_long_it_is_likely_to_wait(self):
        self.first_budget()
        wait = lambda: self.driver.execute_script("return [...document.querySelectorAll('#budget-1 tbody .wait')].map((node) => node.checkVisibility() ? node.textContent : '')")
        order, minute, *_ = self.until("a wait", lambda: (found := wait()) and found[1] and found)
        self.assertEqual(order, "")
        # 7 to 21 units at about 9 a second.
        self.assertTrue(0.6 <= float(re.fullmatch(r"~([\d.]+) s", minute)[1]) <= 3, minute)
        self.assertEqual(self.attribute("#headline", "data-level"), "ok")
        self.fake.world["budgets"]["kis-real"].update(paused=True)
        self.until("no wait is foretold while nobody gets a slot", lambda: not any(wait()))

    def test_a_wait_that_is_long_is_no_longer_well(self):
        with self.fake.lock:
            self.fake.world["budgets"]["kis-real"]["classes"]["eod"]["queue"] = 400
        self.first_budget()
        self.until_shown("#headline-title", "Waits are long: eod of kis-real")
        self.assertIn("expected wait ~", self.text("#headline-detail"))
        self.assertEqual(self.attribute("#headline", "data-level"), "warn")
        self.fake.world["budgets"]["kis-real"]["classes"]["eod"]["queue"] = 0
        self.until_shown("#headline-title", "All is well")


@needs_fake
class StoreOut(PageTest):
    scene = "store-out"

    def test_a_store_out_of_reach_is_said_with_its_age_and_ends(self):
        self.until_shown("#headline-title", "nothing is sent")
        self.until_shown("#headline-detail", "refused the connection")
        self.assertEqual(self.attribute("html", "data-stale"), "true")
        self.assertEqual(self.attribute("#link", "data-link"), "store-out")
        self.assertIn("store is out of reach", self.text("#link"))
        buttons = "return [...document.querySelectorAll('#budget-1 .deeds button')].map((node) => [node.disabled, node.title])"
        self.assertEqual(self.driver.execute_script(buttons), [[True, "Not possible while the store is out of reach"]] * 3)
        age = lambda: int(re.search(r"(\d+) s old", self.text("#stale"))[1])
        first = age()
        self.assertGreaterEqual(first, 13)
        self.until("its age counts up", lambda: age() >= first + 2)
        self.fake.reachable, self.fake.why = True, None
        self.until_shown("#headline-title", "All is well")
        self.assertEqual(self.attribute("html", "data-stale"), "false")
        self.assertEqual(self.text("#link"), "live")
        self.assertEqual(self.driver.execute_script(buttons), [[False, ""]] * 3)
        self.until("the hole stays to be seen", lambda: self.driver.find_elements(By.CSS_SELECTOR, "#budget-1 .gaps rect"))

    def test_the_breakers_of_the_service_itself_need_no_store(self):
        self.until_shown("#headline-title", "nothing is sent")
        own = self.fake.world["breakers_here"][1]
        with self.fake.lock:
            own.update(state="open", why="a probe failed", retry_us=12_000_000, episode=episode(3_000_000, 3_000_000, 0, 1, "streak"))
        self.until_shown("#breaker-list", "next change in")
        left = float(re.search(r"next change in ([\d.]+) s", self.text("#breaker-list"))[1])
        self.assertTrue(6 <= left <= 12, left)
        lasted = int(re.search(r"episode for (\d+) s", self.text("#breaker-list"))[1])
        self.assertTrue(3 <= lasted <= 9, lasted)


@needs_fake
class Lost(PageTest):
    console_may_say = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY")

    def test_a_lost_connection_is_said_greyed_and_found_again(self):
        self.first_budget()
        self.fake.stop()
        self.until_shown("#headline-title", "Connection to this service lost")
        self.until_shown("#link", "reconnecting")
        self.assertEqual(self.attribute("#headline", "data-level"), "bad")
        self.until("greyed", lambda: self.attribute("html", "data-stale") == "true")
        self.until_shown("#stale", "s old")
        self.fake.start()
        self.until_shown("#headline-title", "All is well")
        self.assertEqual(self.attribute("#link", "data-link"), "live")

    def test_a_service_that_says_nothing_more_is_lost_too(self):
        self.first_budget()
        self.fake.silent = True
        silent = lambda: self.attribute("#link", "data-link") == "silent" and self.text("#headline-title")
        self.assertEqual(self.until("said while the line is still open", silent), "Connection to this service lost")
        self.fake.silent = False
        self.until_shown("#headline-title", "All is well")


@needs_fake
class Tokens(PageTest):
    look_token = "not-a-real-caller-token"
    console_may_say = ("401",)

    def test_looking_asks_for_a_token_where_the_service_wants_one(self):
        self.until("the question", lambda: self.find("#ask").is_displayed())
        self.assertFalse(self.find("#ask-failed").is_displayed())
        self.press("a-wrong-one", Keys.ENTER)
        self.until("the refusal", lambda: self.find("#ask").is_displayed() and self.find("#ask-failed").is_displayed())
        self.press(Keys.ESCAPE)
        self.until_shown("#headline-title", "who is looking")
        self.find("#look").click()
        self.press(self.look_token, Keys.ENTER)
        self.first_budget()
        self.assertNotIn(self.look_token, self.driver.execute_script("return JSON.stringify({...localStorage}) + location.href"))
        self.driver.refresh()
        name = self.first_budget()
        self.do("pause", reason="a typo", token="not-the-admin-token")
        self.until_shown("#act-failed", "Wrong admin token (401)")
        self.driver.refresh()
        self.first_budget()
        self.assertFalse(self.find("#ask").is_displayed(), "a mistyped admin token takes no other along")
        self.assertFalse(self.fake.world["budgets"][name]["paused"])


@needs_fake
class Morning(PageTest):
    scene = "alarms"

    def test_the_worst_comes_first_and_the_rest_is_said_too(self):
        self.until_shown("#headline-title", "kis-real is paused")
        self.until_shown("#headline-detail", "09:10까지")
        titles = self.driver.execute_script("return [...document.querySelectorAll('#others strong')].map((node) => node.textContent)")
        self.assertEqual(
            titles,
            [
                "Breaker kis/real/quote is open",
                "fsync is off in the database",
                "kis-paper is pushed back",
                "krx-data keeps a quiet moment",
                "Breaker yahoo/quote is probing",
                "and 1 more",
            ],
        )

    def test_breakers_show_state_episode_holds_and_whose_they_are(self):
        self.until_shown("#breaker-list", "kis/real/quote")
        shown = self.text("#breaker-list")
        for words in ("this service", "minute-worker 3f9c1d20", "a probe failed", "reopened 1×", "rung 1", "811 refused", "held: credential", "says what was"):
            self.assertIn(words, shown)
        self.assertNotIn("5ad0c3f1", shown, "this service is there once")
        self.until_shown("#breakers-closed", "kis/real/order")
        stale = self.text("#breaker-list [data-stale=true]")
        self.assertIn("order-book", stale)
        self.assertNotIn("dart/filing", self.text("#headline"), "what was told long ago is no alarm")
        retry = lambda: float(re.search(r"minute-worker.*?next change in ([\d.]+) s", self.text("#breaker-list"), re.S)[1])
        first = retry()
        self.until("it counts down", lambda: retry() < first)

    def test_this_service_counts_once_whether_or_not_it_says_which_process_it_is(self):
        self.until_shown("#others", "in 3 of 3 processes")
        self.fake.world["process"] = None
        self.until_shown("#breaker-list", "call-budget serve 5ad0c3f1")
        self.assertIn("in 3 of 3 processes", self.text("#others"))

    def test_durability_that_is_off_is_an_alarm_and_forgetfulness_a_notice(self):
        self.fake.scene("well")
        self.until_shown("#headline-title", "All is well")
        foot = lambda level: self.driver.execute_script("return [...document.querySelectorAll(`#server dd[data-level=${arguments[0]}]`)].map((node) => node.textContent)", level)
        for name, title, level in (
            ("synchronous_commit", "synchronous_commit is off", "note"),
            ("full_page_writes", "full_page_writes is off", "bad"),
            ("fsync", "fsync is off", "bad"),
        ):
            self.fake.world["server"][name] = "off"
            self.until_shown("#headline-title", title)
            self.assertEqual(self.attribute("#headline", "data-level"), level)
            self.assertEqual(foot(level), ["off"])
            self.fake.world["server"][name] = "on"
            self.until_shown("#headline-title", "All is well")

    def test_alarms_are_readable_and_fit_a_phone(self):
        for scheme in ("light", "dark"):
            prefer(self.driver, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            self.until_shown("#breaker-list", "kis/real/quote")
            time.sleep(0.5)
            self.assertEqual(self.driver.execute_script(PALE_TEXTS), [], scheme)
        self.never_wider_than(360, 320)


@needs_fake
class Hostile(PageTest):
    scene = "hostile"

    def test_names_are_text_whatever_they_say(self):
        self.until("six budgets", lambda: len(self.driver.find_elements(By.CSS_SELECTOR, ".card")) == 6)
        self.until_shown("#breaker-list", HOSTILE)
        self.assertIsNone(self.driver.execute_script("return window.harmed"))
        self.assertEqual(self.driver.find_elements(By.CSS_SELECTOR, "body img, body script, [onerror]"), [])
        names = self.driver.execute_script("return [...document.querySelectorAll('.card .name')].map((node) => [node.textContent, node.title])")
        for name in (HOSTILE, LONG, HANGUL, "__proto__", "constructor"):
            self.assertIn([name, name], names)
        rates = self.driver.execute_script("return [...document.querySelectorAll('.card tbody .share-figure')].map((node) => node.textContent)")
        self.assertEqual({rate for rate in rates if not 30 <= int(rate.removesuffix("%")) <= 37}, set())
        self.never_wider_than(360, 320, 1280)

    def test_a_budget_with_such_a_name_can_be_resumed(self):
        name = self.first_budget()
        self.do("resume", token=TOKEN)
        self.until("the service has it", lambda: not self.at_service(name)["paused"])


@needs_fake
class Off(PageTest):
    scene = "off"

    def test_the_switch_that_is_off_is_said_and_no_store_is_missed(self):
        self.until_shown("#headline-title", "The switch is off")
        self.until_shown("#no-budget", "while the switch is off")
        self.assertNotIn("out of reach", self.text("#headline"))
        self.assertEqual(self.attribute("html", "data-stale"), "false")

    def test_without_an_admin_token_there_is_nothing_to_press(self):
        self.fake.scene("well")
        self.fake.world["admin"] = False
        self.until_shown("#look-only", "changes nothing")
        self.first_budget()
        self.assertFalse(self.find("#budget-1 .deeds").is_displayed())
